"""A grid says what `predict` says, point by point."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from specsim.analysis.grid import Grid
from specsim.analysis.predict import predict
from specsim.catalog.scenario import load_scenario
from specsim.errors import SpecsimError, UsageError
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


@pytest.mark.parametrize("bands", [False, True])
def test_a_rate_beyond_an_arm_is_unstable_and_that_arm_is_empty(bands):
    scenario = load_scenario(CHAT)
    rates = tuple(np.geomspace(10.0, 1e3, 60).tolist())
    rows = evaluated(Grid(scenario, {"load.request_rate": (*rates, 1e5)}, bands=bands))
    assert rows["status"][0] == "ok"
    assert (rows["status"][-1], rows["reason"][-1]) == (
        "unstable", "off and on: cannot serve this rate",
    )  # fmt: skip
    bad = rows["status"] == "unstable"
    assert np.isnan(rows["speedup"][bad]).all()
    if bands:
        assert np.isnan(rows["speedup_low"][bad]).all()
        assert np.isnan(rows["speedup_high"][bad]).all()
    for side in ("off", "on"):
        empty = np.isnan(rows[f"tpot_ms_{side}"])
        assert (np.char.find(rows["reason"].astype(str), side) >= 0)[empty].all()
        assert np.isnan(rows[f"step_ms_{side}"][empty]).all()
        assert set(rows[f"limited_by_{side}"][empty]) == {""}
        assert np.isfinite(rows[f"kv_tokens_{side}"]).all()


def test_one_arm_alone_can_be_unstable():
    rows = evaluated(
        Grid(
            load_scenario(CHAT, overrides={"speculation": {"method": "none"}}),
            {"load.request_rate": (1.0, 1e5)},
        )
    )
    assert rows["status"].tolist() == ["ok", "unstable"]
    assert rows["reason"][1] == "off: cannot serve this rate"


def test_only_the_acceptance_that_no_step_can_yield_is_refused():
    rows = evaluated(
        grid_of(
            speculation__acceptance__length=(9.0, 0.5, 3.5),
            speculation__num_speculative_tokens=(2, 3),
            load__concurrency=(8, 16),
        )
    )
    assert rows["status"].tolist() == ["refused"] * 10 + ["ok"] * 2
    assert "length 9: allowed at k = 2 are 1 to 3" in rows["reason"][0]
    assert "length 9: allowed at k = 3 are 1 to 4" in rows["reason"][6]
    assert np.isnan(rows["batch_off"][:10]).all()
    assert rows["limited_by_on"].tolist() == [""] * 10 + ["load"] * 2


LIMITS = [
    # n-gram drafts at half of the steps: at most 1 + 0.5 x 3 tokens per step.
    ("length", 2.5, {"method": "ngram", "num_speculative_tokens": 3,
                     "acceptance": {"length": 1.5, "proposal_rate": 0.5}}, "vllm"),
    # A tree of 8 tokens and depth 3: 3 of 7 drafts at most.
    ("draft_acceptance_rate", 3 / 7,
     {"method": "eagle3", "drafter": "eagle3-llama3.1-8b", "num_speculative_tokens": 3,
      "tree": {"topk": 2, "num_draft_tokens": 8}, "acceptance": {"rate": 0.6}}, "sglang"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "most", "speculation", "engine"), LIMITS)
def test_the_most_that_acceptance_can_be_is_what_predict_takes(form, most, speculation, engine):
    asked = {
        "target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "h100_sxm"},
        "engine": {"name": engine}, "speculation": speculation,
    }  # fmt: skip
    key = f"speculation.acceptance.{form}"
    values = (most - 1e-6, most + 1e-6)
    extra = {"speculation.acceptance.proposal_rate": (0.5,)} if engine == "vllm" else {}
    grid = Grid(load_scenario(asked), {**extra, key: values, "load.concurrency": (8,)})
    rows = evaluated(grid)
    assert rows["status"].tolist() == ["ok", "refused"]
    given = {key: values[0], "load.concurrency": [8]} | {k: v[0] for k, v in extra.items()}
    point = predict(load_scenario(asked, overrides=given)).points[0]
    assert rows["speedup"][0] == pytest.approx(point.speedup, rel=1e-9)
    with pytest.raises(SpecsimError):
        predict(load_scenario(asked, overrides=given | {key: values[1]}))


def test_random_points_are_what_predict_says():
    random = np.random.default_rng(7)
    grid = grid_of(
        hardware__accelerator=("h100_sxm", "l40s", "mi300x"),
        speculation__num_speculative_tokens=tuple(range(1, 9)),
        workload__output_tokens=(1, 64, 700),
        speculation__acceptance__rate=tuple(np.round(random.random(40), 3).tolist()),
        load__concurrency=tuple(range(1, 601, 7)),
    )
    rows = evaluated(grid)
    for i in random.integers(grid.size, size=12):
        given = {key: rows[key][i].item() for key in grid.axes}
        point = predict(load_scenario(CHAT, overrides=given)).points[0]
        for name, value in (
            ("speedup", point.speedup), ("step_ms_on", point.speculative.step_ms),
            ("batch_on", point.speculative.batch), ("ttft_ms_on", point.speculative.ttft_ms),
            ("tpot_ms_off", point.baseline.tpot_ms),
            ("usd_per_mtok_on", point.speculative.usd_per_mtok),
        ):  # fmt: skip
            assert rows[name][i] == pytest.approx(value, rel=1e-6), (name, given)


def test_bands_are_columns_of_their_own():
    assert "speedup_low" in columns(bands=True)
    assert "speedup_low" not in columns(bands=False)


@pytest.mark.parametrize(
    "axes",
    [
        {"load.concurrency": (4, 50, 200)},
        {"speculation.acceptance.rate": (0.3, 0.8), "load.concurrency": (4, 200)},
        {"speculation.acceptance.length": (1.5, 3.0), "load.request_rate": (2.0, 60.0, 1e5)},
    ],
)
def test_bands_are_those_of_predict(axes, monkeypatch):
    monkeypatch.setattr("specsim.analysis.grid_rows._BAND_LOADS", 2)
    rows = evaluated(Grid(load_scenario(CHAT), axes, bands=True))
    ok = rows["status"] == "ok"
    for i in np.flatnonzero(ok):
        given = {key: rows[key][i].item() for key in axes}
        point = predict(load_scenario(CHAT, overrides=given)).points[0]
        assert rows["speedup_low"][i] <= rows["speedup"][i] <= rows["speedup_high"][i]
        assert rows["speedup_low"][i] == pytest.approx(point.speedup_low, rel=1e-9)
        assert rows["speedup_high"][i] == pytest.approx(point.speedup_high, rel=1e-9)
    assert np.isnan(rows["speedup_low"][~ok]).all()


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


@pytest.mark.parametrize(
    "axes",
    [
        {"workload__input_tokens": range(100, 2100), "load__concurrency": range(1, 101)},
        {"hardware__tensor_parallel_size": (1, 2), "load__concurrency": range(1, 120_001)},
        {"speculation__acceptance__rate": np.linspace(0, 1, 999).tolist(),
         "load__concurrency": range(1, 400)},
    ],
)  # fmt: skip
def test_parts_hold_every_row_once_and_are_never_large(axes):
    grid = grid_of(**{key: tuple(values) for key, values in axes.items()})
    parts = grid.parts()
    assert [tile for part in parts for tile in part] == list(range(grid.n_tiles))
    rows = [grid.n_rows(part) for part in parts]
    assert sum(rows) == grid.size == math.prod(len(v) for v in axes.values())
    assert max(rows) <= 50_000


def test_how_a_deployment_is_cut_does_not_show(monkeypatch):
    def grid():
        return grid_of(
            hardware__tensor_parallel_size=(1, 2),
            speculation__acceptance__rate=(0.2, 0.5, 0.8),
            load__concurrency=tuple(range(1, 12)),
        )

    whole = evaluated(grid())
    for most in (1, 4, 25):
        monkeypatch.setattr("specsim.analysis.grid._MOST_AT_ONCE", most)
        cut = evaluated(grid())
        for name, values in whole.items():
            if values.dtype == float:
                np.testing.assert_allclose(cut[name], values, rtol=1e-12, err_msg=name)
            else:
                assert cut[name].tolist() == values.tolist(), name


def test_words_are_columns_as_yaml_reads_them():
    rows = evaluated(
        grid_of(
            engine__cuda_graphs=(True, False),
            engine__max_num_seqs=(None, 64),
            load__concurrency=(8,),
        )
    )
    assert rows["engine.cuda_graphs"].tolist() == ["true", "true", "false", "false"]
    assert rows["engine.max_num_seqs"].tolist() == ["null", "64"] * 2


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"speculation__acceptance__rate": (0.5,), "speculation__acceptance__length": (2.0,)},
         "vary one of them"),
        ({"load__concurrency": (1,), "load__request_rate": (1,)}, "vary one of them"),
        ({"load__concurrency": ()}, "no values"),
        ({"load__concurrency": (1, 0)}, "got 0; allowed: 1 and more"),
        ({"load__request_rate": (0,)}, "got 0; allowed: above 0"),
        ({"load__concurrency": (math.nan,)}, "got nan"),
        ({"load__concurrency": ("many",)}, "expected a number"),
        ({"speculation__acceptance__rate": (None,)}, "expected a number"),
        ({"load__concurency": (1,)}, "nearest: load.concurrency"),
        ({"load": ({"concurrency": [1]},)}, "no such key"),
    ],
)  # fmt: skip
def test_axes_that_make_no_grid_are_refused(axes, said):
    with pytest.raises(UsageError, match=said):
        grid_of(**axes)
