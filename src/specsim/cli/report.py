"""A prediction as text for people: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specsim.cli.pictures import acceptance_curve, crossover, memory, step
from specsim.cli.words import (
    heading,
    joined,
    load_of,
    loads_in,
    notes,
    titled,
    unit_of_load,
    whole,
    wrapped,
)
from specsim.export.tables import (
    MISSING,
    Cell,
    Column,
    column,
    count,
    described,
    exact,
    figure,
    table,
)
from specsim.export.terminal import Role, Screen
from specsim.schema.results import (
    DOES_NOT_START,
    FIELD_RULE,
    NEUTRAL_HIGH,
    NEUTRAL_LOW,
    BaselinePoint,
    BreakEven,
    Point,
    Prediction,
    SpeculativePoint,
)

_DECISIONS: dict[str, Role] = {"on": "good", "off": "bad", "schedule": "neutral"}
_BASES = ("assumed", "fitted", "measured", "calibrated")
"""What constants rest on, the weakest first."""
_GUESSED = (
    "workload.input_tokens", "workload.output_tokens", "workload.temperature", "load.",
    "speculation.", "engine.max_model_len",
)  # fmt: skip
"""Defaults that stand for what only the user knows; the others are the engine's own."""
_NAMES = (
    "length: tokens that a step yields, the target's own included; rate: chance of a draft token "
    "if those before it were accepted; draft acceptance rate: accepted / drafted, as vLLM prints it"
)
_SPEEDUP = {
    True: "speedup: time per output token, off / on (both serve the asked rate)",
    False: "speedup: output tokens/s, on / off",
}
"""What the speedup compares, by whether the load is open (requests arrive at a rate)."""


def report(
    screen: Screen, prediction: Prediction, *, brief: bool = False, search: Sequence[Path] = ()
) -> list[str]:
    """Return the lines of the report; `brief` stops after the table by load.

    `search` is where profiles were looked for beside the shipped ones.
    """
    warnings = notes(screen, "WARNINGS", prediction.warnings, role="neutral")
    early = _says_first(prediction)
    sections = [
        heading(screen, prediction.scenario, prediction.provenance),
        _verdict(screen, prediction),
        warnings if early else [],
        _acceptance(screen, prediction),
        _guessed(screen, prediction),
        _by_load(screen, prediction),
    ]
    if not brief:
        if prediction.crossover is not None:
            sections.append(
                crossover(
                    screen,
                    prediction.crossover,
                    prediction.points,
                    unit_of_load(prediction.scenario),
                )
            )
        sections += [
            acceptance_curve(screen, prediction),
            _choices(screen, prediction),
            memory(
                screen,
                prediction.kv,
                prediction.points,
                prediction.crossover,
                speculates=prediction.acceptance is not None,
            ),
            step(screen, prediction),
            _basis(screen, prediction, search),
        ]
    return joined([*sections, [] if early else warnings])


def _says_first(prediction: Prediction) -> bool:
    """Whether the warnings come before the figures: no start, or requests that wait for memory."""
    arms = [arm for p in prediction.points for arm in (p.baseline, p.speculative)]
    return any(text.startswith(DOES_NOT_START) for text in prediction.warnings) or any(
        arm is not None and arm.limited_by == "kv" for arm in arms
    )


def _verdict(screen: Screen, prediction: Prediction) -> list[str]:
    verdict = prediction.verdict
    if prediction.acceptance is None:
        return titled(screen, "NO VERDICT", verdict.reason)
    word = verdict.decision.upper()
    role = _DECISIONS.get(verdict.decision, "neutral")
    lead = f"VERDICT  {word}"
    lines = titled(screen, lead, verdict.reason)
    painted = screen.paint("VERDICT", "strong") + "  " + screen.paint(word, role)
    return [lines[0].replace(screen.paint(lead, "strong"), painted, 1), *lines[1:]]


