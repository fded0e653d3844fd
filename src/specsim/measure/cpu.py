"""A CPU as an accelerator: time it with numpy, fit the constants of equation (1).

`measure` times kernels and `fit_gemm` turns times into constants; only the first looks at a clock.
`cpu_profile` writes the result down.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Z90
from specsim.errors import CalibrationError
from specsim.measure.cpu_host import Host
from specsim.physics.kernels import GemmRates, gemm
from specsim.units import MICRO

FP32_BYTES = 4
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SHAPES = ((1024, 1024), (5632, 1024), (4096, 4096), (11008, 4096))
"""(out, in) features: from the small matrices of a 0.1 B model to the large ones of a 7 B one."""
QUICK_ROWS = (1, 4, 16, 64)
QUICK_SHAPES = ((512, 512), (1024, 1024))
_REPEATS, _QUICK_REPEATS = 9, 2
_LEAST_REPEATS = 3
_BUDGET_S = 20.0
"""No further repeat is begun after this."""
_VISIT_S = 0.005
"""A short kernel is called for this long at each visit."""
_SMALL_ELEMENTS, _SMALL_CALLS = 1024, 2000

_LAUNCH_US = (0.0, 500.0)
_FRACTION = (0.2, 1.1)
"""What `profiles check` calls plausible."""
_SHARPNESS = (0.6, 8.0)
_START = (5.0, 0.8, 0.9, 2.0)

Pool = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Timing:
    """One kernel: the shortest of the repeats, and their median."""

    best_s: float
    typical_s: float

    @property
    def spread(self) -> float:
        """How much longer than the best the median is, as a share of the best."""
        return self.typical_s / self.best_s - 1.0


@dataclass(frozen=True)
class GemmTiming(Timing):
    """`rows` activations times an (in x out) matrix that no cache holds."""

    rows: int
    out_features: int
    in_features: int

    @property
    def flop_per_s(self) -> float:
        """The best rate."""
        return 2.0 * self.rows * self.out_features * self.in_features / self.best_s

    @property
    def weight_bytes_per_s(self) -> float:
        """The best rate at which the matrix is read."""
        return float(FP32_BYTES * self.out_features * self.in_features) / self.best_s


@dataclass(frozen=True)
class Measured:
    """What `measure` found."""

    host: Host
    gemms: tuple[GemmTiming, ...]
    read: Timing
    """Every thread reads its part of the pool."""
    scale: Timing
    """Every thread multiplies its part of the pool in place."""
    small: Timing
    """One call on a kilobyte-sized array."""
    pool_bytes: int
    repeats: int
    quick: bool = False

    @property
    def read_bytes_per_s(self) -> float:
        """Streaming read, best of the repeats."""
        return self.pool_bytes / self.read.best_s

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """The best read of all: a matrix times one row streams too, and fetches further ahead."""
        return max(self.read_bytes_per_s, *(g.weight_bytes_per_s for g in self.gemms))

    @property
    def peak_flop_per_s(self) -> float:
        """The best rate of any shape and number of rows."""
        return max(timing.flop_per_s for timing in self.gemms)

    @property
    def elements_per_s(self) -> float:
        """fp32 elements read, scaled and written."""
        return self.pool_bytes / FP32_BYTES / self.scale.best_s


@dataclass(frozen=True)
class Estimate:
    """A constant with its 10th and 90th percentile."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """Return it as a profile has it: three significant digits, and next to nothing is 0."""
        named = {"value": self.value, "low": self.low, "high": self.high}
        return {name: float(f"{round(figure, 4):.3g}") for name, figure in named.items()}


@dataclass(frozen=True)
class GemmFit:
    """Constants of equation (1) and how far off they are."""

    launch_us: Estimate
    bandwidth_frac: Estimate
    compute_frac: Estimate
    sharpness: Estimate
    median_error: float
    worst_error: float
    worst_rows: int


# Timing


def measure(host: Host, *, quick: bool = False) -> Measured:
    """Time reads, matrix multiplications and small kernels in fp32.

    Parameters
    ----------
    host : Host
        Threads and cache to measure for.
    quick : bool
        A second or two instead of twenty: few shapes, two repeats. For trying out.

    Notes
    -----
    All kernels are visited in turn, and that is repeated: a spell of other work on the machine
    then spoils one repeat of many kernels, not all repeats of one.
    """
    rows, shapes = (QUICK_ROWS, QUICK_SHAPES) if quick else (ROWS, SHAPES)
    pool = _pool(host, shapes, quick)
    cells = list(itertools.product(shapes, rows))
    with ThreadPoolExecutor(host.threads) as threads:
        parts = np.array_split(pool, host.threads)
        words = [part.view(np.uint32) for part in parts]
        small = np.ones(_SMALL_ELEMENTS, np.float32)
        visits: list[Callable[[], float]] = [
            # Integers: a sum of floats is bound by its additions, not by memory.
            lambda: _seconds(lambda: list(threads.map(np.bitwise_or.reduce, words))),
            lambda: _seconds(lambda: list(threads.map(_scaled, parts))),
            lambda: _seconds(lambda: [_scaled(small) for _ in range(_SMALL_CALLS)]) / _SMALL_CALLS,
            *(_gemm_visit(pool, out, inner, n) for (out, inner), n in cells),
        ]
        repeats = _repeat(visits, quick)
    read, scale, tiny, *gemms = (
        Timing(min(times), statistics.median(times)) for times in zip(*repeats, strict=True)
    )
    return Measured(
        host=host,
        gemms=tuple(
            GemmTiming(t.best_s, t.typical_s, rows=n, out_features=out, in_features=inner)
            for t, ((out, inner), n) in zip(gemms, cells, strict=True)
        ),
        read=read,
        scale=scale,
        small=tiny,
        pool_bytes=pool.nbytes,
        repeats=len(repeats),
        quick=quick,
    )


def _pool(host: Host, shapes: Sequence[tuple[int, int]], quick: bool) -> Pool:
    """Return what all kernels read: several times the caches, at most an eighth of the memory."""
    largest = max(out * inner for out, inner in shapes) * FP32_BYTES
    wanted = 2 * largest if quick else max(8 * host.cache_bytes, 3 * largest)
    size = max(min(wanted, host.memory_bytes // 8), largest)
    # Ones: a zeroed pool would be one page of the kernel's, in the cache however large it is.
    return np.ones(size // FP32_BYTES // host.threads * host.threads, np.float32)


def _repeat(visits: Sequence[Callable[[], float]], quick: bool) -> list[list[float]]:
    for visit in visits:  # first calls allocate buffers and wake threads
        visit()
    started = time.perf_counter()
    repeats: list[list[float]] = []
    while len(repeats) < (_QUICK_REPEATS if quick else _REPEATS):
        if len(repeats) >= _LEAST_REPEATS and time.perf_counter() - started > _BUDGET_S:
            break
        repeats.append([visit() for visit in visits])
    return repeats


def _gemm_visit(pool: Pool, out: int, inner: int, rows: int) -> Callable[[], float]:
    """Return a function that times multiplications, each with the next matrix of the pool."""
    size = out * inner
    # Stored (in, out), as numpy multiplies fastest: engines too pack weights as they like them.
    matrices = itertools.cycle(
        pool[start : start + size].reshape(inner, out)
        for start in range(0, len(pool) - size + 1, size)
    )
    activations = np.ones((rows, inner), np.float32)
    result = np.empty((rows, out), np.float32)

    def visit() -> float:
        best, ends = np.inf, time.perf_counter() + _VISIT_S
        while best == np.inf or time.perf_counter() < ends:
            matrix = next(matrices)
            best = min(best, _seconds(lambda: np.matmul(activations, matrix, out=result)))  # noqa: B023
        return best

    return visit


def _scaled(part: Pool) -> Pool:
    return np.multiply(part, np.float32(1.0), out=part)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


# Fitting


def fit_gemm(
    gemms: Sequence[GemmTiming], *, bandwidth_bytes_per_s: float, peak_flop_per_s: float
) -> GemmFit:
    """Fit equation (1) to times of fp32 matrix multiplications.

    Parameters
    ----------
    bandwidth_bytes_per_s, peak_flop_per_s : float
        What the fitted rates are stated as fractions of.

    Notes
    -----
    Least squares of the logarithm of the time, with a loss that forgives what other work on the
    machine has delayed. An interval holds the standard error of the fit and the fit to the median
    times instead of the best ones.

    One row is left out: a BLAS has a kernel of its own for it, and from two rows on packs the
    matrix anew at each call (OpenBLAS on two EPYC cores reads it 2.7 times as fast for one row as
    for two). Engines do neither: they call one kernel for any rows, or pack their weights once,
    and then one row and four cost alike, which is what speculation turns on. So the rate of one
    row, the best that packed weights can be read at, is the upper end of `bandwidth_frac` and not
    part of the fit.

    Raises
    ------
    CalibrationError
        Fewer than five times of more than one row: there are four constants.
    """
    from scipy.optimize import least_squares

    single = [g for g in gemms if g.rows == 1]
    gemms = [g for g in gemms if g.rows > 1]
    if len(gemms) < 5:
        raise CalibrationError(
            f"{len(gemms)} GEMM times of more than one row for four constants; 5 are needed"
        )
    rows, outs, inners = (
        np.array([getattr(g, name) for g in gemms], dtype=float)
        for name in ("rows", "out_features", "in_features")
    )

    # Fractions and sharpness by their logarithms; the launch may well be too short to be seen.
    def modelled(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        launch_us, bandwidth, compute, sharpness = _constants(x)
        cost = gemm(
            rows=rows, out_features=outs, in_features=inners, weight_bytes=FP32_BYTES,
            rates=GemmRates(
                launch_s=launch_us * MICRO, bytes_per_s=bandwidth * bandwidth_bytes_per_s,
                flop_per_s=compute * peak_flop_per_s, sharpness=sharpness,
            ),
        )  # fmt: skip
        return np.asarray(cost.total_s, dtype=float)

    bounds = np.array([_LAUNCH_US, _FRACTION, _FRACTION, _SHARPNESS]).T
    bounds[:, 1:] = np.log(bounds[:, 1:])
    lower, upper = bounds
    start = np.array([_START[0], *np.log(_START[1:])])

    def fitted(times: npt.NDArray[np.float64]) -> Any:
        def misfit(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return np.log(modelled(x) / times)

        return least_squares(
            misfit,
            start, bounds=(lower, upper), loss="soft_l1", f_scale=0.1, x_scale=(10.0, 1, 1, 1),
        )  # fmt: skip

    best_times = np.array([g.best_s for g in gemms])
    best = fitted(best_times)
    typical = fitted(np.array([g.typical_s for g in gemms])).x
    errors = modelled(best.x) / best_times - 1.0
    variance = float(np.mean(np.log1p(errors) ** 2)) * len(gemms) / (len(gemms) - len(best.x))
    # A constant at its bound has no slope left: the pseudo-inverse leaves it without an error.
    half = Z90 * np.sqrt(variance * np.diag(np.linalg.pinv(best.jac.T @ best.jac)))
    lows = _constants(np.maximum(np.minimum(best.x - half, typical), lower))
    highs = _constants(np.minimum(np.maximum(best.x + half, typical), upper))
    packed = max((g.weight_bytes_per_s for g in single), default=0.0) / bandwidth_bytes_per_s
    highs[1] = max(highs[1], min(packed, _FRACTION[1]))
    estimates = [
        Estimate(float(value), float(low), float(high))
        for value, low, high in zip(_constants(best.x), lows, highs, strict=True)
    ]
    worst = int(np.argmax(np.abs(errors)))
    launch_us, bandwidth_frac, compute_frac, sharpness = estimates
    return GemmFit(
        launch_us,
        bandwidth_frac,
        compute_frac,
        sharpness,
        median_error=float(np.median(np.abs(errors))),
        worst_error=float(abs(errors[worst])),
        worst_rows=gemms[worst].rows,
    )


def _constants(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([x[0], *np.exp(x[1:])])
