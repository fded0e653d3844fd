"""The command lines of serving engines: which flags exist, and reading them.

Words -> flags by name. How a pasted text becomes words is in `serve_shell`, and what the flags
mean in `serve_vllm` and `serve_sglang`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from specsim.catalog.files import data_dir, read_shipped
from specsim.errors import UsageError, nearest

FlagValue = str | bool | list[str] | dict[str, Any]

_SUFFIXES = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
}  # fmt: skip
_QUANTISED = re.compile(
    r"fp8|fp4|awq|gptq|int4|int8|w4a16|w8a8|w8a16|bnb|4bit|8bit|gguf|gpt-oss|deepseek-(v3|r1|v4)",
    re.IGNORECASE,
)
"""Marks of a checkpoint that is quantised."""


@dataclass(frozen=True)
class FlagTable:
    """What one engine's command line accepts."""

    engine: str
    switches: frozenset[str]
    values: frozenset[str]
    lists: frozenset[str]
    short: Mapping[str, str]
    aliases: Mapping[str, str]
    data: Mapping[str, Any]

    def known(self) -> set[str]:
        """Return all long names."""
        return {*self.switches, *self.values, *self.lists, *self.aliases}


@lru_cache(maxsize=4)
def flag_table(engine: str) -> FlagTable:
    """Return the flags of 'vllm' or 'sglang'."""
    data = read_shipped(data_dir("serve_flags") / f"{engine}.yaml")
    flags = data["flags"]
    return FlagTable(
        engine=engine,
        switches=frozenset(flags["switches"]),
        values=frozenset(flags["values"]),
        lists=frozenset(flags["lists"]),
        short=flags.get("short", {}),
        aliases=flags.get("aliases", {}),
        data=data,
    )


@dataclass
class Flags:
    """The flags of one command, by long name without dashes; the last of a repeated flag wins."""

    table: FlagTable
    positionals: list[str] = field(default_factory=list)
    given: dict[str, FlagValue] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def take(self, name: str) -> FlagValue | None:
        """Return a flag's value and mark it as understood; None if it is not given."""
        if name not in self.given:
            return None
        self.used.add(name)
        return self.given[name]

    def text(self, name: str) -> str | None:
        """Return the value of a flag that takes one word."""
        value = self.take(name)
        return None if value is None else str(value)

    def switch(self, name: str) -> bool | None:
        """Return True for --name, False for --no-name, None for neither."""
        value = self.take(name)
        return None if value is None else bool(value)

    def integer(self, name: str, *, least: int = 1) -> int | None:
        """Return a whole number; the suffixes that vLLM accepts too (8k = 8000, 8K = 8192)."""
        text = self.text(name)
        if text is None:
            return None
        number = _whole(text)
        if number is None or number < least:
            raise UsageError(f"--{name}: got {text!r}; expected a whole number of at least {least}")
        return number

    def share(self, name: str) -> float | None:
        """Return a number in 0..1, zero excluded."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0.0 < number <= 1.0:
            raise UsageError(f"--{name}: got {text!r}; expected a number above 0 and up to 1")
        return number

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return a flag that takes a JSON object, or the dotted form of it."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, str):
            value = _json(name, value)
        if not isinstance(value, dict):
            raise UsageError(f"--{name}: expected a JSON object in braces, got {value!r:.60}")
        return value

    def choice(self, name: str, table: str) -> Any:
        """Return what `table` in the engine's data says about the value of a flag."""
        text = self.text(name)
        return None if text is None else look_up(f"--{name}", text, self.table.data[table])

    def rest(self) -> tuple[list[str], list[str]]:
        """Return the flags nobody took: without effect here, and warnings about costly ones."""
        costs: Mapping[str, str] = self.table.data["costs"]
        ignored, warnings = [], []
        for name, value in self.given.items():
            if name in self.used:
                continue
            harmless = value is False or str(value).lower() in ("0", "none", "false", "1.0", "auto")
            if name in costs and not harmless:
                warnings.append(f"--{name} is not modelled: {costs[name]}")
            else:
                ignored.append(f"--{name}" if value is not False else f"--no-{name}")
        return ignored, warnings


def weight_dtype(flags: Flags, model: str) -> str | None:
    """Return the dtype of the weights that --quantization or --dtype states, if one does.

    Of a quantised checkpoint --dtype says only what the activations are; it then counts as a flag
    without effect.
    """
    stored: str | None = flags.choice("quantization", "weight_dtype")
    running: str | None = flags.choice("dtype", "dtype")
    quantised = "quantization" in flags.given or _QUANTISED.search(model) is not None
    if stored is None and running is not None and not quantised:
        return running
    flags.used.discard("dtype")
    return stored


