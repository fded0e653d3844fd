"""Sentences and small pieces of a report: headings, notes, the crossover and the cache in words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from specsim.export.tables import count, figure
from specsim.export.terminal import Role, Screen
from specsim.schema.results import Crossover, KvResult, Point


def heading(screen: Screen, scenario: dict[str, Any]) -> list[str]:
    """Return the deployment, the way of speculating and the workload."""
    target, hardware, engine = scenario["target"], scenario["hardware"], scenario["engine"]
    speculation, workload = scenario["speculation"], scenario["workload"]
    tensor, stages = hardware["tensor_parallel_size"], hardware["pipeline_parallel_size"]
    parallel = [f"TP {tensor}"] if tensor > 1 else []
    parallel += [f"PP {stages}"] if stages > 1 else []
    parallel += ["EP"] if hardware.get("expert_parallel") else []
    deployment = [target["model"]]
    deployment += [target["weight_dtype"]] if target.get("weight_dtype") else []
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
        f"{count(workload['input_tokens'])} tokens in, {count(workload['output_tokens'])} out"
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
    searched = f"{count(found.searched[0])} to {count(found.searched[1])} {unit}"
    if found.state == "always":
        return f"Speculation wins at every load from {searched}."
    if found.state == "never":
        return f"Speculation wins at no load from {searched}."
    first, last = (two_digits(end) for end in found.searched)
    wins = " and from ".join(f"{two_digits(a)} to {two_digits(b)}" for a, b in found.wins)
    text = f"Speculation wins from {wins} {unit} (searched: {searched})."
    if found.load is not None:
        text += f" It stops paying at about {two_digits(found.load)}"
        text += f" (batch {two_digits(found.batch)} with it off)" if found.batch else ""
        low = f"below {first}" if found.low is None else two_digits(found.low)
        high = f"above {last}" if found.high is None else two_digits(found.high)
        text += f"; 80 % interval: {low} to {high}."
    return text


def circle(kv: KvResult, points: Sequence[Point]) -> str:
    """Say what the drafter's memory does to the requests in flight."""
    off, on = kv.baseline, kv.speculative
    if kv.lost_tokens <= 0:
        return "Nothing is lost: speculation takes no KV cache here."
    text = (
        f"The drafter's weights ({gib(on.drafter_weights_gib)} GiB) and its own keys and values "
        f"shrink the cache by {kv.lost_tokens:,} tokens ({kv.lost_fraction:.1%}), so "
        f"{figure(on.max_concurrency)} instead of {figure(off.max_concurrency)} requests of "
        "this workload fit"
    )
    capped = [p for p in points if p.speculative is not None and p.speculative.limited_by == "kv"]
    if capped:
        first = capped[0]
        assert first.speculative is not None
        arm = first.baseline
        batch = f" instead of {count(arm.batch)}" if arm is not None else ""
        text += (
            f"; from {count(load_of(first))} on that caps the batch, at "
            f"{count(first.speculative.batch)}{batch}, and so moves the crossover."
        )
    elif points:
        text += "; no load shown reaches that."
    else:
        text += "."
    return text


def unit_of_load(scenario: dict[str, Any]) -> str:
    """Return what a load counts: requests in the system, or arrivals."""
    return "requests/s" if scenario["load"].get("request_rate") else "concurrent requests"


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


def two_digits(value: float) -> str:
    """Write a crossing with the two digits that its interval supports; 1 stays 1."""
    return count(value) if value < 10 and value == round(value) else figure(value, 2)


def titled(screen: Screen, title: str, text: str) -> list[str]:
    """Return a title and the sentence that begins on its line."""
    first, *rest = wrapped(screen, text, first=f"{title}  ", rest="  ")
    return [screen.paint(title, "strong") + first.removeprefix(title), *rest]
