"""Run a sweep: servers up, one run of the bench after the other, results kept as they come.

A run is finished when its JSON is there, whole and with answers in it: it is written elsewhere and
renamed last. So a sweep that was broken off goes on where it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from specsim.errors import InputError
from specsim.measure.readers.numbers import number
from specsim.measure.sweep.placement import Placement
from specsim.measure.sweep.plan import (
    PLAN_FILE,
    SEED_OF_WARMUP,
    Run,
    bench_words,
    check_same_sweep,
    dump_plan,
    load_plan,
    merged,
    metadata,
    runs_of,
)
from specsim.measure.sweep.server import (
    HOST,
    ProcessDied,
    Server,
    child_environment,
    interruptible,
    start,
    stop,
    tail_of,
)
from specsim.schema.sweep import SweepArm, SweepPlan

BENCH_LOG = "bench.log"
LOCK_FILE = ".lock"
"""Held while a sweep runs; names its servers' processes."""
_POLL_S = 0.2


class Progress(Protocol):
    """Who is told how a sweep goes on."""

    def say(self, text: str) -> None:
        """Tell something in a line."""

    def began(self, label: str, done: int, total: int) -> None:
        """Tell that a run began."""

    def ended(self, label: str, done: int, total: int, said: str) -> None:
        """Tell that a run ended, and what it measured."""


def run_sweep(
    plan: SweepPlan, folder: Path, placement: Placement, progress: Progress, *,
    vllm: str = "vllm", start_timeout_s: float = 1800.0,
) -> None:  # fmt: skip
    """Measure what a folder lacks of a plan.

    Parameters
    ----------
    folder : Path
        Gets `plan.yaml`, and per arm a folder of results, metrics and logs.
    vllm : str
        The executable, for the servers and the bench.

    Raises
    ------
    UsageError
        The folder holds another sweep.
    ProcessDied
        A server or the bench failed. What was finished is kept.
    """
    with _alone(folder):
        _run_sweep(plan, folder, placement, progress, vllm, start_timeout_s)


def _run_sweep(
    plan: SweepPlan, folder: Path, placement: Placement, progress: Progress, vllm: str,
    start_timeout_s: float,
) -> None:  # fmt: skip
    earlier = load_plan(folder)
    check_same_sweep(plan, earlier, folder)
    program = _executable(vllm)
    for arm in plan.arms:
        try:
            (folder / arm.name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{folder / arm.name}: cannot be made: {error.strerror or error}"
            ) from error
        for left in (folder / arm.name).glob(".running-*"):  # of a sweep that was killed
            shutil.rmtree(left, ignore_errors=True)
    _write_whole(folder / PLAN_FILE, dump_plan(merged(plan, earlier)))
    runs = list(runs_of(plan, together=placement.together))
    waiting = [run for run in runs if not is_finished(folder, run)]
    done, total = len(runs) - len(waiting), len(runs)
    if done:
        progress.say(f"{done} of {total} runs are there already")
    if not waiting:
        return
    progress.say(placement.reason)
    with interruptible(), Fleet(plan, folder, placement, progress, program, start_timeout_s) as up:
        for run in waiting:
            server = up.server(run.arm, [each.arm for each in waiting])
            progress.began(run.label, done, total)
            began = time.monotonic()
            result = _measure(plan, folder, run, server, program)
            done += 1
            said = _in_words(result, time.monotonic() - began)
            progress.ended(run.label, done, total, said)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a folder while a sweep runs into it.

    Raises
    ------
    InputError
        Another sweep does, servers of one that was killed still run, or it cannot be written.
    """
    path = folder / LOCK_FILE
    try:
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"{folder}: another `specsim measure run` measures into it; wait for it, or give "
                "another --out"
            ) from error
        stream.seek(0)
        alive = [pid for pid in stream.read().split() if pid.isdigit() and _serves(int(pid))]
        if alive:
            raise InputError(
                f"{folder}: servers of a sweep that was killed still run and would disturb this "
                f"one; end them with: kill {' '.join(alive)}"
            )
        stream.truncate(0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _serves(pid: int) -> bool:
    """Whether a process is there and serves on this machine: its number may have a new owner."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"serve" in words and HOST.encode() in words


