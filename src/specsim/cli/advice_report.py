"""Advice as text: what to do first, then the three questions and what each option does."""

from __future__ import annotations

import json
import math

from specsim.analysis.advise.questions import determinism
from specsim.cli.words import heading, joined, loads_in, notes, titled, wrapped
from specsim.export.tables import Cell, Column, column, figure, table
from specsim.export.terminal import Role, Screen
from specsim.schema.advice import (
    AcceptanceCheck,
    Action,
    Advice,
    OptionKind,
    OptionResult,
    ScenarioAdvice,
    Side,
)
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW

_DO: dict[OptionKind, str] = {
    "off": "SWITCH IT OFF", "on": "LEAVE IT ON", "cap": "DRAFT FEWER TOKENS",
    "schedule": "SET K BY BATCH", "route": "ROUTE BY LOAD",
}  # fmt: skip
_SIZE_FIRST = "SIZE THE FLEET FIRST"
_ROLES: dict[OptionKind, Role] = {"on": "good", "off": "bad"}
_GOOD: dict[bool, Role] = {True: "good", False: "bad"}
_SIDES: dict[Side, str] = {
    "below": "BELOW THE CROSSOVER", "inside": "TOO CLOSE TO CALL", "above": "ABOVE THE CROSSOVER",
}  # fmt: skip
_RULE = (
    "good: at p99 time per token and first token no worse than off's by more than 5 % (a first "
    "token up to 0.2 s later does not count); of those the best mean time per token, within 5 % "
    "the simplest"
)
_RULE_SLO = "good: meets the SLO; of those the best mean time per token, within 5 % the simplest"


def report(screen: Screen, answer: Advice) -> list[str]:
    """Return the lines of the report."""
    sections = [titled(screen, "TOGETHER", answer.together)] if answer.together else []
    for one in answer.scenarios:
        sections += _scenario(screen, answer, one)
    return joined(sections)


def _scenario(screen: Screen, answer: Advice, one: ScenarioAdvice) -> list[list[str]]:
    head = [screen.paint(f"{'═' if screen.unicode else '='} {one.name}", "strong")]
    return [
        [*head, *heading(screen, one.scenario, one.provenance)],
        _do(screen, one),
        _questions(screen, one),
        _options(screen, answer, one),
        _tail(screen, one),
        notes(screen, "LOOK AT FIRST", one.lints, role="neutral"),
    ]


def _do(screen: Screen, one: ScenarioAdvice) -> list[str]:
    action = one.action
    word = _SIZE_FIRST if action.size_first else _DO[action.decision]
    lines = titled(screen, "DO", f"{word}: {action.reason}")
    role = "bad" if action.size_first else _ROLES.get(action.decision, "neutral")
    lines[0] = lines[0].replace(word, screen.paint(word, role), 1)
    if action.size_first:
        return lines  # no setting to paste: none will do
    if action.speculative_config is not None:
        # On one line, however long: it is there to be pasted.
        lines.append(f"    --speculative-config '{json.dumps(action.speculative_config)}'")
        drafter = str(action.speculative_config.get("model", "/"))
        if "/" not in drafter:
            text = f"model: put the path or Hugging Face id of {drafter} there"
            lines += [screen.paint(line, "faint") for line in wrapped(screen, text, first="    ")]
    if action.route_above is not None:
        lines += wrapped(
            screen,
            f"on the on replicas; from {figure(action.route_above, 2)} requests in one of them on, "
            "new ones go to replicas without the flag",
        )
    return lines


def _questions(screen: Screen, one: ScenarioAdvice) -> list[str]:
    side = _SIDES[one.peak.side]
    lines = titled(screen, "1 PEAK", f"{side}: {one.peak.sentence}")
    role: Role = "neutral" if one.peak.side == "inside" else "good" if one.peak.pays else "bad"
    lines[0] = lines[0].replace(side, screen.paint(side, role), 1)
    lines += titled(screen, "2 DETERMINISM", determinism(one.acceptance.temperature))
    lines += titled(screen, "3 ACCEPTANCE", f"{one.acceptance.sentence}. {_known(one.acceptance)}")
    return lines