def _acceptance(screen: Screen, prediction: Prediction) -> list[str]:
    acceptance = prediction.acceptance
    if acceptance is None:
        return []
    lines = titled(
        screen,
        "ACCEPTANCE",
        f"length {figure(acceptance.acceptance_length)} tokens per step · "
        f"rate {acceptance.acceptance_rate:.2f} per token · "
        f"draft acceptance rate {acceptance.draft_acceptance_rate:.2f}",
    )
    given = acceptance.source.startswith("given")
    told = f"as {acceptance.source}" if given else f"from {acceptance.source}"
    lines += wrapped(screen, told)
    if prediction.break_even:
        middle = prediction.break_even[len(prediction.break_even) // 2]
        needed = middle.draft_acceptance_rate
        at = f"at {loads_in(middle.load, unit_of_load(prediction.scenario))}"
        rule = f"people say below {FIELD_RULE:g} it is not worth it at moderate load"
        if needed is None:
            text = f"no acceptance is enough to break even {at} ({rule})"
        else:
            text = (
                f"breaks even {at} from a draft acceptance rate of {needed:.2f}; here it is "
                f"{acceptance.draft_acceptance_rate:.2f} ({rule})"
            )
        lines += wrapped(screen, text)
    return lines + _painted(screen, wrapped(screen, _NAMES), "faint")


def _guessed(screen: Screen, prediction: Prediction) -> list[str]:
    """Name the defaults that drive the answer and that only the user can know."""
    guessed = [text for text in prediction.defaults if text.startswith(_GUESSED)]
    return titled(screen, "ASSUMED FOR YOU", "; ".join(guessed)) if guessed else []


def _by_load(screen: Screen, prediction: Prediction) -> list[str]:
    points = prediction.points
    speculates = prediction.acceptance is not None
    key = column(_load_title(prediction.scenario), ("",), points, lambda p: exact(load_of(p)))
    columns = [column("speedup", ("", "80 % interval"), points, _speedup, _interval)]
    columns += [
        _both("tok/s", points, "output_tok_s"),
        _both("TPOT ms", points, "tpot_ms"),
        column("ITL ms", ("on",), points, lambda p: _value(p.speculative, "itl_ms")),
        _both("TTFT ms", points, "ttft_ms"),
        _both("$/Mtok out", points, "usd_per_mtok"),
        _both("batch", points, "batch"),
        _both("limited by", points, "limited_by"),
        _both("step ms", points, "step_ms"),
        column("tok/step", ("on",), points, lambda p: _value(p.speculative, "tokens_per_step")),
    ]
    if not speculates:
        columns = [_off(c) for c in columns[1:] if "off" in c.heads]
    lines = [screen.paint("BY LOAD", "strong"), *table(screen, key, columns)]
    record = SpeculativePoint if speculates else BaselinePoint
    terms = [("TPOT", "tpot_ms"), ("TTFT", "ttft_ms")]
    terms[1:1] = [("ITL", "itl_ms")] if speculates else []
    legend = "; ".join(f"{short}: {described(record, name)[0]}" for short, name in terms)
    if speculates:
        is_open = bool(prediction.scenario["load"].get("request_rate"))
        legend = f"{_SPEEDUP[is_open]}; {legend}"
    lines += _painted(screen, wrapped(screen, legend), "faint")
    for point in points:
        if point.note:
            lines += wrapped(screen, f"at {exact(load_of(point))}: {point.note}")
    return lines


def _choices(screen: Screen, prediction: Prediction) -> list[str]:
    """Best number of draft tokens and break-even acceptance by load."""
    break_even = {b.load: b for b in prediction.break_even}
    best = {b.load: b for b in prediction.best_k}
    loads = sorted({*break_even, *best})
    if not loads:
        return []
    key = column(_load_title(prediction.scenario), ("",), loads, exact)
    columns = [
        column(
            "best k", ("k", "speedup"), loads,
            lambda load: str(best[load].k) if load in best else MISSING,
            lambda load: _gain(best[load].speedup if load in best else None),
        ),
        column(
            "break-even acceptance", ("length", "rate", "draft rate"), loads,
            lambda load: _needed(break_even.get(load), "acceptance_length"),
            lambda load: _needed(break_even.get(load), "acceptance_rate"),
            lambda load: _needed(break_even.get(load), "draft_acceptance_rate"),
        ),
    ]  # fmt: skip
    lines = [screen.paint("BEST k AND BREAK-EVEN", "strong"), *table(screen, key, columns)]
    t = prediction.transition
    if t.tokens is not None:
        lines += wrapped(
            screen,
            f"A pass of the target turns from memory- to compute-bound at about "
            f"{count(t.tokens)} tokens; it is 10 % slower than one token's at "
            f"{count(t.slowdown_10pct_tokens)}, 50 % at "
            f"{count(t.slowdown_50pct_tokens)}.",
        )
    return lines


def _basis(screen: Screen, prediction: Prediction, search: Sequence[Path]) -> list[str]:
    """List what the figures rest on: constants by basis, the price, the engine's defaults."""
    p = prediction.provenance
    rests: list[tuple[str, str]] = []
    for basis in _BASES:
        names = [
            name
            for name, block in p.get("constants", {}).items()
            if block["basis"] == basis and block.get("used", True)
        ]
        lender = f" (borrowed from {p['borrowed_from']})" if p.get("borrowed_from") else ""
        if names:
            text = f"constants of {p['hardware']}: {', '.join(sorted(names))}"
            rests.append((basis, text + (lender if basis == "assumed" else "")))
    if "engine" in p:
        engine = p["engine"]
        rests.append((engine["basis"], f"host times of {engine['name']} {engine['version']}"))
    rests.sort(key=lambda entry: _BASES.index(entry[0]))
    entries = [f"[{basis}] {text}" for basis, text in rests]
    fitted = p.get("calibration")
    if fitted:
        told = ", ".join(fitted["fitted"]) or "nothing"
        error = fitted["left_out_speedup_pct"]
        said = "" if error is None else f"; median error of speedups it did not see {error:.1f} %"
        wide = ", widened outside its scope" if fitted["widened"] else ""
        entries.insert(
            0, f"[calibrated] {told}: {fitted['runs']} runs of {fitted['created']}{said}{wide}"
        )
    if "model" in p:
        entries.append(f"model, confidence {p['model']['confidence']}: {p['model']['source']}")
    if p.get("price"):
        entries.append(
            f"price: ${p['price']['usd_per_gpu_hour']:.2f} per GPU and hour "
            f"({p['price']['source']}); $/Mtok out charges all of it to output tokens"
        )
    if "band" in p and prediction.acceptance is not None:
        entries.append(f"intervals: {p['band']}")
    defaults = [text for text in prediction.defaults if not text.startswith(_GUESSED)]
    if defaults:
        entries.append(f"other defaults: {'; '.join(defaults)}")
    lines = notes(screen, "BASED ON", entries)
    if "hardware" in p:
        shown = [p["hardware"]]
        shown += [f"{p['engine']['name']}@{p['engine']['version']}"] if "engine" in p else []
        where = "".join(f" --catalog {path}" for path in search)
        told = " and ".join(f"specsim profiles show {name}{where}" for name in shown)
        lines += _painted(screen, wrapped(screen, f"sources: {told}", first="    "), "faint")
    return lines


def _load_title(scenario: dict[str, Any]) -> str:
    return "req/s" if scenario["load"].get("request_rate") else "load"


def _value(arm: BaselinePoint | SpeculativePoint | None, name: str) -> str:
    value = getattr(arm, name) if arm is not None else None
    if arm is not None and name == "batch":
        return _batch(arm)
    return value if isinstance(value, str) else figure(value)


def _batch(arm: BaselinePoint | SpeculativePoint) -> str:
    if arm.limited_by == "kv":
        return whole(arm.batch)
    return exact(arm.batch) if arm.batch == round(arm.batch) else figure(arm.batch)


def _both(title: str, points: Sequence[Point], name: str) -> Column:
    return column(
        title, ("off", "on"), points,
        lambda p: _value(p.baseline, name), lambda p: _value(p.speculative, name),
    )  # fmt: skip


def _off(both: Column) -> Column:
    return Column(both.title, ("off",), [row[:1] for row in both.rows])


def _gain(speedup: float | None) -> Cell:
    if speedup is None:
        return Cell(MISSING)
    won, lost = speedup > NEUTRAL_HIGH, speedup < NEUTRAL_LOW
    role: Role = "bad" if lost else "good" if won else "neutral"
    return Cell(f"{speedup:.2f}×", role)


def _speedup(point: Point) -> Cell:
    return _gain(point.speedup)


def _interval(point: Point) -> str:
    if point.speedup_low is None or point.speedup_high is None:
        return MISSING
    return f"{point.speedup_low:.2f}–{point.speedup_high:.2f}"


def _needed(entry: BreakEven | None, name: str) -> str:
    if entry is None:
        return MISSING
    value = getattr(entry, name)
    if value is None:
        return "none"
    return figure(value) if name == "acceptance_length" else f"{value:.2f}"


def _painted(screen: Screen, lines: list[str], role: Role) -> list[str]:
    return [screen.paint(line, role) for line in lines]
