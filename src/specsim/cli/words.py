"""Sentences and small pieces of a report: headings, notes, the crossover and the cache in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.export.tables import count, exact, figure
from specsim.export.terminal import Role, Screen
from specsim.schema.results import Crossover, KvResult, Point


def heading(
    screen: Screen, scenario: dict[str, Any], provenance: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the deployment, the way of speculating and the workload.

    Parameters
    ----------
    provenance : mapping, optional
        Of the prediction: the dtypes of linear weights and of routed experts, where they differ.
    """
    target, hardware, engine = scenario["target"], scenario["hardware"], scenario["engine"]
    speculation, workload = scenario["speculation"], scenario["workload"]
    tensor, stages = hardware["tensor_parallel_size"], hardware["pipeline_parallel_size"]
    parallel = [f"TP {tensor}"] if tensor > 1 else []
    parallel += [f"PP {stages}"] if stages > 1 else []
    parallel += ["EP"] if hardware.get("expert_parallel") else []
    deployment = [target["model"]]
    known = provenance or {}
    weight_dtype = known.get("weight_dtype", target.get("weight_dtype"))
    deployment += [dtypes(weight_dtype, known.get("expert_dtype"))] if weight_dtype else []
    deployment.append(
        f"{tensor * stages} × {hardware['accelerator']}"
        + (f" ({', '.join(parallel)})" if parallel else "")
    )
    deployment.append(" ".join(filter(None, (engine["name"], engine.get("version")))))
    way = [speculation["method"] if speculation["method"] != "none" else "no speculation"]
    if speculation.get("num_speculative_tokens"):
        way.append(f"k = {speculation['num_speculative_tokens']}")
    if speculation.get("drafter"):
        way.append(f"drafter {speculation['drafter']}")
    way.append(
        f"{exact(workload['input_tokens'])} tokens in, {exact(workload['output_tokens'])} out"
    )
    way.append(f"temperature {workload['temperature']:g}")
    first = wrapped(screen, " · ".join(deployment), first="")
    second = wrapped(screen, " · ".join(way), first="")
    return [*(screen.paint(line, "strong") for line in first), *second]


def notes(screen: Screen, title: str, entries: Sequence[str], *, role: Role = "plain") -> list[str]:
    """Return a list of sentences under a title, wrapped; nothing if there are none."""
    if not entries:
        return []
    lines = [screen.paint(title, "strong")]
    for entry in entries:
        lines += wrapped(screen, entry, first="  ! " if role == "neutral" else "  · ")
    return lines


def joined(sections: Sequence[list[str]]) -> list[str]:
    """Join the sections that have lines, an empty line between them."""
    lines: list[str] = []
    for section in filter(None, sections):
        lines += [*section, ""]
    return lines[:-1]


def crossover_in_words(found: Crossover, unit: str) -> str:
    """Say where speculation wins and where it stops paying."""
    searched = " to ".join(_end(end) for end in found.searched)
    if found.state == "always":
        text = f"Speculation wins at every load from {searched} {unit}"
        if found.low is None:
            return f"{text}."
        return f"{text}; at the low end of the 80 % interval up to {_crossing(found, found.low)}."
    if found.state == "never":
        text = f"Speculation wins at no load from {searched} {unit}"
        if found.high is None:
            return f"{text}."
        return f"{text}; at the high end of the 80 % interval up to {_crossing(found, found.high)}."
    wins = " and from ".join(_span(found, *interval) for interval in found.wins)
    text = f"Speculation wins from {wins} {unit} (searched: {searched})."
    if found.load is not None:
        text += f" It stops paying at about {_crossing(found, found.load)}"
        text += f" (batch {two_digits(found.batch)} with it off)" if found.batch else ""
        first, last = found.searched
        low = f"below {_end(first)}" if found.low is None else _crossing(found, found.low)
        high = f"above {_end(last)}" if found.high is None else _crossing(found, found.high)
        text += f"; 80 % interval: {low} to {high}." if low != high else "."
    return text


