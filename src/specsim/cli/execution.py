"""Flags that several commands share: promises, and where the work is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specsim.cli.parameters import EXECUTION, SIMULATION, Option
from specsim.errors import MissingExtraError, UsageError
from specsim.schema.scenario import MOST_REQUESTS

if TYPE_CHECKING:
    from specsim.analysis.simulation.simulate import Executor

_ANSWERS_WITHIN_S = 5.0

F = TypeVar("F", bound=Callable[..., Any])
_PROMISES = "Promises (SLO)"

slo_options = (
    click.option(
        "--slo", cls=Option, section=_PROMISES, multiple=True, metavar="METRIC_PXX_ms=N",
        help="A promise: ttft, tpot, itl or e2e, mean or a percentile, e.g. ttft_p95_ms=1000 "
        "(repeatable).",
    ),
    click.option(
        "--goodput", cls=Option, section=_PROMISES, multiple=True, metavar="METRIC:MS",
        help="What each request must meet, as vLLM's bench has it, e.g. ttft:1000 (repeatable).",
    ),
)  # fmt: skip
seed_option = click.option(
    "--seed", cls=Option, section=SIMULATION, type=click.IntRange(min=0),
    help="The same seed, the same answer.",
)  # fmt: skip


def requests_option(text: str) -> Callable[[F], F]:
    """Return `--requests`, whose help says what it counts and what it is if absent."""
    return click.option(
        "--requests", cls=Option, section=SIMULATION, type=click.IntRange(1, MOST_REQUESTS),
        metavar="N", help=text,
    )  # fmt: skip


run_options = (
    click.option(
        "--workers", cls=Option, section=EXECUTION, type=click.IntRange(1, 1024), default=1,
        show_default=True,
        help="Processes; the answer does not depend on them.",
    ),
    click.option(
        "--scheduler", cls=Option, section=EXECUTION, metavar="tcp://HOST:PORT",
        help="Run on the workers of a Dask cluster instead.",
    ),
)  # fmt: skip


@contextlib.contextmanager
def executor_of(workers: int, scheduler: str | None) -> Iterator[Executor | None]:
    """Give what runs tasks: this process, others here, or a Dask cluster.

    Raises
    ------
    UsageError
        Nobody answers at the scheduler's address.
    """
    if scheduler is not None:
        client = _client(scheduler)
        with client:
            yield client.get_executor()
    elif workers > 1:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        yield None


def _client(scheduler: str) -> Any:
    """Connect to a Dask scheduler that answers.

    Raises
    ------
    UsageError
        Nobody, or no Dask scheduler, answers.
    """
    try:
        from distributed import Client, rpc
    except ImportError as error:
        raise MissingExtraError(
            "--scheduler needs Dask; install it with `pip install 'specsim-llm[distributed]'`"
        ) from error
    import asyncio

    async def ask() -> None:
        async with rpc(scheduler) as there:  # type: ignore[no-untyped-call]
            await there.identity()

    try:
        asyncio.run(asyncio.wait_for(ask(), _ANSWERS_WITHIN_S))
    except Exception as error:  # whatever an address that is no scheduler's answers
        raise UsageError(
            f"--scheduler {scheduler}: nobody answers as a Dask scheduler "
            f"({type(error).__name__}); start one with `dask scheduler`, or use --workers N"
        ) from error
    return Client(scheduler, timeout="10s", set_as_default=False)  # type: ignore[no-untyped-call]
