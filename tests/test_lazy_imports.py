"""What a command leaves unimported: start-up time, checked without a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-3.3-70b-4xh100.yaml"
HEAVY = {"scipy", "pandas", "streamlit", "altair", "pyarrow", "rich", "matplotlib", "xlsxwriter"}
PROGRAM = """
import sys
from specsim.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code, stop.code
print("MODULES", *{name.partition(".")[0] for name in sys.modules})
"""


def imported_by(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_a_prediction_imports_nothing_heavy() -> None:
    loaded = imported_by("predict", str(EXAMPLE))
    assert {"numpy", "pydantic"} <= loaded
    assert loaded & HEAVY == set()


def test_help_imports_neither_numpy_nor_pydantic() -> None:
    assert imported_by("--help") & (HEAVY | {"numpy", "pydantic", "yaml"}) == set()


def test_a_package_import_is_free() -> None:
    program = "import specsim, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert {"numpy", "pydantic", "click"} & set(done.stdout.split()) == set()
