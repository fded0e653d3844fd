"""The drawn parts of a report: speedup over load and acceptance, memory, the time of a step."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.cli.words import (
    circle,
    crossover_in_words,
    gib,
    load_of,
    two_digits,
    unit_of_load,
    whole,
    wrapped,
)
from specsim.export.tables import Column, column, described, exact, figure, table
from specsim.export.terminal import FILLS, Curve, Plot, Screen, stacked_bar
from specsim.schema.results import (
    BaselinePoint,
    Crossover,
    KvArm,
    KvResult,
    Point,
    Prediction,
    SpeculativePoint,
)

_BAR, _BAR_WIDEST = 32, 72
_LEAST_SHARE = 0.005
"""Parts of a step below this are not shown."""
_MEMORY = "█▓▒░·"
"""Fills of the memory bars: what is not used is nearly empty."""


def crossover(screen: Screen, found: Crossover, points: Sequence[Point], unit: str) -> list[str]:
    """Return where speculation stops paying, in words and drawn over load."""
    lines = [screen.paint("CROSSOVER", "strong"), *wrapped(screen, crossover_in_words(found, unit))]
    known = [point for point in points if point.speedup is not None]
    if len(known) < 2:
        return lines
    loads = [load_of(point) for point in known]
    curve = Curve(
        x=loads,
        y=[point.speedup or 0.0 for point in known],
        low=[_or(point.speedup_low, point.speedup) for point in known],
        high=[_or(point.speedup_high, point.speedup) for point in known],
        dots=True,
    )
    mark = span = None
    if found.load is not None:
        mark = (found.load, f"crossover {two_digits(found.load)}")
        span = (_or(found.low, found.searched[0] / 2), _or(found.high, found.searched[1] * 2))
    plot = Plot(
        curves=[curve],
        x_title=f"speedup over {unit}; shaded: 80 % interval",
        log_x=True,
        x_ticks=loads,
        mark=mark,
        mark_span=span,
    )
    return [*lines, "", *plot.draw(screen)]


def acceptance_curve(screen: Screen, prediction: Prediction) -> list[str]:
    """Return speedup over acceptance, a line each for the first, median and last load."""
    curve, loads = prediction.acceptance_curve, [load_of(p) for p in prediction.points]
    if prediction.acceptance is None or len(curve) < 2 or not loads:
        return []
    chosen = {"first": loads[0], "median": loads[len(loads) // 2], "last": loads[-1]}
    curves: list[Curve] = []
    for name, load in chosen.items():
        known = [p for p in curve if getattr(p, name) is not None]
        if len(known) > 1 and load not in [chosen[c] for c in list(chosen)[: len(curves)]]:
            curves.append(
                Curve(
                    x=[p.draft_acceptance_rate for p in known],
                    y=[getattr(p, name) for p in known],
                    name=f"at {exact(load)}",
                )
            )
    if not curves:
        return []
    own = prediction.acceptance.draft_acceptance_rate
    plot = Plot(
        curves=curves,
        x_title=f"speedup over draft acceptance rate, by {unit_of_load(prediction.scenario)}",
        x_ticks=(0, 0.2, 0.4, 0.6, 0.8, 1),
        mark=(own, f"here {figure(own, 2)}"),
        max_rows=11,
    )
    return [screen.paint("WHAT ACCEPTANCE IS WORTH", "strong"), *plot.draw(screen)]


def memory(
    screen: Screen, kv: KvResult, points: Sequence[Point] = (), found: Crossover | None = None, *,
    speculates: bool = True,
) -> list[str]:  # fmt: skip
    """Return the memory of both arms as bars, and what the drafter takes from the cache."""
    usable = kv.memory_usable_gib
    rows = [("off", kv.baseline), ("on", kv.speculative)][: 2 if speculates else 1]
    said = [f"{arm.kv_tokens:,} tokens, {whole(arm.max_concurrency)} requests" for _, arm in rows]
    width = min(screen.width - 8 - max(map(len, said)), _BAR_WIDEST)
    lines = [
        screen.paint("MEMORY", "strong")
        + f"  {figure(kv.memory_nameplate_gb)} GB nameplate, {figure(usable)} GiB usable"
    ]
    for (name, arm), text in zip(rows, said, strict=True):
        own = arm.weights_gib - arm.drafter_weights_gib
        parts = [own, arm.drafter_weights_gib, arm.kv_gib, arm.other_gib]
        parts.append(max(usable - sum(parts), 0.0))
        lines.append(f"  {name:<4}{stacked_bar(parts, width=width, fills=_MEMORY)}  {text}")
    names = ("weights", "drafter", "KV cache", "activations, graphs", "not used")
    shown = [i for i, name in enumerate(names) if speculates or name != "drafter"]
    lines.append("      " + "  ".join(f"{_MEMORY[i]} {names[i]}" for i in shown))
    columns = [
        _kv_column(rows, name, title)
        for name, title in (
            ("weights_gib", "weights"), ("drafter_weights_gib", "drafter"), ("kv_gib", "KV cache"),
            ("other_gib", "other"), ("kv_gb_nameplate", "cache, nameplate"),
        )
    ]  # fmt: skip
    columns.append(
        column("bytes/token/GPU", ("",), rows, lambda row: f"{row[1].bytes_per_token:,.0f}")
    )
    key = column("", ("",), rows, lambda row: row[0], left=True)
    lines += ["", *table(screen, key, columns)]
    return [*lines, "", *wrapped(screen, circle(kv, points, found))] if speculates else lines


def step(screen: Screen, prediction: Prediction) -> list[str]:
    """Where a step's time goes in both arms, at the first, the median and the last load."""
    points = [p for p in prediction.points if _arms(p)]
    if not points:
        return []
    chosen = [points[i] for i in sorted({0, len(points) // 2, len(points) - 1})]
    drawn = [arm for point in chosen for _, arm in _arms(point)]
    causes = [
        cause
        for cause in dict.fromkeys(cause for arm in drawn for cause in arm.parts_ms)
        if any(arm.parts_ms.get(cause, 0.0) >= _LEAST_SHARE * arm.step_ms for arm in drawn)
    ]
    lines = [screen.paint("WHERE A STEP GOES", "strong")]
    for point in chosen:
        arms = _arms(point)
        longest = max(arm.step_ms for _, arm in arms)
        label = f"at {exact(load_of(point))}"
        for name, arm in arms:
            parts = [arm.parts_ms.get(cause, 0.0) / arm.step_ms for cause in causes]
            parts = [part if part >= _LEAST_SHARE else 0.0 for part in parts]
            width = max(round(_BAR * arm.step_ms / longest), 1)
            shares = ", ".join(
                f"{cause} {part:.0%}" for cause, part in zip(causes, parts, strict=True) if part
            )
            bar = f"{stacked_bar(parts, width=width):<{_BAR}}"
            lines += _hanging(
                screen, f"  {label:<10}{name:<4}{figure(arm.step_ms):>7} ms  {bar}  ", shares
            )
            label = ""
            if isinstance(arm, SpeculativePoint):
                parts_on = (
                    f"draft {figure(arm.draft_ms, 2)} + verify {figure(arm.verify_ms, 2)} "
                    f"+ host {figure(arm.host_ms, 2)} ms"
                )
                lines.append(f"  {'':<10}{'':<4}{'':>7}     {parts_on}")
    lines.append(
        "  " + "  ".join(f"{FILLS[i % len(FILLS)]} {cause}" for i, cause in enumerate(causes))
    )
    return lines


def _kv_column(rows: Sequence[tuple[str, KvArm]], name: str, title: str) -> Column:
    unit = described(KvArm, name)[1]
    return column(f"{title} {unit}", ("",), rows, lambda row: gib(getattr(row[1], name)))


def _arms(point: Point) -> list[tuple[str, BaselinePoint | SpeculativePoint]]:
    arms = (("off", point.baseline), ("on", point.speculative))
    return [(name, arm) for name, arm in arms if arm is not None]


def _or(value: float | None, other: float | None) -> float:
    return value if value is not None else other if other is not None else 0.0


def _hanging(screen: Screen, lead: str, text: str) -> list[str]:
    if len(lead) + len(text) <= screen.width:
        return [lead + text]
    return [lead.rstrip(), *wrapped(screen, text, first=" " * 28)]
