"""`--vary KEY=VALUES`: the axes of a grid of scenarios, spelled as the flags are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from specsim.catalog.scenario import ACCEPTANCE_FORMS, LOADS
from specsim.catalog.yaml_text import load_value
from specsim.cli.options import OPTIONS, UNDER_LOAD, keys_given
from specsim.cli.parameters import INPUT, Option
from specsim.errors import InputError, UsageError, nearest
from specsim.schema.grid import scenario_keys
from specsim.schema.scenario import LEAST_RATE, MOST_CONCURRENCY, MOST_RATE, RATES

MAX_VALUES = 10_000_000
"""Most values of one axis."""

_SHORT = {
    "tp": "hardware.tensor_parallel_size",
    "pp": "hardware.pipeline_parallel_size",
    "k": "speculation.num_speculative_tokens",
    "drafter": "speculation.drafter",
    "method": "speculation.method",
    "spec-method": "speculation.method",
    "concurrency": "load.concurrency",
    "dtype": "target.weight_dtype",
    "weight-dtype": "target.weight_dtype",
    "kv-cache-dtype": "target.kv_dtype",
}
KEYS: dict[str, str] = {
    **{o.opts[0].removeprefix("--"): o.key for o in (*OPTIONS, *UNDER_LOAD) if o.key},
    **_SHORT,
}
"""Scenario keys by the names of the flags that set them."""

_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
_NAMES = frozenset({"name", "version", "model", "accelerator", "drafter", "profile"})
"""Keys whose values are names, whatever they look like."""
_BOUNDS = {
    "load.concurrency": (1, MOST_CONCURRENCY, f"1 to {MOST_CONCURRENCY:,}"),
    "load.request_rate": (LEAST_RATE, MOST_RATE, f"{RATES} requests/s"),
}

vary_option = click.option(
    "--vary", cls=Option, section=INPUT, multiple=True, metavar="KEY=VALUES",
    help="An axis: a key of the scenario or the name of its flag, and a,b,c or 1:256:x2 or "
    "0.1:0.9:0.05 (repeatable).",
)  # fmt: skip


def parse_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each axis by dotted scenario key, in the order given.

    Raises
    ------
    UsageError, InputError
        An unknown key, no values, a range without end, or axes that exclude each other.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name.strip() and equals):
            raise UsageError(f"--vary {text!r}: expected KEY=VALUES, such as tp=1,2,4")
        key = _key(name.strip())
        if key in axes:
            raise UsageError(f"--vary {name.strip()}: {key} is varied twice; give one list")
        axes[key] = _values(name.strip(), values.strip(), key)
        _refuse_loads(name.strip(), key, axes[key])
    _refuse_exclusive(axes)
    return axes


def refuse_given_twice(axes: Mapping[str, Any]) -> None:
    """Refuse a flag with a load or an acceptance beside an axis of it: which counts is not said.

    Other flags give what an axis then varies, and what a figure was measured at.
    """
    given = keys_given()
    for prefix, kinds in (("load", LOADS), ("speculation.acceptance", ACCEPTANCE_FORMS)):
        keys = [f"{prefix}.{kind}" for kind in kinds]
        axis = next((key for key in keys if key in axes), None)
        flag = next((given[key] for key in keys if key in given), None)
        if axis is not None and flag is not None:
            raise UsageError(f"{flag} together with --vary {axis}: give one of them")


def beside_axes(axes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which flags have no effect, since an axis gives the same key other values.

    What says how to speculate is not without effect: a figure was measured at it. And what has to
    be given where there is no file is given.
    """
    given, params = keys_given(), click.get_current_context().params
    needed = set()
    if params["scenario"] is None:
        needed = {"hardware.accelerator"} | ({"target.model"} if params["model"] else set())
    return tuple(
        f"{given[key]} has no effect beside --vary {key}"
        for key in axes
        if key in given and key not in needed and not key.startswith("speculation.")
    )


