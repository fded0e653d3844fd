"""A grid says what `predict` says, point by point."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from specsim.analysis.grid import Grid
from specsim.analysis.predict import predict
from specsim.catalog.scenario import load_scenario
from specsim.errors import UsageError
from specsim.schema.grid import columns

EXAMPLES = Path(__file__).parents[3] / "examples"
CHAT = EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml"


def evaluated(grid):
    blocks = [grid.evaluate(part) for part in grid.parts()]
    return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}


def grid_of(path=CHAT, **axes):
    return Grid(load_scenario(path), {k.replace("__", "."): v for k, v in axes.items()})


AXES = [
    {"speculation__num_speculative_tokens": (1, 4), "load__concurrency": (1, 24, 256)},
    {
        "hardware__accelerator": ("h100_sxm", "l40s"),
        "speculation__acceptance__rate": (0.0, 0.55, 1.0),
        "load__concurrency": (8, 64),
    },
    {
        "speculation__acceptance__length": (1.0, 2.2, 4.0),
        "workload__input_tokens": (128, 3000),
        "load__concurrency": (32,),
    },
    {
        "speculation__acceptance__draft_acceptance_rate": (0.2, 0.7),
        "target__weight_dtype": ("bf16", "fp8"),
        "load__request_rate": (1.0, 12.0),
    },
]


@pytest.mark.parametrize("axes", AXES)
def test_every_point_is_what_predict_says(axes):
    grid = grid_of(**axes)
    rows = evaluated(grid)
    assert grid.size == rows["speedup"].size == math.prod(len(v) for v in axes.values())
    for i in range(grid.size):
        given = {key: rows[key][i].item() for key in grid.axes}
        point = predict(load_scenario(CHAT, overrides=given)).points[0]
        off, on = point.baseline, point.speculative
        assert rows["status"][i] == "ok"
        assert rows["speedup"][i] == pytest.approx(point.speedup, rel=1e-9)
        assert rows["tpot_ms_on"][i] == pytest.approx(on.tpot_ms, rel=1e-9)
        assert rows["itl_ms_on"][i] == pytest.approx(on.itl_ms, rel=1e-9)
        assert rows["ttft_ms_off"][i] == pytest.approx(off.ttft_ms, rel=1e-9)
        assert rows["output_tok_s_on"][i] == pytest.approx(on.output_tok_s, rel=1e-9)
        assert rows["usd_per_mtok_off"][i] == pytest.approx(off.usd_per_mtok, rel=1e-9)
        assert rows["tokens_per_step"][i] == pytest.approx(on.tokens_per_step, rel=1e-9)
        assert rows["limited_by_off"][i] == off.limited_by


def test_adaptive_verification_at_each_acceptance():
    path = {
        "target": {"model": "qwen3-8b"}, "hardware": {"accelerator": "h100_sxm"},
        "speculation": {
            "method": "dspark", "drafter": "dspark-qwen3-8b", "num_speculative_tokens": 7,
            "adaptive_verification": True, "acceptance": {"rate": 0.5},
        },
    }  # fmt: skip
    grid = Grid(
        load_scenario(path),
        {"speculation.acceptance.rate": (0.3, 0.8), "load.concurrency": (1, 200)},
    )
    rows = evaluated(grid)
    for i in range(4):
        given = {key: rows[key][i].item() for key in grid.axes}
        point = predict(load_scenario(path, overrides=given)).points[0]
        assert rows["speedup"][i] == pytest.approx(point.speedup, rel=1e-9)


def test_rows_come_in_the_order_of_the_axes_load_fastest():
    grid = grid_of(
        load__concurrency=(1, 2),
        hardware__tensor_parallel_size=(1, 2),
        speculation__acceptance__rate=(0.4, 0.6),
    )
    rows = evaluated(grid)
    got = list(zip(*(rows[key].tolist() for key in grid.axes), strict=True))
    assert got == [(c, tp, a) for tp, a, c in itertools.product((1, 2), (0.4, 0.6), (1.0, 2.0))]


def test_without_a_load_axis_the_ladder_of_the_scenario_is_used():
    rows = evaluated(grid_of(speculation__num_speculative_tokens=(1, 2)))
    assert rows["load.concurrency"].tolist() == [1, 2, 4, 8, 16, 32, 64, 128, 256] * 2


def test_what_cannot_be_served_is_a_row_that_says_why():
    rows = evaluated(
        grid_of(
            target__model=("llama-3.1-8b", "llama-3.1-405b", "qwen3-8b"), load__concurrency=(8,)
        )
    )
    assert rows["status"].tolist() == ["ok", "refused", "refused"]
    assert "hidden states" in rows["reason"][1] or "vocabularies differ" in rows["reason"][1]
    assert np.isnan(rows["speedup"][1:]).all()
    small = evaluated(
        Grid(
            load_scenario(EXAMPLES / "llama-3.3-70b-4xh100.yaml"),
            {"hardware.tensor_parallel_size": (1, 4), "load.concurrency": (8,)},
        )
    )
    assert small["status"].tolist() == ["infeasible", "ok"]
    assert "the smallest that fits" in small["reason"][0]


def test_a_rate_beyond_an_arm_is_unstable():
    rows = evaluated(grid_of(load__request_rate=(1.0, 1e5)))
    assert rows["status"].tolist() == ["ok", "unstable"]
    assert np.isnan(rows["speedup"][1])


def test_acceptance_that_no_step_can_yield_is_refused():
    rows = evaluated(grid_of(speculation__acceptance__length=(2.0, 9.0), load__concurrency=(8,)))
    assert set(rows["status"]) == {"refused"}
    assert "allowed at k = 3 are 1 to 4" in rows["reason"][0]


def test_bands_hold_the_point_and_are_like_those_of_predict():
    grid = Grid(load_scenario(CHAT), {"load.concurrency": (8, 128)}, bands=True)
    rows = evaluated(grid)
    for i, load in enumerate((8, 128)):
        point = predict(load_scenario(CHAT, overrides={"load.concurrency": [load]})).points[0]
        assert rows["speedup_low"][i] <= rows["speedup"][i] <= rows["speedup_high"][i]
        assert rows["speedup_low"][i] == pytest.approx(point.speedup_low, rel=0.05)
        assert rows["speedup_high"][i] == pytest.approx(point.speedup_high, rel=0.05)
    assert "speedup_low" in columns(bands=True)
    assert "speedup_low" not in columns(bands=False)


def test_method_none_has_one_arm():
    rows = evaluated(
        Grid(
            load_scenario(CHAT, overrides={"speculation": {"method": "none"}}),
            {"load.concurrency": (8,)},
        )
    )
    assert rows["status"].tolist() == ["ok"]
    assert np.isfinite(rows["tpot_ms_off"][0])
    assert np.isnan(rows["tpot_ms_on"][0])


def test_parts_hold_every_deployment_once():
    grid = grid_of(
        workload__input_tokens=tuple(range(100, 2100)), load__concurrency=tuple(range(1, 101))
    )
    numbers = [number for part in grid.parts() for number in part]
    assert numbers == list(range(2000))
    assert max(len(part) for part in grid.parts()) * grid.points_per_deployment <= 200_000


def test_axes_that_contradict_each_other_are_refused():
    with pytest.raises(UsageError, match="vary one form"):
        grid_of(speculation__acceptance__rate=(0.5,), speculation__acceptance__length=(2.0,))
    with pytest.raises(UsageError, match="no values"):
        grid_of(load__concurrency=())
