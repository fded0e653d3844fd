"""`specsim app`: the web app, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import click

from specsim.errors import MissingExtraError, SpecsimError

_PORT = 8501


@click.command("app")
@click.option(
    "--host", default="127.0.0.1", show_default=True,
    help="Address to listen at; 0.0.0.0 lets others in, who need no password. For them a model is "
    "a name or an upload, never a path on this machine.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(1, 65535), default=_PORT, show_default=True,
    help="Port to listen at.",
)  # fmt: skip
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open a browser.")
def command(host: str, port: int, browser: bool) -> None:
    """Open the web app: what-if, crossover map, drafters, memory, capacity and cost.

    It runs on this machine and asks nobody else; links reproduce what is seen. Stop it with Ctrl-C.

    \b
    specsim app
    specsim app --port 8600 --no-browser
    """  # noqa: D301 - click reads the escape as "keep these lines"
    if find_spec("streamlit") is None or find_spec("altair") is None:
        raise MissingExtraError(
            "the web app needs Streamlit and Altair: pip install 'specsim-llm[app]'"
        )
    folder = app_folder()
    settings = {
        **_settings(folder / ".streamlit" / "config.toml"),
        "server.address": host,
        "server.port": str(port),
        "server.headless": str(not browser).lower(),
    }
    flags = [f"--{name}={value}" for name, value in settings.items()]
    words = [sys.executable, "-m", "streamlit", "run", str(folder / "main.py"), *flags]
    if os.name == "posix":
        os.execv(words[0], words)  # whoever stops this command stops the server
    click.get_current_context().exit(subprocess.run(words, check=False).returncode)


def app_folder() -> Path:
    """Return where the app is: in the installed package, or beside its source.

    Raises
    ------
    SpecsimError
        It is in neither.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "_app", package.parents[1] / "app"):
        if (folder / "main.py").is_file():
            return folder
    raise SpecsimError("the web app is not part of this installation; install specsim-llm anew")


def _settings(path: Path) -> dict[str, str]:
    """Return the settings of a Streamlit configuration as its flags spell them."""
    found: dict[str, str] = {}

    def walk(prefix: str, table: dict[str, object]) -> None:
        for name, value in table.items():
            if isinstance(value, dict):
                walk(f"{prefix}{name}.", value)
            elif isinstance(value, list):
                found[f"{prefix}{name}"] = str(value).replace("'", '"')
            else:
                found[f"{prefix}{name}"] = (
                    str(value).lower() if isinstance(value, bool) else str(value)
                )

    walk("", tomllib.loads(path.read_text(encoding="utf-8")))
    return found
