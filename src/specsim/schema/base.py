"""What all records share: strictness, and one-line errors that name the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specsim.errors import InputError, nearest

WeightDtype = Literal["bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4", "fp32"]
KvDtype = Literal["bf16", "fp16", "fp8", "fp32"]
Basis = Literal["measured", "fitted", "assumed", "calibrated"]
Confidence = Literal["high", "medium", "low"]


class Record(BaseModel):
    """An immutable, strict record: an unknown key, a NaN or an infinity is an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # a command builds only the records that it reads
    )


class Range(Record):
    """A constant with the interval that it is believed to lie in."""

    value: float = Field(description="best value")
    low: float = Field(description="10th percentile of what is believed")
    high: float = Field(description="90th percentile of what is believed")


R = TypeVar("R", bound=BaseModel)


def parse(record: type[R], data: Any, *, what: str) -> R:
    """Validate `data` as `record`; raise an `InputError` of one line that names the key.

    Parameters
    ----------
    what : str
        What is being read, for the message: a file name, or 'scenario'.
    """
    try:
        result = record.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{what}: {_one_line(error, record)}") from error
    for path, value in _bools_as_numbers(data, result):
        raise InputError(
            f"{what}: {path}: got {str(value).lower()}, a truth value; input should be a number"
        )
    return result


def _bools_as_numbers(data: Any, result: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield what was true or false in the input and has become 1 or 0.

    pydantic takes them for numbers unless it is told, field by field, to take no 3.0 for 3 either.
    """
    if isinstance(data, bool):
        if isinstance(result, int | float) and not isinstance(result, bool):
            yield path, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            inside = result.get(key) if isinstance(result, Mapping) else getattr(result, key, None)
            yield from _bools_as_numbers(value, inside, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list | tuple) and isinstance(result, list | tuple):
        for value, inside in zip(data, result, strict=False):
            yield from _bools_as_numbers(value, inside, path)


def _one_line(error: ValidationError, record: type[BaseModel]) -> str:
    problems = error.errors(include_url=False)
    # A misspelt key is also a missing one: the unknown key explains the rest, so it goes first.
    first = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        close = nearest(str(first["loc"][-1]), _known_keys(record, first["loc"][:-1]))
        hint = f"; nearest known: {', '.join(close)}" if close else ""
        return f"unknown key {path!r}{hint}"
    if first["type"] == "missing":
        return f"missing key {path!r}"
    message = first["msg"].removeprefix("Value error, ")
    message = f"{message[0].lower()}{message[1:]}"
    if not path and isinstance(first["input"], Mapping):
        return message  # of keys that do not go together, and names them itself
    shown = repr(first["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{path or 'the document'}: got {shown}; {message}"


def _known_keys(record: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Return the keys that are allowed at `path` inside `record`, as far as types tell."""
    current: list[type[BaseModel]] = [record]
    for part in path:
        inner: list[type[BaseModel]] = []
        for model in current:
            field = model.model_fields.get(str(part))
            inner.extend(_models_in(field.annotation) if field else [])
        current = inner or current
    return [key for model in current for key in model.model_fields]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    args = getattr(annotation, "__args__", ())
    return [model for arg in args for model in _models_in(arg)]
