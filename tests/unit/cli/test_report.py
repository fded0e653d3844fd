from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from specsim.cli.report import report
from specsim.cli.words import circle, crossover_in_words
from specsim.export.terminal import Screen
from specsim.schema.results import Crossover, Point, Prediction

WIDE = Screen(width=120)
Build = Callable[..., Prediction]
BuildPoint = Callable[[float, float], Point]


def text(prediction: Prediction, screen: Screen = WIDE) -> str:
    return "\n".join(report(screen, prediction))


def test_the_verdict_comes_first_after_the_heading(make_prediction: Build) -> None:
    lines = text(make_prediction()).splitlines()
    assert lines[0] == "llama-3.3-70b · bf16 · 4 × h100_sxm (TP 4) · vllm 0.33"
    assert lines[3].startswith("VERDICT  SCHEDULE  speculation wins up to about 190")


def test_all_three_names_of_acceptance_and_the_rule_of_thumb(make_prediction: Build) -> None:
    shown = " ".join(text(make_prediction()).split())
    assert "length 2.90 tokens per step · rate 0.76 per token · draft acceptance rate 0.47" in shown
    assert "at 32 concurrent requests from a draft acceptance rate of 0.05" in shown
    assert "the field's rule of thumb: 0.5" in shown


def test_a_row_of_the_table_has_the_figures_of_its_point(make_prediction: Build) -> None:
    rows = text(make_prediction()).splitlines()
    row = next(line for line in rows if line.lstrip().startswith("128 "))
    assert row.split()[:4] == ["128", "1.13×", "1.04–1.22", "6,270"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_screen(make_prediction: Build, width: int) -> None:
    assert max(map(len, report(Screen(width=width), make_prediction()))) <= width


def test_every_load_has_a_row_even_if_an_arm_is_missing(
    make_prediction: Build, make_point: BuildPoint
) -> None:
    lost = dataclasses.replace(
        make_point(512, 0.9),
        speculative=None,
        speedup=None,
        speedup_low=None,
        speedup_high=None,
        note="on: unstable at this rate",
    )
    points = (make_point(1, 2.0), make_point(8, 1.5), lost)
    assert "at 512: on: unstable at this rate" in text(make_prediction(points=points))


def test_brief_ends_with_the_table(make_prediction: Build) -> None:
    shown = "\n".join(report(WIDE, make_prediction(), brief=True))
    assert "BY LOAD" in shown
    assert "CROSSOVER" not in shown


def test_colour_only_where_the_screen_has_it(make_prediction: Build) -> None:
    assert "\x1b[" not in text(make_prediction())
    coloured = text(make_prediction(), Screen(width=120, colour=True))
    assert "\x1b[32m2.21×" in coloured.replace(" ", "")


def test_several_crossings_are_several_intervals() -> None:
    found = Crossover("crosses", 96.0, 96.0, 80.0, None, ((1, 96.0), (310.0, 1024)), (1, 1024))
    said = crossover_in_words(found, "concurrent requests")
    assert "wins from 1 to 96 and from 310 to 1,000 concurrent requests" in said
    assert "80 % interval: 80 to above 1,000" in said


@pytest.mark.parametrize(("state", "said"), [("always", "every load"), ("never", "no load")])
def test_always_and_never_in_words(state: str, said: str) -> None:
    found = Crossover(state, None, None, None, None, (), (1, 256))  # type: ignore[arg-type]
    assert crossover_in_words(found, "requests/s") == (
        f"Speculation wins at {said} from 1 to 256 requests/s."
    )


def test_the_circle_names_where_the_cache_caps_the_batch(make_prediction: Build) -> None:
    found = make_prediction()
    said = circle(found.kv, found.points)
    assert "shrink the cache by 11,520 tokens (2.5%)" in said
    assert "from 256 on that caps the batch, at 241 instead of 256" in said
    free = dataclasses.replace(found.kv, lost_tokens=0)
    assert circle(free, found.points) == "Nothing is lost: speculation takes no KV cache here."


def test_one_load_is_no_line_to_draw(make_prediction: Build, make_point: BuildPoint) -> None:
    shown = text(make_prediction(points=(make_point(8, 1.5),)))
    assert "Speculation wins from 1 to 190" in shown
    assert "shaded" not in shown
