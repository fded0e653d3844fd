"""A `vllm serve` process: started, watched, asked for its metrics, stopped with its children."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import IO

from specsim.errors import InputError, SpecsimError

HOST = "127.0.0.1"
LOG_FILE = "server.log"
TAIL_LINES = 15
"""Lines of a log that an error shows."""
_POLL_S = 0.25
_ASK_S = 10.0
_STOP_S, _CHILDREN_STOP_S = 20.0, 3.0
"""How long a server may take to leave, and its children after it, before they are killed."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A proxy of the environment has no business with a server on this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ProcessDied(SpecsimError):
    """A child of the sweep failed.

    Attributes
    ----------
    tail : list of str
        The last lines that it wrote.
    """

    def __init__(self, message: str, tail: list[str]) -> None:
        super().__init__(message)
        self.tail = tail


class Server:
    """One server on a free port of this machine.

    Parameters
    ----------
    command : sequence of str
        Words of `vllm serve`, without host and port.
    folder : Path
        Where its log goes; a restart appends to it.
    devices : str, optional
        Its CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, command: Sequence[str], folder: Path, *, devices: str | None = None) -> None:
        self.log = folder / LOG_FILE
        self.name = folder.name
        self.port = _free_port()
        words = [*command, "--host", HOST, "--port", str(self.port)]
        environment = child_environment(
            {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
        )
        with self.log.open("a", encoding="utf-8") as log:
            now = datetime.now().isoformat(" ", "seconds")
            log.write(f"=== specsim: {now}: {shlex.join(words)}\n")
            log.flush()
            self._process = start(words, log, environment)

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def wait_until_healthy(self, timeout_s: float) -> None:
        """Return when it answers.

        Raises
        ------
        ProcessDied
            It ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(OSError):
                self.get("/health")
                return
            time.sleep(_POLL_S)
        raise ProcessDied(
            f"server {self.name} does not answer after {timeout_s:g} s; see {self.log}, or allow "
            "more with --start-timeout",
            tail_of(self.log),
        )

    def check(self) -> None:
        """Raise ProcessDied if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise ProcessDied(
                f"server {self.name} ended with exit code {code}; its log is {self.log}",
                tail_of(self.log),
            )

    def get(self, path: str) -> str:
        """Return what it answers; raises OSError if it does not."""
        with _opener.open(f"http://{HOST}:{self.port}{path}", timeout=_ASK_S) as answer:
            return str(answer.read().decode("utf-8", errors="replace"))

    def version(self) -> str | None:
        """Return the engine's version, as it says it."""
        try:
            return str(json.loads(self.get("/version"))["version"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def stop(self) -> None:
        """End it and its children, kindly first."""
        stop(self._process)


def start(
    words: Sequence[str], log: IO[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, so that it can be ended with all its children.

    Ctrl-C in the terminal then reaches only specsim, which ends its children in order.

    Raises
    ------
    InputError
        There is no such program.
    """
    try:
        return subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=dict(environment), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise InputError(
            f"{words[0]}: cannot be started: {error.strerror or error}; name vLLM's executable "
            "with --vllm"
        ) from error


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: SIGTERM, then SIGKILL for what does not leave."""
    group = process.pid
    if process.poll() is None:
        _signal_group(group, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    deadline = time.monotonic() + _CHILDREN_STOP_S
    while _signal_group(group, signal.SIGTERM) and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal_group(group, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> bool:
    """Signal all processes of a group; False where none is left."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment, with no proxy between client and server."""
    environment = dict(os.environ) | dict(extra or {})
    for name in ("no_proxy", "NO_PROXY"):
        environment[name] = ",".join(filter(None, (environment.get(name), HOST)))
    return environment


def tail_of(log: Path, *, after: int = 0) -> list[str]:
    """Return the last lines of a log, from byte `after` on."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(after, log.stat().st_size - 16_384))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-TAIL_LINES:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into one KeyboardInterrupt; later ones are ignored.

    What then unwinds can stop servers without being interrupted itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    # What whoever started specsim ignores, as nohup does, stays ignored.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]
    for each in heard:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in heard:
            signal.signal(each, before[each] or signal.SIG_DFL)
