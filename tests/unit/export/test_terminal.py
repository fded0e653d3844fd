from __future__ import annotations

import dataclasses
import io

import pytest

from specsim.export.terminal import Curve, Plot, Screen, stacked_bar

FALL = Plot(
    curves=[Curve(x=(1, 4, 16), y=(2.0, 1.5, 0.5), low=(1.9, 1.4, 0.4), high=(2.1, 1.6, 0.6),
                  dots=True)],
    x_title="load", log_x=True, x_ticks=(1, 4, 16), mark=(8, "here"), mark_span=(4, 40),
)  # fmt: skip


def test_the_level_has_a_row_of_its_own() -> None:
    (row,) = (line for line in FALL.draw(Screen()) if "1.0×┤" in line)
    assert "╌╌╌" in row


def test_marked_points_lie_at_their_heights() -> None:
    lines = FALL.draw(Screen(width=80))
    step = next(i for i, line in enumerate(lines) if line.startswith("   2.0×"))
    assert lines[step][8] == "●"  # the first load, in the first column of the plot
    last = next(line for line in lines if line.rstrip().endswith("●") or "●░" in line[-3:])
    assert lines.index(last) > step


def test_an_interval_that_goes_on_has_an_arrow() -> None:
    row = next(line for line in FALL.draw(Screen(width=80)) if "✕" in line)
    assert row.strip().startswith("├") or row.strip().startswith("here ├")
    assert "►" in row


def test_a_mark_beyond_the_axis_is_an_arrow() -> None:
    beyond = dataclasses.replace(FALL, mark=(50, "there"), mark_span=None)
    row = next(line for line in beyond.draw(Screen(width=80)) if "there" in line)
    assert row.rstrip().endswith("►")
    assert "✕" not in row


def test_a_plot_takes_the_width_there_is() -> None:
    assert max(map(len, FALL.draw(Screen(width=120)))) > 110


def test_ticks_are_labelled_under_the_axis() -> None:
    lines = FALL.draw(Screen(width=80))
    axis = next(i for i, line in enumerate(lines) if "└" in line)
    assert lines[axis + 1].split() == ["1", "4", "16"]
    places = [i for i, c in enumerate(lines[axis]) if c == "┴"]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=1)


def test_ascii_stands_in_for_everything_that_is_drawn() -> None:
    screen = Screen(unicode=False)
    drawn = "\n".join(screen.fit(line) for line in FALL.draw(screen))
    assert drawn.isascii()
    assert "?" not in drawn


@pytest.mark.parametrize("shares", [[1, 1, 1], [98, 1, 1], [0.01, 100], [5, 0, 5], [1e-9, 1, 1]])
def test_a_stacked_bar_is_full_and_shows_every_part(shares: list[float]) -> None:
    bar = stacked_bar(shares, width=20)
    assert len(bar) == 20
    assert len(set(bar)) == sum(share > 0 for share in shares)


def test_parts_are_in_proportion() -> None:
    bar = stacked_bar([3, 1], width=40)
    assert (bar.count("█"), bar.count("▓")) == (30, 10)


@pytest.mark.parametrize(("encoding", "unicode"), [("utf-8", True), ("latin-1", False)])
def test_the_screen_knows_its_encoding(encoding: str, unicode: bool) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen = Screen.of(stream)
    assert (screen.unicode, screen.colour, screen.width) == (unicode, False, 100)


def test_ticks_beyond_the_curves_are_left_out() -> None:
    short = Plot(
        curves=[Curve(x=(0, 0.2), y=(0.5, 2.0))], x_title="share", x_ticks=(0, 0.2, 0.4, 1)
    )
    ruler = next(line for line in short.draw(Screen(width=80)) if "└" in line)
    assert ruler.count("┴") == 2