def look_up(what: str, text: str, table: Mapping[str, Any]) -> Any:
    """Return ``table[text]``, or say what is allowed there."""
    if text in table:
        return table[text]
    if text.lower() in ("none", "null"):
        return None
    close = nearest(text, table)
    hint = f"nearest: {', '.join(close)}" if close else f"known: {', '.join(table)}"
    raise UsageError(f"{what}: {text!r} is not modelled; {hint}")


def _whole(text: str) -> int | None:
    match = re.fullmatch(r"\s*(-?\d+)(?:\.(\d+))?([kKmMgGtT]?)\s*", text)
    if not match or (match[2] and not match[3].islower()):
        return None
    # A limit far above any memory is a slip of the finger, and endless digits are not arithmetic.
    if len(match[1]) > 12:
        return None
    scale = _SUFFIXES.get(match[3], 1)
    return round(float(f"{match[1]}.{match[2]}") * scale) if match[2] else int(match[1]) * scale


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # Windows shells want the quotes inside a quoted word escaped, and keep the backslashes.
        if '\\"' in text:
            return _json(name, text.replace('\\"', '"'))
        reason = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise UsageError(
            f"--{name}: broken JSON in {text[:60]!r}: {reason}; write it as "
            '\'{"key": "value"}\', in single quotes'
        ) from error


def _scalar(text: str) -> Any:
    """Read the value of a dotted flag as vLLM does: JSON, a number with a suffix, else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = _whole(text)
        return text if number is None else number


def read_flags(words: Iterable[str], table: FlagTable) -> Flags:
    """Sort the words after the launcher into positionals and flags; refuse unknown flags."""
    flags = Flags(table)
    dotted: dict[str, dict[str, Any]] = {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if re.fullmatch(r"-O\w+", word):  # -O3 carries its level without a space
            word = f"-O={word[2:]}"
        if not word.startswith("-") or word == "-" or _whole(word) is not None:
            flags.positionals.append(word)
            continue
        spelt, _, attached = word.partition("=")
        name, negated, inside = _long_name(spelt, table)
        has_value = "=" in word
        if inside:
            value = attached if has_value else _next_value(spelt, queue)
            _place(dotted.setdefault(name, {}), inside, value)
        elif name in table.switches:
            if has_value:
                flags.given[name] = attached.lower() not in ("false", "0", "no")
            else:
                flags.given[name] = not negated
        elif name in table.lists and not has_value:
            taken: list[str] = []
            while queue and not queue[0].startswith("-"):
                taken.append(queue.pop(0))
            flags.given[name] = taken
        else:
            flags.given[name] = attached if has_value else _next_value(spelt, queue)
    flags.given.update(dotted)
    return flags


def _next_value(spelt: str, queue: list[str]) -> str:
    if not queue or (queue[0].startswith("-") and _whole(queue[0]) is None and queue[0] != "-"):
        raise UsageError(f"{spelt} needs a value")
    return queue.pop(0)


def _long_name(spelt: str, table: FlagTable) -> tuple[str, bool, list[str]]:
    """Return (long name, whether it is a --no- form, keys of the dotted form)."""
    head, *inside = spelt.split(".")
    name = head.lstrip("-").replace("_", "-")
    if not head.startswith("--"):
        if name in table.short:
            return table.short[name], False, inside
    name = table.aliases.get(name, name)
    known = table.known()
    if name in known:
        return name, False, inside
    if name.startswith("no-") and name[3:] in table.switches:
        return name[3:], True, inside
    # argparse takes any beginning of a name that only one flag has.
    longer = [full for full in known if full.startswith(name)] if head.startswith("--") else []
    if len(longer) == 1 and len(name) > 2:
        return table.aliases.get(longer[0], longer[0]), False, inside
    close = nearest(name, known)
    hint = ", ".join(f"--{c}" for c in close) or "none similar"
    raise UsageError(f"{table.engine} has no flag {head!r}; nearest: {hint}")


def _place(target: dict[str, Any], keys: Sequence[str], text: str) -> None:
    *parents, last = (key.replace("-", "_") for key in keys)
    for key in parents:
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UsageError(f"dotted flag: {key!r} is a value and has no keys inside")
        target = inner
    target[last.removesuffix("+")] = text.split(",") if last.endswith("+") else _scalar(text)
