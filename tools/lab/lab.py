"""The lab: a real vLLM on this machine's CPU, measured by specsim's own sweep.

`python tools/lab/lab.py [--short] [--out FOLDER]` installs vLLM (see install.py), makes the
checkpoints, predicts them from a microbenchmark of this CPU, runs `specsim measure run`, shows what
it found, and calibrates on half of the loads to predict the other half. Where vLLM cannot be
installed it says so, and does the last two with recorded runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import install  # noqa: E402 - a neighbour, found once the folder is on the path

ROOT = install.ROOT
SCENARIO = HERE / "scenario.yaml"
RECORDED = ROOT / "validation" / "lab" / "2026-11-30"
CHECKPOINTS = install.VENV / "checkpoints"
AGREE = 0.7
LOADS, LOADS_SHORT = "1,2,4,8,16", "1,4,16"
"""The ladder; the short one still has both sides of the crossover."""


def main() -> int:
    """Run the lab; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three loads, once: some 4 minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "lab",
                        help="folder of the sweep; one that is broken off goes on")  # fmt: skip
    given = parser.parse_args()
    began = time.monotonic()
    try:
        vllm = install.install()
    except install.Impossible as error:
        print(f"THE LAB CANNOT BE INSTALLED HERE: {error}", file=sys.stderr)
        print(f"GOING ON WITH THE RUNS RECORDED IN {RECORDED.relative_to(ROOT)}", file=sys.stderr)
        return specsim("measure", "show", str(RECORDED)) or calibrate_and_check(RECORDED)
    _timed("vLLM is installed", began)
    make_checkpoints()
    _timed("checkpoints are made", began)
    profile = given.out.parent / "lab_cpu.yaml"
    steps = (
        ("this CPU is measured", lambda: predict_zero_shot(profile)),
        ("the sweep is measured", lambda: measure(given.out, vllm, short=given.short)),
        ("the sweep is shown", lambda: specsim("measure", "show", str(given.out))),
        ("the other loads are predicted", lambda: calibrate_and_check(given.out, str(profile))),
    )
    for done, step in steps:
        if code := step():
            return code
        _timed(done, began)
    return 0


def make_checkpoints(folder: Path = CHECKPOINTS, agree: float = AGREE) -> None:
    """Make the target and the drafter, unless they are there."""
    python = install.VENV / "bin" / "python"
    script = HERE / "checkpoints.py"
    subprocess.run([python, script, folder, "--agree", str(agree)], check=True)


def predict_zero_shot(profile: Path) -> int:
    """Measure this CPU, while no server runs, and predict the lab from that alone."""
    profile.parent.mkdir(parents=True, exist_ok=True)
    code = specsim("profiles", "measure-cpu", "-o", str(profile))
    return code or specsim("predict", str(SCENARIO), "--gpu", str(profile), "--brief")


def measure(out: Path, vllm: Path, *, short: bool) -> int:
    """Run the sweep; return its exit code."""
    return specsim(
        "measure", "run", str(SCENARIO), "--out", str(out), "--vllm", str(vllm),
        "--model-path", str(CHECKPOINTS / "target"),
        "--drafter-path", str(CHECKPOINTS / f"drafter_{round(AGREE * 100)}"),
        "--max-concurrency", LOADS_SHORT if short else LOADS,
        "--repeats", "1" if short else "2",
        # Seconds count here more than the weight of start and end of a run.
        "--min-prompts", "6", "--prompts-per-load", "2" if short else "3", "--warmup", "4",
    )  # fmt: skip


def calibrate_and_check(out: Path, device: str = "cpu_epyc_2core") -> int:
    """Fit on every other load of a sweep, predict those between, and say how far off."""
    loads = sorted({int(path.stem[1:].split("_")[0]) for path in out.glob("off/c*_r*.json")})
    between = ",".join(str(load) for load in loads[1::2])
    return specsim(
        "calibrate", str(SCENARIO), "--gpu", device, "--measurements", str(out),
        "--hold-out", between,
        "--out", str(ROOT / "build" / "lab-calibration.yaml"),
    )  # fmt: skip


def specsim(*words: str) -> int:
    """Run a specsim command in this interpreter's environment, where vLLM finds its settings."""
    environment = dict(os.environ) | install.ENVIRONMENT
    return subprocess.run(
        [sys.executable, "-m", "specsim", *words], env=environment, check=False
    ).returncode


def _timed(what: str, began: float) -> None:
    print(f"[{time.monotonic() - began:.0f} s] {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
