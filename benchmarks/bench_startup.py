"""`specsim predict` from the shell against the least that Python with its imports can take."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

PREDICT = [
    sys.executable, "-m", "specsim", "predict", "--json",
    "--model", "llama-3.1-70b", "--gpu", "h100_sxm", "-tp", "4",
    "--spec-method", "eagle3", "--spec-model", "eagle3-llama3.3-70b", "--spec-tokens", "4",
    "--acceptance-length", "2.6",
]  # fmt: skip
IMPORTS = [sys.executable, "-c", "import numpy, pydantic"]
ROUNDS = 7


def wall_s(command: list[str]) -> float:
    """Return the time of a fresh process."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def test_predict_from_the_shell(benchmark: Any, figures: list[str]) -> None:
    # Taken in turns, so that a busy moment hits both; the least of each is compared.
    imports: list[float] = []
    benchmark.pedantic(
        wall_s, args=(PREDICT,), setup=lambda: imports.append(wall_s(IMPORTS)), rounds=ROUNDS,
        warmup_rounds=1,
    )  # fmt: skip
    if benchmark.stats is not None:
        ratio = benchmark.stats.stats.min / min(imports)
        benchmark.extra_info["ratio"] = round(ratio, 2)
        figures.append(
            f"specsim predict {benchmark.stats.stats.min * 1e3:.0f} ms, importing numpy and "
            f"pydantic {min(imports) * 1e3:.0f} ms: {ratio:.2f} times (bar about 2)"
        )
