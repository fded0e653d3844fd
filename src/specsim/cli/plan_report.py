"""A plan as text: what to take first, then the ranking, what was rejected, what was assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specsim.cli.words import joined, loads_in, notes, titled, wrapped
from specsim.export.tables import MISSING, Cell, column, exact, figure, table
from specsim.export.terminal import Role, Screen
from specsim.schema.plan import Candidate, Plan
from specsim.schema.slo import Slo

_SHOWN = 30
"""Rows of the ranking; the rest is in the JSON."""
_TERMS = (
    "at SLO: largest load of one replica at which the promise is kept, and what forbids more; "
    "replicas: peak / (load at SLO × target utilization), and the spares; $/Mtok out: output "
    "tokens at the month's load (idle hours are paid too) and at the peak; used: load / load at "
    "SLO, one down: at the peak with one replica less; p95 at peak: with all replicas; kW: rated "
    "power of the devices, an upper bound"
)
_OF_THE_TRAFFIC = ("peak_to_avg", "growth_", "target_", "spares", "hours_", "slo", "the fleet")
"""How defaults begin that stand for what only the user knows; the others are the engine's."""
_GUESSED = (*_OF_THE_TRAFFIC, "workload.", "speculation.", "hardware.")


def report(screen: Screen, plan: Plan) -> list[str]:
    """Return the lines of the report."""
    accepted = [c for c in plan.candidates if c.rejected_because is None]
    guessed = [text for text in plan.defaults if text.startswith(_GUESSED)]
    sections = [
        _heading(screen, plan),
        _verdict(screen, plan),
        _one_down(screen, plan),
        _ranking(screen, accepted),
        notes(screen, "REJECTED", _rejected(plan)),
        titled(screen, "ASSUMED FOR YOU", "; ".join(guessed)) if guessed else [],
        notes(screen, "BASED ON", _basis(plan, accepted)),
        notes(screen, "WARNINGS", plan.warnings, role="neutral"),
    ]
    return joined(sections)


def _heading(screen: Screen, plan: Plan) -> list[str]:
    traffic, workload = plan.traffic, plan.workload
    rates = (
        f"{figure(traffic['avg_rate'])} requests/s on average, {figure(traffic['peak_rate'])} at "
        f"the peak"
    )
    lengths = " · ".join(
        f"{exact(workload[key])} tokens {word}"
        + (f" (p95 {exact(workload[f'{key}_p95'])})" if workload.get(f"{key}_p95") else "")
        for key, word in (("input_tokens", "in"), ("output_tokens", "out"))
    )
    first = wrapped(screen, f"{rates} · {lengths}", first="")
    return [
        *(screen.paint(line, "strong") for line in first),
        *wrapped(
            screen, " · ".join(_promises(plan)) or "no promise: what a replica sustains", first=""
        ),
    ]


def _promises(plan: Plan) -> Iterator[str]:
    for t in plan.slo["targets"]:
        yield f"{t['metric'].upper()} {t['statistic']} ≤ {exact(t['at_most_ms'])} ms"
    slo = Slo.model_validate(plan.slo)
    if slo.required_attainment_pct is not None:
        limits = slo.request_thresholds_ms.items()
        bounds = ", ".join(f"{metric.upper()} ≤ {exact(ms)} ms" for metric, ms in limits)
        yield f"{exact(slo.required_attainment_pct)} % of requests with {bounds}"


def _verdict(screen: Screen, plan: Plan) -> list[str]:
    title = "PLAN" if plan.best is not None else "NO PLAN"
    role: Role = "good" if plan.best is not None else "bad"
    lines = titled(screen, title, plan.verdict)
    return [
        lines[0].replace(screen.paint(title, "strong"), screen.paint(title, role), 1),
        *lines[1:],
    ]


def _one_down(screen: Screen, plan: Plan) -> list[str]:
    if plan.best is None:
        return []
    said = plan.candidates[plan.best.candidate].one_down or ""
    return titled(screen, "DEGRADED", said)


