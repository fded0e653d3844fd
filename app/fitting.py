"""A fit in a process of its own: it can be stopped at once, and leaves the pages their time."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specsim.errors import SpecsimError
from specsim.export.figures.calibration import without_acceptance
from specsim.schema.calibration import CalibrationReport
from specsim.schema.measurement import Measurements
from specsim.schema.scenario import Scenario


@dataclass(frozen=True)
class Options:
    """What a fit is asked for besides scenario and runs."""

    unknown_arm: Literal["off", "on"] | None = None
    hold_out: tuple[float, ...] = ()
    hold_out_k: tuple[int, ...] = ()


class Fitting:
    """A fit that is under way."""

    def __init__(self, scenario: Scenario, read: Measurements, options: Options) -> None:
        given = (scenario, read, options.unknown_arm, options.hold_out, options.hold_out_k)
        # Files, where pipes would have to be emptied while somebody waits.
        self._result = tempfile.TemporaryFile()
        with tempfile.TemporaryFile() as asked:
            pickle.dump(given, asked)
            asked.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=asked, stdout=self._result
            )

    def done(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """End it; nothing where it has ended."""
        self._process.kill()
        self._process.wait()
        self._result.close()

    def report(self) -> CalibrationReport:
        """Return what it found, once it is done.

        Raises
        ------
        SpecsimError
            Nothing: why, in a sentence.
        """
        if self._process.wait() != 0:
            raise SpecsimError(
                f"the fit broke off (exit status {self._process.returncode}); the log of "
                "`specsim app` says where: please report it with these files"
            )
        self._result.seek(0)
        found: CalibrationReport | str = pickle.load(self._result)
        if isinstance(found, str):
            raise SpecsimError(found)
        return found


def _calibrated(
    scenario: Scenario,
    read: Measurements,
    unknown_arm: Literal["off", "on"] | None,
    hold_out: Sequence[float],
    hold_out_k: Sequence[int],
) -> CalibrationReport | str:
    from specsim.calibration.calibrate import calibrate
    from specsim.calibration.rows import assume_arm

    rows = assume_arm(read, unknown_arm)
    try:
        return calibrate(
            without_acceptance(scenario, rows.rows), rows, hold_out=hold_out, hold_out_k=hold_out_k
        )
    except SpecsimError as problem:
        return str(problem)


if __name__ == "__main__":
    found = _calibrated(*pickle.load(sys.stdin.buffer))
    pickle.dump(found, sys.stdout.buffer)