def _known(acceptance: AcceptanceCheck) -> str:
    if acceptance.basis == "counted":
        return f"The figure is {acceptance.source}"
    what = acceptance.source if acceptance.basis == "given" else f"from {acceptance.source}"
    return f"The figure is {what}: a guess until you count {acceptance.measure}"


def _options(screen: Screen, answer: Advice, one: ScenarioAdvice) -> list[str]:
    rows = one.options
    held = "p99" if answer.slo is None else "SLO"
    key = column("option", ("",), rows, lambda o: o.name, left=True)
    columns = [
        *(_latency(metric, rows) for metric in ("tpot", "ttft", "itl")),
        column("tok/s", ("",), rows, lambda o: figure(o.output_tok_s))
        if one.load["kind"] == "concurrency"
        else column("in batch", ("",), rows, lambda o: figure(o.running, 2)),
        column(held, ("",), rows, lambda o: _verdict(o, one.action)),
    ]
    # The verdict stays beside the figures that it comes from.
    columns = [columns[0], columns[1], columns[-1], *columns[2:-1]]
    load = one.load
    unit = "concurrent requests" if load["kind"] == "concurrency" else "requests/s"
    sent = (
        f"{loads_in(load['value'], unit)}, {loads_in(load['requests_measured'], 'requests')}, "
        f"{load['replications']} times over, the same for all (seed {answer.seed})"
    )
    lines = [screen.paint("OPTIONS", "strong") + f"  {sent}", *table(screen, key, columns)]
    legend = [
        "TPOT: time per output token; TTFT: time to first token, waiting included; ITL: gap "
        "between streamed chunks, which hold more tokens with speculation; ×: against off, below 1 "
        "is faster",
        _RULE if answer.slo is None else _RULE_SLO,
    ]
    for option in rows:
        if option.schedule is not None:
            tiers = json.dumps(option.schedule)
            legend.append(f'{option.name}: "num_speculative_tokens_per_batch_size": {tiers}')
    if any(o.replicas > 1 for o in rows):
        legend.append("routed: two replicas share twice the load, held against two without")
    for text in legend:
        lines += [screen.paint(line, "faint") for line in wrapped(screen, text)]
    return lines


def _latency(metric: str, rows: tuple[OptionResult, ...]) -> Column:
    return column(
        f"{metric.upper()} ms",
        ("mean", "×", "p99", "×"),
        rows,
        lambda o: figure(getattr(o, f"{metric}_ms").mean),
        lambda o: _ratio(o, metric, "mean"),
        lambda o: figure(getattr(o, f"{metric}_ms").p99),
        lambda o: _ratio(o, metric, "p99"),
    )


def _ratio(option: OptionResult, metric: str, statistic: str) -> Cell:
    value = option.to_off[metric][statistic]
    if option.kind == "off" or not math.isfinite(value):
        return Cell("")
    role: Role = "bad" if value > NEUTRAL_HIGH else "good" if value < NEUTRAL_LOW else "neutral"
    return Cell(f"{value:.2f}", role)


def _tail(screen: Screen, one: ScenarioAdvice) -> list[str]:
    if not one.action.tail:
        return []
    given = next(o for o in one.options if o.kind == "on")
    return titled(
        screen,
        "BETTER ON AVERAGE, WORSE AT P99",
        f"{given.name}: {one.action.tail}",
    )


def _verdict(option: OptionResult, action: Action) -> Cell:
    taken = (option.kind, option.k, option.replicas) == (
        action.decision,
        action.k,
        2 if action.decision == "route" else 1,
    )
    taken = taken and not action.size_first
    return Cell("TAKE" if taken else "good" if option.meets else "bad", _GOOD[option.meets])
