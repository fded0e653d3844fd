"""The shipped cases, checked in processes beside the pages, which keep their time meanwhile."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from specsim.catalog.case import load_case
from specsim.export.figures.accuracy_rows import Checked
from specsim.schema.validation import CaseCheck
from specsim.validation.check import check_case

_MOST_PROCESSES = 4


class Checks:
    """Checks of cases: begun when this is made, one process a core."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self._done: dict[Path, Checked] = {}
        n = max(min(_MOST_PROCESSES, os.cpu_count() or 1, len(self.files)), 1)
        for i in range(n):
            share = self.files[i::n]
            threading.Thread(target=self._run, args=(share,), name="accuracy", daemon=True).start()

    def _run(self, files: Sequence[Path]) -> None:
        """Read what a process finds, as it finds it."""
        why = "its check broke off; the log of `specsim app` says where"
        command = [sys.executable, __file__, *map(str, files)]
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                for file in files:
                    self._done[file] = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            for file in files:
                self._done.setdefault(file, _failed(file, why))

    @property
    def done(self) -> int:
        """How many are done."""
        return len(self._done)

    @property
    def found(self) -> list[Checked]:
        """What is done, in the order of the files."""
        return [self._done[file] for file in self.files if file in self._done]


def _failed(file: Path, why: str) -> Checked:
    return Checked(None, CaseCheck(file.stem, "?", "?", False, (), (), (), why))


def _checked(file: Path) -> Checked:
    try:
        case = load_case(file)
        return Checked(case, check_case(case))
    except Exception as problem:  # one case that fails is listed, and the others go on
        return _failed(file, str(problem))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        pickle.dump(_checked(Path(name)), sys.stdout.buffer)
        sys.stdout.buffer.flush()
