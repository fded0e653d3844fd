from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from specsim.cli.report import report
from specsim.cli.words import circle, crossover_in_words
from specsim.export.terminal import Screen
from specsim.schema.results import BestK, BreakEven, Crossover, Point, Prediction, Verdict

WIDE = Screen(width=120)
Build = Callable[..., Prediction]
BREAK_EVEN = BreakEven(
    load=1, acceptance_length=1.3, acceptance_rate=0.2, draft_acceptance_rate=0.1
)
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
    assert "people say below 0.5 it is not worth it at moderate load" in shown
    assert "draft acceptance rate: accepted / drafted, as vLLM prints it" in shown


def test_one_of_anything_is_singular(make_prediction: Build, make_point: BuildPoint) -> None:
    shown = text(make_prediction(points=(make_point(1, 2.0),), break_even=(BREAK_EVEN,)))
    assert "breaks even at 1 concurrent request from" in shown


def test_the_speedup_is_defined_on_screen(make_prediction: Build) -> None:
    assert "speedup: output tokens/s, on / off" in text(make_prediction())
    scenario = {**make_prediction().scenario, "load": {"request_rate": [5.85, 6.15]}}
    shown = " ".join(text(make_prediction(scenario=scenario)).split())
    assert "speedup: time per output token, off / on (both serve the asked rate)" in shown


def test_loads_are_those_that_were_asked(make_prediction: Build, make_point: BuildPoint) -> None:
    loads = (5.85, 6.15, 1024)
    points = tuple(make_point(load, 1.5) for load in loads)
    even = tuple(dataclasses.replace(BREAK_EVEN, load=load) for load in loads)
    rows = text(make_prediction(points=points, break_even=even, best_k=())).splitlines()
    firsts = [row.split()[0] for row in rows if row.split()]
    for load in ("5.85", "6.15", "1,024"):
        assert firsts.count(load) >= 2  # in the table by load and in that of break-evens


def test_a_load_that_no_arm_serves_has_no_break_even(
    make_prediction: Build, make_point: BuildPoint
) -> None:
    best = BestK(load=8, k=3, speedup=1.5)
    shown = text(make_prediction(points=(make_point(8, 1.5),), break_even=(), best_k=(best,)))
    assert "breaks even" not in shown
    assert "no acceptance is enough" not in shown
    row = next(line for line in shown.splitlines() if line.split()[:2] == ["8", "3"])
    assert row.split()[3:] == ["–", "–", "–"]


def test_what_only_the_user_knows_stands_before_the_figures(make_prediction: Build) -> None:
    defaults = ("workload.input_tokens = 512.0", "engine.max_num_seqs = 256 (the engine's)")
    lines = text(make_prediction(defaults=defaults)).splitlines()
    assert "ASSUMED FOR YOU  workload.input_tokens = 512.0" in lines
    assert lines.index("ASSUMED FOR YOU  workload.input_tokens = 512.0") < lines.index("BY LOAD")
    assert "  · other defaults: engine.max_num_seqs = 256 (the engine's)" in lines


def test_constants_that_are_not_used_are_not_named(make_prediction: Build) -> None:
    told = {
        "hardware": "h100_sxm",
        "constants": {
            "gemm.bf16": {"basis": "measured", "used": True},
            "moe.int4": {"basis": "fitted", "used": False},
            "all_reduce.4": {"basis": "assumed", "used": True},
        },
        "engine": {"name": "vllm", "version": "0.33", "basis": "fitted", "source": "long story"},
        "price": {"usd_per_gpu_hour": 2.5, "source": "market, 2026-07"},
    }
    shown = text(make_prediction(provenance=told))
    assert "moe.int4" not in shown
    assert "long story" not in shown
    assumed, fitted, measured = (shown.index(f"[{b}]") for b in ("assumed", "fitted", "measured"))
    assert assumed < fitted < measured
    assert "price: $2.50 per GPU and hour (market, 2026-07)" in shown
    assert "charges all of it to output tokens" in " ".join(shown.split())


def test_experts_of_another_dtype_are_named(make_prediction: Build) -> None:
    shown = text(make_prediction(provenance={"expert_dtype": "mxfp4"}))
    assert shown.startswith("llama-3.3-70b · bf16, mxfp4 experts · ")
    assert text(make_prediction(provenance={"expert_dtype": "bf16"})).startswith(
        "llama-3.3-70b · bf16 · "
    )