def _key(name: str) -> str:
    key = KEYS.get(name, name)
    if key in scenario_keys():
        return key
    inside = [k for k in scenario_keys() if k.startswith(f"{name}.")]
    if inside:
        raise UsageError(
            f"--vary {name}: is a group of keys; vary one of them, such as {inside[0]}"
        )
    close = nearest(name, {*KEYS, *scenario_keys()})
    hint = f"nearest: {', '.join(close)}" if close else "see docs/scenario.md"
    raise UsageError(f"--vary {name}: no such key of a scenario; {hint}")


def _refuse_loads(name: str, key: str, values: Sequence[Any]) -> None:
    """Refuse loads that no scenario may have; what is no number is told by who reads the axis."""
    if key not in _BOUNDS:
        return
    low, high, words = _BOUNDS[key]
    for value in values:
        if isinstance(value, int | float) and not low <= value <= high:
            raise UsageError(f"--vary {name}: got {value:g}; allowed: {words}")


def _values(name: str, text: str, key: str) -> tuple[Any, ...]:
    if not text:
        raise UsageError(f"--vary {name}=: no values; give a list such as 1,2,4")
    found: list[Any] = []
    for part in _parts(text):
        ends = part.split(":")
        is_range = len(ends) == 3 and not any(c in part for c in "[{/\\")
        if len(ends) == 2 and all(map(_is_number, ends)):
            raise UsageError(
                f"--vary {name}={part}: a range needs a step, such as {part}:1 or {part}:x2"
            )
        found += _range(name, ends) if is_range else [_typed(name, part, key)]
        if len(found) > MAX_VALUES:
            raise UsageError(f"--vary {name}: more than {MAX_VALUES:,} values; use larger steps")
    if len(_parts(text)) > 1 and len({repr(value) for value in found}) < len(found):
        raise UsageError(f"--vary {name}={text}: a value is there twice")
    return tuple(found)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parts(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def _typed(name: str, text: str, key: str) -> Any:
    if not text:
        raise UsageError(f"--vary {name}: an empty value; write none without commas beside it")
    # YAML takes an exponent for text; so do names.
    if _EXPONENT.fullmatch(text) and key.rpartition(".")[2] not in _NAMES:
        return float(text)
    return load_value(key, text, what=f"--vary {name}")


def _range(name: str, ends: Sequence[str]) -> list[float | int]:
    """Return first..last, by a step or, with x before it, by a factor; the end is included."""
    times = ends[2].startswith("x")
    try:
        first, last, step = float(ends[0]), float(ends[1]), float(ends[2].removeprefix("x"))
    except ValueError:
        raise InputError(
            f"--vary {name}={':'.join(ends)}: expected numbers, FIRST:LAST:STEP or "
            "FIRST:LAST:xFACTOR"
        ) from None
    moves = step > 1 and first > 0 if times else step > 0
    if not (all(map(math.isfinite, (first, last, step))) and moves and last >= first):
        raise UsageError(
            f"--vary {name}={':'.join(ends)}: never reaches its end; a step must be above 0, a "
            "factor above 1 and the first value not above the last"
        )
    if times:
        n = math.floor(math.log(last / first) / math.log(step) + 1e-9) + 1
    else:
        n = math.floor((last - first) / step + 1e-9) + 1
    if n > MAX_VALUES:
        raise UsageError(f"--vary {name}: {n:,} values, at most {MAX_VALUES:,}; use larger steps")
    values = (first * step**i if times else first + i * step for i in range(n))
    rounded = [float(f"{value:.12g}") for value in values]
    whole = all("." not in end and "e" not in end.lower() for end in ends)
    return [int(v) if whole and v == int(v) else v for v in rounded]


def _refuse_exclusive(axes: dict[str, tuple[Any, ...]]) -> None:
    for group, words in (
        ([f"load.{kind}" for kind in LOADS], "a load has one kind"),
        ([f"speculation.acceptance.{form}" for form in ACCEPTANCE_FORMS], "acceptance one form"),
    ):
        both = [key for key in group if key in axes]
        if len(both) > 1:
            raise UsageError(f"--vary {' and '.join(both)}: {words}; vary one of them")
