"""Programs that tests drive as a person would: found, or installed where that is possible."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_TIMEOUT_S = 600


@functools.cache
def found(names: tuple[str, ...], packages: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the path of the first program that is there, or None and why there is none.

    Parameters
    ----------
    names : tuple of str
        What it may be called.
    packages : tuple of str
        Debian's packages that bring it: installed where we are root and apt-get is there.
    """
    if path := _which(names):
        return path, ""
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None, f"no {names[0]} on PATH and no root with apt-get to install it: {command}"
    # Workers of one run start together: the first installs, the others wait and learn how it
    # went. A failure is remembered for this run only.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process {os.getpid()}")
    with (Path(tempfile.gettempdir()) / f"specsim-{names[0]}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path := _which(names):
            return path, ""
        lock.seek(0)
        of_run, _, failed = lock.read().partition("\n")
        if of_run != run:
            failed = _install(packages)
            lock.truncate(0)
            lock.write(f"{run}\n{failed}")
    path = _which(names)
    return path, "" if path else f"no {names[0]} on PATH and it did not install: {failed}"


def _which(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def _install(packages: tuple[str, ...]) -> str:
    """Install packages and return what went wrong, if anything."""
    # One lock for all: apt-get lets nobody else in.
    with (Path(tempfile.gettempdir()) / "specsim-apt.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wait = ("-o", "DPkg::Lock::Timeout=300")
        for words in (("update",), ("install", "--yes", "--no-install-recommends", *packages)):
            try:
                subprocess.run(
                    ("apt-get", *wait, "--quiet", *words),
                    check=True, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                )  # fmt: skip
            except subprocess.SubprocessError as error:
                return f"{error}\n{getattr(error, 'output', '') or ''}"
    return ""
