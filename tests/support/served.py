"""The app that browser tests visit."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse

from playwright.sync_api import Browser, Page

_LOCAL = ("127.0.0.1", "localhost", "", None)


@dataclass(frozen=True)
class Server:
    """The app, served from a folder that holds its working, home and temporary folders."""

    url: str
    process: subprocess.Popen[bytes]
    folder: Path

    def answers(self) -> bool:
        """Return whether it still serves."""
        with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=10) as answer:
            return answer.status == 200 and self.process.poll() is None

    def memory_mib(self) -> float:
        """Return what it holds of memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1]) / 1024

    def fits(self) -> list[str]:
        """Return the processes that it fits in."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode().split("\0")
                parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:  # it has ended meanwhile
                continue
            if int(parent) == self.process.pid and any(w.endswith("fitting.py") for w in words):
                found.append(path.parent.name)
        return found


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1280, theme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    """Open a page, which may reach nobody but this machine."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
    )
    page = context.new_page()
    foreign: list[str] = []
    page.on(
        "request",
        lambda r: foreign.append(r.url) if urlparse(r.url).hostname not in _LOCAL else None,
    )
    page.goto(url)
    try:
        yield page
        assert foreign == []
    finally:
        context.close()
