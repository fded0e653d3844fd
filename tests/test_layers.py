"""Imports go downward only, and physics knows numpy and nothing else (pyproject.toml)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_contracts_of_the_layers_hold() -> None:
    # The cache outlives a module that has moved, and then reports imports that are not there.
    program = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
