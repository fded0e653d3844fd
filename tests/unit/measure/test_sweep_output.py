"""The progress of a sweep and its charts."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from specsim.cli.sweep_progress import progress_on
from specsim.errors import MissingExtraError
from specsim.export.sweep_charts import write_charts
from specsim.measure.sweep.summary import summarise
from specsim.schema.measurement import Latency, Measurement


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell(stream: io.StringIO) -> str:
    with progress_on(stream) as progress:
        progress.say("starting server off")
        progress.began("off c1_r1", 0, 2)
        progress.ended("off c1_r1", 1, 2, "20.1 tok/s [fast] (3 s)")
    return stream.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    lines = tell(io.StringIO()).splitlines()
    assert [line[10:] for line in lines] == [
        "starting server off", "[1/2] off c1_r1: 20.1 tok/s [fast] (3 s)"
    ]  # fmt: skip


@pytest.mark.parametrize("has_rich", [True, False])
def test_a_terminal_gets_a_bar_if_rich_is_there(
    has_rich: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    said = tell(Terminal())
    assert "20.1 tok/s [fast] (3 s)" in said
    assert ("1/2" in said) or not has_rich


def rows() -> list[Measurement]:
    return [
        Measurement(
            source="made", format="made", arm=arm, arm_from="metadata", concurrency=load,
            repeat=1, output_tok_s=speed, ttft_ms=Latency(50, 50, 60, 70, 80, 1),
            tpot_ms=Latency(20, 20, 21, 22, 23, 1),
            num_speculative_tokens=3 if arm == "on" else None,
        )
        for arm, load, speed in
        (("off", 1, 20), ("on", 1, 30), ("off", 8, 60), ("on", 8, 50))
    ]  # fmt: skip


def test_charts_are_svg(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    written = write_charts(summarise(rows()), tmp_path)
    assert [path.name for path in written] == [
        "throughput.svg", "tpot.svg", "ttft.svg", "speedup.svg"
    ]  # fmt: skip
    assert all("<svg" in path.read_text(encoding="utf-8") for path in written)


def test_charts_without_altair_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"specsim-llm\[charts\]"):
        write_charts(summarise(rows()), tmp_path)