def _end(load: float) -> str:
    """Write an end of the search, which is whole or the largest stable rate."""
    return exact(load) if load == round(load) else figure(load)


def _crossing(found: Crossover, load: float, digits: int = 2) -> str:
    if load in found.searched:
        return _end(load)
    return two_digits(load) if digits == 2 else figure(load, digits)


def _span(found: Crossover, low: float, high: float) -> str:
    """Write an interval, with a third digit where two do not tell its ends apart."""
    for digits in (2, 3):
        ends = [_crossing(found, load, digits) for load in (low, high)]
        if ends[0] != ends[1]:
            break
    return " to ".join(dict.fromkeys(ends))


def circle(kv: KvResult, points: Sequence[Point], found: Crossover | None = None) -> str:
    """Say what the drafter's memory does to the requests in flight, and so to the crossover."""
    off, on = kv.baseline, kv.speculative
    if kv.lost_tokens <= 0:
        return "Nothing is lost: speculation takes no KV cache here."
    text = (
        f"The drafter's weights ({gib(on.drafter_weights_gib)} GiB) and its own keys and values "
        f"shrink the cache by {kv.lost_tokens:,} tokens ({kv.lost_fraction:.1%}), so "
        f"{whole(on.max_concurrency)} instead of {whole(off.max_concurrency)} requests of "
        "this workload fit"
    )
    capped = [p for p in points if p.speculative is not None and p.speculative.limited_by == "kv"]
    if not points:
        return text + "."
    if not capped:
        return text + "; no load shown reaches that."
    first = capped[0]
    assert first.speculative is not None
    batch = f" instead of {whole(first.baseline.batch)}" if first.baseline is not None else ""
    text += (
        f"; from {exact(load_of(first))} on that caps the batch, at "
        f"{whole(first.speculative.batch)}{batch}"
    )
    crosses = found is not None and found.load is not None
    return text + (", and so moves the crossover." if crosses else ".")


def unit_of_load(scenario: dict[str, Any]) -> str:
    """Return what a load counts: requests in the system, or arrivals."""
    return "requests/s" if scenario["load"].get("request_rate") else "concurrent requests"


def loads_in(load: float, unit: str) -> str:
    """Write a load with its unit: 1 concurrent request, 2.5 requests/s."""
    return f"{exact(load)} {unit.replace('requests', 'request') if load == 1 else unit}"


def load_of(point: Point) -> float:
    """Return the load of a point, in the unit of its scenario."""
    load = point.concurrency if point.concurrency is not None else point.request_rate
    assert load is not None
    return load


def wrapped(screen: Screen, text: str, *, first: str = "  ", rest: str | None = None) -> list[str]:
    """Break a sentence into lines of the screen, indented by `first` and then `rest`."""
    indent = rest if rest is not None else " " * len(first)
    return textwrap.wrap(
        text, screen.width - 2, initial_indent=first, subsequent_indent=indent,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def gib(value: float) -> str:
    """Write an amount of memory."""
    return figure(value) if value >= 0.1 or value == 0 else "<0.1"


def whole(requests: float) -> str:
    """Write how many requests fit: a part of one does not."""
    return f"{math.floor(requests + 1e-6):,}"


def dtypes(weights: str, experts: str | None) -> str:
    """Name the dtype of the weights, and that of routed experts where it differs.

    >>> dtypes("bf16", "mxfp4"), dtypes("fp8", None)
    ('bf16, mxfp4 experts', 'fp8')
    """
    return weights if experts in (None, weights) else f"{weights}, {experts} experts"


def two_digits(value: float) -> str:
    """Write a crossing with the two digits that its interval supports; 1 stays 1."""
    return count(value) if value < 10 and value == round(value) else figure(value, 2)


def titled(screen: Screen, title: str, text: str) -> list[str]:
    """Return a title and the sentence that begins on its line."""
    first, *rest = wrapped(screen, text, first=f"{title}  ", rest="  ")
    return [screen.paint(title, "strong") + first.removeprefix(title), *rest]
