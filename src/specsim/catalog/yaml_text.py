"""YAML as specsim reads it: plain numbers, no key twice, no aliases that run away.

YAML 1.1 reads 1:30 as 90, 010 as 8 and a version 0.10 as 0.1, keeps the last of two equal keys,
and lets a file of one kilobyte stand for 10^9 values. Whoever writes a catalog file or a scenario
means none of that.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import yaml

from specsim.errors import InputError

MAX_VALUES = 100_000
"""Most values that a text with aliases may stand for."""

_TAG = "tag:yaml.org,2002:"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_MAY_EXPAND = re.compile(r"\*[\w-]|<<")
_AS_WRITTEN = frozenset({"version"})
"""Keys whose plain values are text: 0.10 is not 0.1 there."""

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _Loader(_BASE):  # type: ignore[misc]
    """Safe YAML with the numbers of YAML 1.2; a key given twice is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and form that PyYAML looks for
        first: [pair for pair in pairs if pair[0] not in _NUMBERS]
        for first, pairs in _BASE.yaml_implicit_resolvers.items()
    }
    text_keys_only = False

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str) and (self.text_keys_only or not isinstance(key, Hashable)):
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else key
                raise InputError(f"line {line}: key {shown!r} is not text")
            if key in seen:
                raise InputError(f"line {line}: key {key!r} is given twice; keep one of them")
            seen.add(key)
            if key in _AS_WRITTEN and value_node.tag in _NUMBERS:
                value_node.tag = f"{_TAG}str"
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result


_Loader.add_implicit_resolver(_NUMBERS[1], _FLOAT, list("-+0123456789."))
_Loader.add_implicit_resolver(_NUMBERS[0], _INT, list("-+0123456789"))


class _TextKeysLoader(_Loader):
    text_keys_only = True


def load_yaml(
    text: str, *, what: str, text_keys_only: bool = False, words_only: bool = False
) -> Any:
    """Parse one YAML document; every failure is an `InputError` of one line.

    Parameters
    ----------
    what : str
        What is being read, for the message: a file name, or a flag.
    text_keys_only : bool
        Refuse keys that YAML reads as numbers, truth values or dates.
    words_only : bool
        Leave every scalar the text that it is.
    """
    loader = _WORDS if words_only else _TextKeysLoader if text_keys_only else _Loader
    try:
        if _MAY_EXPAND.search(text):
            _refuse_expansion(text)
        return yaml.load(text, Loader=loader)
    except InputError as error:
        raise InputError(f"{what}: {error}") from error
    except RecursionError as error:
        raise InputError(f"{what}: is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "").split())
        raise InputError(f"{what}: is broken or truncated: {reason[:160]}") from error


def load_value(key: str, text: str, *, what: str) -> Any:
    """Parse the value of a key, as `--set KEY=TEXT` has it; a version is text: 0.10 is not 0.1."""
    value = load_yaml(text, what=what)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text.strip() if is_number and key.rpartition(".")[2] in _AS_WRITTEN else value


@dataclass
class _Open:
    """A collection that has begun and not ended."""

    anchor: str | None
    is_mapping: bool
    children: int = 0
    values: int = 1


def _refuse_expansion(text: str) -> None:
    """Count what the text stands for, event by event, before anything is built from it."""
    values: dict[str, int] = {}
    stack: list[_Open] = []

    def add(count: int) -> None:
        if stack:
            stack[-1].children += 1
            stack[-1].values += count

    for event in yaml.parse(text, Loader=_BASE):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            if any(part.anchor == event.anchor for part in stack):
                raise InputError(f"line {line}: alias *{event.anchor} is inside its own anchor")
            add(values.get(event.anchor or "", 1))
            if stack and stack[-1].values > MAX_VALUES:
                raise InputError(
                    f"line {line}: with alias *{event.anchor} the text stands for more than "
                    f"{MAX_VALUES} values; write out what is meant"
                )
        elif isinstance(event, yaml.ScalarEvent):
            top = stack[-1] if stack else None
            is_key = top is not None and top.is_mapping and top.children % 2 == 0
            if is_key and event.value == "<<" and event.implicit[0]:
                raise InputError(f"line {line}: merge keys (<<) are not supported; write them out")
            if event.anchor is not None:
                values[event.anchor] = 1
            add(1)
        elif isinstance(event, yaml.CollectionStartEvent):
            stack.append(_Open(event.anchor, isinstance(event, yaml.MappingStartEvent)))
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = stack.pop()
            if closed.anchor is not None:
                values[closed.anchor] = closed.values
            add(closed.values)
