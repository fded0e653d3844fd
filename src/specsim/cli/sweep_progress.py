"""The progress of a sweep: a bar where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

from specsim.measure.sweep.runner import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


@contextlib.contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """Give what tells a sweep's progress on a stream."""
    bar = _bar(stream) if stream.isatty() else None
    if bar is None:
        yield Lines(stream)
        return
    with bar:
        yield Drawn(bar)


def _bar(stream: TextIO) -> Bar | None:
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        return None  # lines say the same
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=Console(file=stream),
    )  # fmt: skip


class Lines:
    """Progress as lines with the time of day."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        """Write a line."""
        self._stream.write(f"{datetime.now():%H:%M:%S}  {text}\n")
        self._stream.flush()

    def began(self, label: str, done: int, total: int) -> None:
        """Say nothing: the run's end is said with its result."""

    def ended(self, label: str, done: int, total: int, said: str) -> None:
        """Write the result of a run."""
        self.say(f"[{done}/{total}] {label}: {said}")


class Drawn:
    """Progress as a bar, with the results of runs above it."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)

    def began(self, label: str, done: int, total: int) -> None:
        """Name the run beside the bar."""
        self._bar.update(self._task, description=label, completed=done, total=total)

    def ended(self, label: str, done: int, total: int, said: str) -> None:
        """Move the bar and write the result."""
        self._bar.update(self._task, completed=done, total=total)
        self.say(f"{label}: {said}")
