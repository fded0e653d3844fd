"""The fit of a CPU's constants, on timings that were made from known ones."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

import numpy as np
import pytest

from specsim.catalog.hardware import load_hardware
from specsim.catalog.hardware_authoring import check_profile, dump_profile
from specsim.errors import CalibrationError
from specsim.measure.cpu import (
    ROWS,
    SHAPES,
    GemmFit,
    GemmTiming,
    Measured,
    Timing,
    fit_gemm,
)
from specsim.measure.cpu_host import Host, this_host
from specsim.measure.cpu_profile import cpu_profile
from specsim.physics.kernels import GemmRates, gemm

BANDWIDTH, PEAK = 40e9, 200e9
LAUNCH_US, BANDWIDTH_FRAC, COMPUTE_FRAC, SHARPNESS = 8.0, 0.6, 0.9, 1.7
HOST = Host("Test CPU", 4, 4, 16 * 10**9, 32 * 2**20, "openblas 0.3")


def timings(noise: float = 0.0, slower: float = 1.05) -> list[GemmTiming]:
    rng = np.random.default_rng(1)
    rates = GemmRates(
        launch_s=LAUNCH_US * 1e-6,
        bytes_per_s=BANDWIDTH_FRAC * BANDWIDTH,
        flop_per_s=COMPUTE_FRAC * PEAK,
        sharpness=SHARPNESS,
    )
    made = []
    for (out, inner), rows in itertools.product(SHAPES, ROWS):
        cost = gemm(rows=rows, out_features=out, in_features=inner, weight_bytes=4.0, rates=rates)
        seconds = float(cost.total_s) * float(np.exp(noise * rng.standard_normal()))
        made.append(GemmTiming(seconds, slower * seconds, rows, out, inner))
    return made


def fit(made: list[GemmTiming]) -> GemmFit:
    return fit_gemm(made, bandwidth_bytes_per_s=BANDWIDTH, peak_flop_per_s=PEAK)


def values(found: GemmFit) -> list[float]:
    named = (found.launch_us, found.bandwidth_frac, found.compute_frac, found.sharpness)
    return [estimate.value for estimate in named]


PLANTED = [LAUNCH_US, BANDWIDTH_FRAC, COMPUTE_FRAC, SHARPNESS]


def test_the_fit_finds_planted_constants() -> None:
    found = fit(timings())
    assert values(found) == pytest.approx(PLANTED, rel=0.01)
    assert found.worst_error < 0.001


def test_noise_widens_the_intervals_and_they_hold_the_truth() -> None:
    found = fit(timings(noise=0.05))
    exact = fit(timings())
    for name, truth in zip(
        ("launch_us", "bandwidth_frac", "compute_frac", "sharpness"), PLANTED, strict=True
    ):
        noisy, clean = getattr(found, name), getattr(exact, name)
        assert noisy.low <= noisy.value <= noisy.high
        assert noisy.high - noisy.low > clean.high - clean.low or name == "bandwidth_frac"
        # Twice the 80 % interval: five per cent of noise on forty times.
        half = noisy.high - noisy.low
        assert noisy.low - half <= truth <= noisy.high + half


def test_one_delayed_kernel_moves_little() -> None:
    made = timings()
    odd = made[15]
    made[15] = GemmTiming(3 * odd.best_s, 3 * odd.best_s, odd.rows, odd.out_features, 1024)
    assert values(fit(made))[1:] == pytest.approx(PLANTED[1:], rel=0.1)


def test_slow_medians_reach_into_the_intervals() -> None:
    low = fit(timings(slower=1.5)).bandwidth_frac.low
    assert low == pytest.approx(BANDWIDTH_FRAC / 1.5, rel=0.05)


def test_one_row_is_the_upper_end_of_the_bandwidth_alone() -> None:
    made = timings()
    fast = [
        GemmTiming(g.best_s * 0.6, g.typical_s * 0.6, g.rows, g.out_features, g.in_features)
        if g.rows == 1
        else g
        for g in made
    ]
    found = fit(fast)
    assert values(found) == pytest.approx(PLANTED, rel=0.01)
    packed = max(g.weight_bytes_per_s for g in fast) / BANDWIDTH
    assert found.bandwidth_frac.high == pytest.approx(packed)


def test_too_few_times_are_refused() -> None:
    with pytest.raises(CalibrationError, match="more than one row"):
        fit(timings()[:5])


def measured(*, quick: bool = False, host: Host = HOST) -> Measured:
    return Measured(
        host=host,
        gemms=tuple(timings()),
        read=Timing(0.012, 0.013),
        scale=Timing(0.022, 0.024),
        small=Timing(9e-7, 1e-6),
        pool_bytes=480_000_000,
        repeats=9,
        quick=quick,
    )


def written(tmp_path: Path, found: Measured) -> Path:
    data = cpu_profile(found, fit(list(found.gemms)), id="my_cpu", date=dt.date(2026, 3, 1))
    path = tmp_path / "my_cpu.yaml"
    path.write_text(dump_profile(data), encoding="utf-8")
    return path


def test_the_profile_loads_and_passes_its_check(tmp_path: Path) -> None:
    path = written(tmp_path, measured())
    assert check_profile(path) == []
    profile = load_hardware(str(path))
    block = profile.effective.gemm["fp32"]
    assert block.basis == "measured"
    assert block.source.startswith("specsim profiles measure-cpu, 2026-03-01, 4 cores")
    assert block.bandwidth_frac.value == pytest.approx(BANDWIDTH_FRAC, rel=0.01)
    assert profile.datasheet.memory_bandwidth_gb_per_s == pytest.approx(40.0, rel=0.01)
    assert profile.effective.decode_attention["fp32"].basis == "assumed"
    assert profile.effective.gemm["bf16"].basis == "assumed"
    assert "&id" not in path.read_text(encoding="utf-8")


def test_a_quick_run_and_a_missing_blas_are_told(tmp_path: Path) -> None:
    host = Host("Test CPU", 4, 4, 16 * 10**9, 32 * 2**20, None)
    path = written(tmp_path, measured(quick=True, host=host))
    (warning,) = check_profile(path)
    assert warning.startswith("warning")
    assert "no BLAS" in warning
    assert "--quick" in load_hardware(str(path)).sources[0].title


def test_this_machine_is_described() -> None:
    host = this_host()
    assert host.name
    assert host.cores >= 1
    assert host.threads >= 1
    assert host.memory_bytes > 2**20
    assert host.cache_bytes > 0