class Fleet(contextlib.AbstractContextManager["Fleet"]):
    """The servers that are up; all are stopped when the context is left, however."""

    def __init__(
        self, plan: SweepPlan, folder: Path, placement: Placement, progress: Progress,
        program: str, start_timeout_s: float,
    ) -> None:  # fmt: skip
        self._plan, self._folder, self._placement = plan, folder, placement
        self._progress, self._program, self._timeout_s = progress, program, start_timeout_s
        self._up: dict[str, Server] = {}

    def server(self, arm: SweepArm, needed: Sequence[SweepArm]) -> Server:
        """Return the server of an arm, started and warm.

        Parameters
        ----------
        needed : sequence of SweepArm
            Arms that still have runs: where all are up together, those start with it.
        """
        if arm.name in self._up:
            return self._up[arm.name]
        if self._placement.together:
            wanted = list({each.name: each for each in [arm, *needed]}.values())
        else:
            self._stop_all()
            wanted = [arm]
        fresh = [each for each in wanted if each.name not in self._up]
        for each in fresh:
            self._start(each)
            if self._placement.shared:
                self._up[each.name].wait_until_healthy(self._timeout_s)
        for each in fresh:
            server = self._up[each.name]
            server.wait_until_healthy(self._timeout_s)
            self._warm_up(each, server)
        return self._up[arm.name]

    def _start(self, arm: SweepArm) -> None:
        self._progress.say(f"starting server {arm.name}")
        words = [self._program, *arm.command[1:]]
        devices = self._placement.devices.get(arm.name)
        server = Server(words, self._folder / arm.name, devices=devices)
        self._up[arm.name] = server
        # Who comes after a kill -9 of this process can tell what is left.
        with (self._folder / LOCK_FILE).open("a", encoding="utf-8") as stream:
            stream.write(f"{server.pid}\n")

    def _warm_up(self, arm: SweepArm, server: Server) -> None:
        plan = self._plan
        if not plan.warmup_prompts:
            return
        self._progress.say(f"warming up {arm.name}")
        count = str(plan.warmup_prompts)
        # As a closed loop whatever the sweep is: an open one takes its time.
        closed = plan.model_copy(update={"load_kind": "concurrency"})
        words = bench_words(closed, load=count, num_prompts=count, seed=str(SEED_OF_WARMUP))
        _bench(self._program, words, server, self._folder / arm.name / BENCH_LOG)

    def _stop_all(self) -> None:
        for server in self._up.values():
            server.stop()
        self._up.clear()

    def __exit__(self, *raised: object) -> None:
        self._stop_all()


def is_finished(folder: Path, run: Run) -> bool:
    """Whether the result of a run is there, whole and with answers in it."""
    return _result(folder / run.arm.name / f"{run.stem}.json") is not None


def _result(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict):
        return None
    known = [number(data.get(key)) for key in ("completed", "duration", "output_throughput")]
    return data if all(value is not None and value > 0 for value in known) else None


def _measure(
    plan: SweepPlan, folder: Path, run: Run, server: Server, program: str
) -> dict[str, Any]:
    """Do one run and keep its files; return its result."""
    arm = folder / run.arm.name
    log = arm / BENCH_LOG
    known = metadata(plan, run.arm) | {"repeat": str(run.repeat)}
    version = server.version()
    if version is not None:
        known["engine_version"] = version
    words = bench_words(
        plan, load=f"{run.load.value:g}", num_prompts=str(run.load.num_prompts), seed=str(run.seed)
    )
    with _workplace(arm) as work:
        (work / f"{run.stem}.before.prom").write_text(_metrics(server), encoding="utf-8")
        words += [
            "--save-result", "--result-dir", str(work), "--result-filename", f"{run.stem}.json",
            "--metadata", *(f"{key}={value}" for key, value in known.items()),
        ]  # fmt: skip
        written = _bench(program, words, server, log)
        (work / f"{run.stem}.after.prom").write_text(_metrics(server), encoding="utf-8")
        result = _result(work / f"{run.stem}.json")
        if result is None:
            raise ProcessDied(
                f"{run.label}: `vllm bench serve` left no result with answers in it; see {log}",
                tail_of(log, after=written),
            )
        for suffix in (".before.prom", ".after.prom", ".json"):
            (work / f"{run.stem}{suffix}").replace(arm / f"{run.stem}{suffix}")
    return result


@contextlib.contextmanager
def _workplace(arm: Path) -> Iterator[Path]:
    """Give a folder beside the results, which leaves nothing behind."""
    path = Path(tempfile.mkdtemp(prefix=".running-", dir=arm))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _metrics(server: Server) -> str:
    try:
        return server.get("/metrics")
    except OSError as error:
        server.check()
        raise ProcessDied(f"server {server.name} gives no /metrics: {error}", []) from error


def _bench(program: str, words: Sequence[str], server: Server, log: Path) -> int:
    """Run `vllm bench serve` to its end; return where in the log its output starts.

    Raises
    ------
    ProcessDied
        It failed, or the server ended under it.
    """
    before = log.stat().st_size if log.exists() else 0
    command = [program, "bench", "serve", "--host", HOST, "--port", str(server.port), *words]
    with log.open("a", encoding="utf-8") as stream:
        process = start(command, stream, child_environment())
    try:
        while process.poll() is None:
            server.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
    finally:
        stop(process)
    if process.returncode:
        server.check()
        raise ProcessDied(
            f"`vllm bench serve` ended with exit code {process.returncode}; see {log}",
            tail_of(log, after=before),
        )
    return before


def _in_words(result: Mapping[str, Any], elapsed_s: float) -> str:
    said = [f"{number(result.get('output_throughput')) or 0.0:.1f} tok/s"]
    length = number(result.get("spec_decode_acceptance_length"))
    if length is not None:
        said.append(f"acceptance length {length:.2f}")
    if result.get("failed"):
        said.append(f"{result['failed']} requests FAILED")
    return f"{', '.join(said)} ({elapsed_s:.0f} s)"


def _executable(vllm: str) -> str:
    path = shutil.which(vllm)
    if path is None:
        raise InputError(
            f"no executable {vllm!r}; install vLLM, or name it with --vllm, such as "
            "--vllm /path/to/venv/bin/vllm"
        )
    # Not resolved: a link inside a venv is what tells Python where its packages are.
    return str(Path(path).absolute())


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
