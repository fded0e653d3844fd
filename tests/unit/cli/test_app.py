"""`specsim app`: what it starts, without starting it."""

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from specsim.cli import app

ADDRESS = "--server.address="
posix = pytest.mark.skipif(os.name != "posix", reason="elsewhere a process of its own is started")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    words: list[str] = []

    def execv(path: str, args: list[str]) -> None:
        words.extend(args)
        raise SystemExit  # what is executed does not come back

    monkeypatch.setattr(os, "execv", execv)
    return words


def run(*args: str) -> None:
    done = CliRunner().invoke(app.command, args)
    assert not isinstance(done.exception, Exception)


@posix
def test_it_listens_to_this_machine_alone_unless_told(started: list[str]) -> None:
    run("--no-browser", "--port", "8600")
    main = str(app.app_folder() / "main.py")
    assert started[:5] == [sys.executable, "-m", "streamlit", "run", main]
    assert {f"{ADDRESS}127.0.0.1", "--server.port=8600", "--server.headless=true"} <= {*started}
    # Nothing leaves the machine, wherever the command is run.
    assert "--browser.gatherUsageStats=false" in started
    started.clear()
    run("--host", "0.0.0.0")
    assert [word for word in started if word.startswith(ADDRESS)] == [f"{ADDRESS}0.0.0.0"]


@posix
def test_every_flag_is_one_that_streamlit_has(started: list[str]) -> None:
    config = pytest.importorskip("streamlit.config")
    run()
    for word in started[5:]:
        name, _, value = word.removeprefix("--").partition("=")
        assert config.get_option(name) is not None or value


def test_the_port_is_one() -> None:
    done = CliRunner().invoke(app.command, ["--port", "0"])
    assert done.exit_code == 2


def test_the_app_is_beside_the_source() -> None:
    assert app.app_folder() == Path(__file__).parents[3] / "app"