@pytest.mark.parametrize(
    ("warning", "last_point", "early"),
    [
        ("vLLM does not start: max_model_len is too long", (256, 0.9), True),
        ("the drafter is a guess", (256, 0.9), True),  # 241 of 256 requests fit: see the points
        ("the drafter is a guess", (128, 1.1), False),
    ],
)
def test_warnings_of_limits_follow_the_verdict(
    make_prediction: Build, make_point: BuildPoint, warning: str,
    last_point: tuple[float, float], early: bool,
) -> None:  # fmt: skip
    points = (make_point(1, 2.0), make_point(*last_point))
    lines = text(make_prediction(points=points, warnings=(warning,))).splitlines()
    assert lines.count("WARNINGS") == 1
    assert (lines.index("WARNINGS") < lines.index("BY LOAD")) is early


def test_without_speculation_there_is_one_arm_and_no_verdict(
    make_prediction: Build, make_point: BuildPoint
) -> None:
    only_off = dataclasses.replace(
        make_point(8, 1.5), speculative=None, speedup=None, speedup_low=None, speedup_high=None
    )
    shown = text(
        make_prediction(
            acceptance=None, crossover=None, break_even=(), best_k=(), acceptance_curve=(),
            points=(only_off,), verdict=Verdict("off", "no speculation was asked for"),
        )
    )  # fmt: skip
    assert "NO VERDICT  no speculation was asked for" in shown
    assert "OFF" not in shown
    assert not [line for line in shown.splitlines() if line.startswith("  on")]
    assert "drafter" not in shown.split("MEMORY")[1].splitlines()[2]


def test_a_row_of_the_table_has_the_figures_of_its_point(make_prediction: Build) -> None:
    rows = text(make_prediction()).splitlines()
    row = next(line for line in rows if line.lstrip().startswith("128 "))
    assert row.split()[:4] == ["128", "1.13×", "1.04–1.22", "6,270"]


@pytest.mark.parametrize("width", [80, 100, 120, 140])
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
    assert "wins from 1 to 96 and from 310 to 1,024 concurrent requests" in said
    assert "80 % interval: 80 to above 1,024" in said


def test_ends_that_two_digits_do_not_tell_apart_have_three() -> None:
    found = Crossover("crosses", 5.74, None, 5.74, 5.74, ((5.66, 5.74),), (0.01, 6.153))
    said = crossover_in_words(found, "requests/s")
    assert "wins from 5.66 to 5.74 requests/s (searched: 0.0100 to 6.15)" in said
    assert "5.7 to 5.7" not in said


@pytest.mark.parametrize(("state", "said"), [("always", "every load"), ("never", "no load")])
def test_always_and_never_in_words(state: str, said: str) -> None:
    found = Crossover(state, None, None, None, None, (), (1, 256))  # type: ignore[arg-type]
    assert crossover_in_words(found, "requests/s") == (
        f"Speculation wins at {said} from 1 to 256 requests/s."
    )


def test_the_circle_names_where_the_cache_caps_the_batch(make_prediction: Build) -> None:
    found = make_prediction()
    said = circle(found.kv, found.points, found.crossover)
    assert said.endswith("and so moves the crossover.")
    assert circle(found.kv, found.points).endswith("at 241 instead of 256.")
    assert "so 587 instead of 602 requests" in said  # a part of a request does not fit
    assert "shrink the cache by 11,520 tokens (2.5%)" in said
    assert "from 256 on that caps the batch, at 241 instead of 256" in said
    free = dataclasses.replace(found.kv, lost_tokens=0)
    assert circle(free, found.points) == "Nothing is lost: speculation takes no KV cache here."


def test_one_load_is_no_line_to_draw(make_prediction: Build, make_point: BuildPoint) -> None:
    shown = text(make_prediction(points=(make_point(8, 1.5),)))
    assert "Speculation wins from 1 to 190" in shown
    assert "shaded" not in shown


def test_an_end_of_the_interval_is_said_where_the_curve_does_not_cross() -> None:
    always = Crossover("always", None, None, 207.2, None, ((1.0, 1024.0),), (1.0, 1024.0))
    assert crossover_in_words(always, "concurrent requests").endswith(
        "; at the low end of the 80 % interval up to 210."
    )
    never = Crossover("never", None, None, None, 3.0, (), (1.0, 1024.0))
    assert crossover_in_words(never, "concurrent requests").endswith(
        "; at the high end of the 80 % interval up to 3."
    )
