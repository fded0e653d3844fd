"""YAML without the surprises of YAML 1.1, and texts that stand for more than they hold."""

from __future__ import annotations

import time
from typing import Any

import pytest

from specsim.catalog.yaml_text import load_yaml
from specsim.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("1_000", 1000), ("0x10", 16), ("0.5", 0.5), (".5", 0.5),
        ("3.", 3.0), ("1.5e+3", 1500.0), (".inf", float("inf")), ("true", True), ("null", None),
        ("1:30", "1:30"), ("1:30.5", "1:30.5"), ("010", "010"), ("1e3", "1e3"), ("'12'", "12"),
    ],
)  # fmt: skip
def test_scalars(text: str, value: Any) -> None:
    read = load_yaml(f"a: {text}", what="x")["a"]
    assert read == value
    assert type(read) is type(value)


def test_versions_are_text_and_null_is_not() -> None:
    read = load_yaml("a: {version: 0.10}\nb: {version: 1}\nc: {version: null}\n", what="x")
    assert read == {"a": {"version": "0.10"}, "b": {"version": "1"}, "c": {"version": None}}


def test_words_only() -> None:
    read = load_yaml("[2, 0.10, yes, 1:30]", what="x", words_only=True)
    assert read == ["2", "0.10", "yes", "1:30"]


def bomb(levels: int) -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(10), "line 6: with alias *a4 the text stands for more than 100000 values"),
        ("a: &t {x: *t}", "line 1: alias *t is inside its own anchor"),
        ("a: &t [1, [*t]]", "line 1: alias *t is inside its own anchor"),
        ("a: &t {x: 1}\nb: {<<: *t}", "line 2: merge keys (<<) are not supported"),
        ("b: {<<: [{a: 1}]}", "line 1: merge keys (<<) are not supported"),
        ("a: *nowhere", "is broken or truncated: found undefined alias"),
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' is given twice"),
        ("a: " + "[" * 200_000, "is broken or truncated"),
        ("a: {b", "is broken or truncated"),
        ("? [1]\n: 2", "line 1: key [1] is not text"),
    ],
)
def test_what_is_refused_is_refused_at_once_and_in_one_line(text: str, message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        load_yaml(text, what="x.yaml")
    assert time.perf_counter() - start < 2.0
    assert str(caught.value).startswith(f"x.yaml: {message}")
    assert "\n" not in str(caught.value)


def test_a_merge_key_in_words_only_is_refused_too() -> None:
    with pytest.raises(InputError, match="merge keys"):
        load_yaml("a: {<<: {b: 1}}", what="x", words_only=True)


def test_aliases_within_the_bound_are_read() -> None:
    assert load_yaml("a: &t [1, 2]\nb: *t\nc: '<<'", what="x") == {
        "a": [1, 2], "b": [1, 2], "c": "<<",
    }  # fmt: skip
    assert load_yaml("<<: is quoted".replace("<<", "'<<'"), what="x") == {"<<": "is quoted"}


def test_keys_that_are_no_text() -> None:
    assert load_yaml("{1: a}", what="x") == {1: "a"}
    with pytest.raises(InputError, match="line 1: key '1' is not text"):
        load_yaml("{1: a}", what="x", text_keys_only=True)