def _ranking(screen: Screen, accepted: Sequence[Candidate]) -> list[str]:
    if not accepted:
        return []
    rows = accepted[:_SHOWN]
    common = _common([c.deployment for c in rows])
    key = column("deployment", ("",), rows, lambda c: c.deployment.removeprefix(common), left=True)
    columns = [
        column("spec", ("",), rows, lambda c: "off" if c.arm == "baseline" else "on"),
        column(
            "at SLO", ("req/s", "limited by"), rows,
            lambda c: figure(c.load_at_slo), lambda c: c.binding,
        ),
        column("replicas", ("",), rows, lambda c: _whole(c.replicas)),
        column("GPUs", ("",), rows, lambda c: _whole(c.gpus)),
        column("$/month", ("",), rows, lambda c: _dollars(c.usd_per_month)),
        column(
            "$/Mtok out", ("average", "peak"), rows,
            lambda c: figure(c.usd_per_mtok_average), lambda c: figure(c.usd_per_mtok_peak),
        ),
        column(
            "used", ("average", "peak", "one down"), rows,
            lambda c: _share(c.utilization_average), lambda c: _share(c.utilization_peak),
            _one_down_share,
        ),
        column(
            "p95 at peak", ("TTFT ms", "TPOT ms"), rows,
            lambda c: figure(c.ttft_p95_ms), lambda c: figure(c.tpot_p95_ms),
        ),
        column("servers", ("",), rows, lambda c: _whole(c.servers)),
        column("kW", ("",), rows, lambda c: figure(c.power_kw)),
    ]  # fmt: skip
    title = f"CANDIDATES  {common}".rstrip()
    lines = [screen.paint(title, "strong"), *table(screen, key, columns)]
    if len(accepted) > _SHOWN:
        lines += wrapped(screen, f"and {len(accepted) - _SHOWN:,} more: see --json")
    return lines + [screen.paint(line, "faint") for line in wrapped(screen, _TERMS)]


def _common(names: Sequence[str]) -> str:
    """Return the words that all names begin with, if something is left of each without them."""
    split = [name.split(" ") for name in names]
    n = 0
    while all(len(words) > n + 1 and words[n] == split[0][n] for words in split):
        n += 1
    return "".join(f"{word} " for word in split[0][:n])


def _one_down_share(c: Candidate) -> Cell:
    if c.utilization_one_down is None:
        return Cell("none left", "bad")
    return Cell(_share(c.utilization_one_down), "plain" if c.one_down_ok else "bad")


def _whole(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _dollars(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"


def _rejected(plan: Plan) -> list[str]:
    """Give each reason once, behind all that it holds for."""
    names: dict[str, list[str]] = {}
    for c in plan.candidates:
        if c.rejected_because is not None:
            names.setdefault(c.rejected_because, []).append(c.name)
    said = [f"{'; '.join(held)}: {reason}" for reason, held in names.items()]
    if len(said) > _SHOWN:
        said = [*said[:_SHOWN], f"and {len(said) - _SHOWN:,} more reasons: see --json"]
    return said


def _basis(plan: Plan, accepted: Sequence[Candidate]) -> list[str]:
    test = plan.provenance["load_test"]
    simulations = sum(c.simulations for c in plan.candidates)
    entries = []
    if simulations:
        entries.append(
            f"{simulations:,} simulated load tests of one replica, "
            f"{loads_in(test['requests'], 'requests')} each, seed {test['seed']}; the load at the "
            f"SLO is found to {test['tolerance_pct']:g} %, its step times are those of `specsim "
            "predict`, without their interval"
        )
    for device, price in {c.accelerator: c.price for c in accepted}.items():
        if price is not None:
            dated = f", {price.as_of}" if price.as_of else ""
            entries.append(
                f"price of {device}: ${price.usd_per_gpu_hour:.2f} per GPU and hour{dated} "
                f"({price.source})"
            )
    others = [text for text in plan.defaults if not text.startswith(_GUESSED)]
    if others:
        entries.append(f"other defaults: {'; '.join(others)}")
    return entries
