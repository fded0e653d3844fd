"""The pages of the command line and of scenarios are current and complete."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from specsim.cli import group
from specsim.schema.scenario import Scenario

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cli.md"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


COMMANDS = dict(commands(group, "specsim"))


def test_the_pages_are_current() -> None:
    pages = runpy.run_path(str(ROOT / "tools" / "make_cli_docs.py"))["PAGES"]
    assert set(pages) == {"cli.md", "scenario.md"}
    for name, made in pages.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == made(), "run `make docs`"


def keys(record: type[BaseModel]) -> Iterator[str]:
    for name, field in record.model_fields.items():
        yield name
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from keys(part)


def test_every_key_of_a_scenario_is_on_its_page() -> None:
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    for name in keys(Scenario):
        assert f"| `{name}` |" in text or re.search(rf"^## .*\b{name}$", text, re.M), name


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_flag_has_help_and_is_on_the_page(path: str) -> None:
    command, text = COMMANDS[path], PAGE.read_text(encoding="utf-8")
    assert command.help
    assert f" {path}\n" in text
    section = text[text.index(f" {path}\n") :]
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{path} {param.opts} has no help"
            for flag in param.opts:
                assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", section), flag


def test_what_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"examples/[\w.-]+\.yaml", text):
        assert (ROOT / name).is_file(), name
