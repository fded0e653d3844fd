"""Flags as click sees them: by section of the help, and as keys of the scenario."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from specsim.catalog.files import kind_of_file, read_mapping
from specsim.errors import UsageError
from specsim.schema.scenario import Scenario

INPUT, SIMULATION, EXECUTION = "What to predict", "Simulation", "Where it runs"
"""Sections of the help that several commands have."""


class NumberList(click.ParamType[list[float]]):
    """Numbers with commas between them: 1,2,4."""

    name = "numbers"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what stands for the value in the help."""
        return "N[,N...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """Parse the text of a flag."""
        if isinstance(value, list):
            return value
        try:
            return [float(part) for part in str(value).replace(" ", "").split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a number or a list such as 1,2,4", param, ctx)


class FiniteRange(click.FloatRange):
    """A range of numbers in which nan is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of a flag."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


class Option(click.Option):
    """An option that sets scenario key `key`, in a section of the help."""

    def __init__(self, *args: Any, section: str = "", key: str = "", **kwargs: Any) -> None:
        if not kwargs.get("help") and key:
            kwargs["help"] = describe(key)
        super().__init__(*args, **kwargs)
        self.section = section
        self.key = key


class ScenarioCommand(click.Command):
    """A command whose help shows its options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {INPUT: [], "": []}
        sections[INPUT].append(("SCENARIO", "A scenario in a YAML file."))
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                sections.setdefault(getattr(param, "section", ""), []).append(record)
        sections["Output"] = sections.pop("")
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records, col_max=38)


def describe(key: str) -> str:
    """Return what the schema says about a scenario key; raises KeyError for an unknown one."""
    record: type[BaseModel] = Scenario
    *parents, last = key.split(".")
    for name in parents:
        annotation = record.model_fields[name].annotation
        inner = [annotation, *getattr(annotation, "__args__", ())]
        record = next(a for a in inner if isinstance(a, type) and issubclass(a, BaseModel))
    text = record.model_fields[last].description or last.replace("_", " ")
    return text[0].upper() + text[1:] + "."


def refuse_scenarios(
    context: click.Context, param: click.Parameter, paths: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Refuse files of a `--catalog` that have nothing to look up: scenarios and cases."""
    for path in paths:
        kind = kind_of_file(read_mapping(path)) if path.is_file() else ""
        if kind in ("a scenario", "a case"):
            raise UsageError(
                f"--catalog {path}: is {kind}, expected models, drafters, devices or acceptance "
                f"profiles; predict a scenario with `specsim predict {path}`"
            )
    return paths
