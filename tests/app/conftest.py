"""The app in a real browser: a server of its own, and Debian's Chromium."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import programs
import pytest
from playwright.sync_api import Browser, sync_playwright
from served import Server

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_STARTS_WITHIN_S = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that open a browser, so that `make test` leaves them out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the app as `specsim app` does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = shutil.which("specsim", path=str(Path(sys.executable).parent))
    assert command is not None
    words = [command, "app", "--port", str(port), "--no-browser"]
    folder = tmp_path_factory.mktemp("app")
    for name in ("work", "home", "temporary"):
        (folder / name).mkdir()
    env = {**os.environ, "HOME": str(folder / "home"), "TMPDIR": str(folder / "temporary")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder / "work", env=env)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/_stcore/health", process)
            yield Server(url, process, folder)
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="session")
def address(server: Server) -> str:
    """Return where the app is served."""
    return server.url


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < end:
        assert server.poll() is None, "the server stopped"
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"{url} does not answer")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Give a Chromium, or skip with the reason."""
    path, reason = programs.found(("chromium",), ("chromium", "fonts-dejavu-core"))
    if path is None:
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab() -> Path:
    """Return recorded runs of a real vLLM, or skip."""
    folder = Path(__file__).parents[3] / "shared" / "lab" / "closed_loop"
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder}")
    return folder
