from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.catalog.calibration import dump_calibration, load_calibration, load_rules
from specsim.errors import InputError
from specsim.schema.calibration import Calibration


def parameter(name: str, scale: str, factor: float, **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "scale": scale, "factor": factor, "low": 0.7 * factor, "high": 1.4 * factor,
        "prior_sd": 0.1, "identifiable": True, **changes,
    }  # fmt: skip


def content(**changes: Any) -> dict[str, Any]:
    return {
        "specsim_calibration": 1,
        "created": "2026-07-10",
        "specsim": "0.1.0",
        "scope": {
            "accelerator": "h100_sxm", "engine": "vllm", "engine_version": "0.33",
            "model": "llama-3.1-8b", "weight_dtype": "bf16", "kv_dtype": "bf16",
            "method": "eagle3", "drafter": "eagle3-llama-3.1-8b",
        },
        "traffic": {"input_tokens": [512.0, 1024.123456], "output_tokens": [256.0, 256.0],
                    "lockstep": ["off"]},
        "parameters": [
            parameter("bandwidth", "log", 0.912345678),
            parameter("host", "linear", 3.123456789, identifiable=False, at_bound=True),
        ],
        "covariance": [[0.0012345678, -1.2345678e-7], [-1.2345678e-7, 2.5]],
        "run_log_sd": 0.0312345678,
        "speedup_log_sd": 0.02,
        "acceptance": [
            {"num_speculative_tokens": 3, "length": 2.4, "per_position": [0.7, 0.4, 0.3],
             "counts": 1200, "proposal_rate": 0.45},
            {"num_speculative_tokens": 5, "length": 2.6},
        ],
        "left_out": {"loads": 4, "speedup_median_pct": 1.5, "speedup_log_sd": 0.02},
        "runs": [{"source": "off · 1.json", "arm": "off", "concurrency": 4.0}],
        **changes,
    }  # fmt: skip


def write(path: Path, data: object) -> Path:
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    return path


def test_what_is_written_is_read_back_to_six_digits(tmp_path: Path) -> None:
    made = Calibration.model_validate(content())
    path = tmp_path / "calibration.yaml"
    path.write_text(dump_calibration(made), encoding="utf-8")
    got = load_calibration(path)
    assert got.created == dt.date(2026, 7, 10)
    bandwidth, host = got.parameters
    assert bandwidth.factor == 0.912346
    assert (host.factor, host.identifiable, host.at_bound) == (3.12346, False, True)
    assert got.covariance == ((0.00123457, -1.23457e-7), (-1.23457e-7, 2.5))
    assert got.run_log_sd == 0.0312346
    assert got.traffic.input_tokens == (512.0, 1024.12)
    # All else comes back exactly, and a second time nothing changes.
    for name in ("scope", "acceptance", "left_out", "runs", "specsim"):
        assert getattr(got, name) == getattr(made, name)
    assert dump_calibration(got) == path.read_text(encoding="utf-8")


def test_the_shipped_table_covers_what_it_says() -> None:
    rules = load_rules()
    for name, spec in rules.parameters.items():
        low, high = spec.factor
        assert low < 1.0 < high, name
        assert spec.scale == "linear" or low > 0, name
        assert spec.least_sd > 0 or spec.least_share > 0, name
    families = [f for spec in rules.parameters.values() for f in spec.families]
    assert len(families) == len(set(families))
    assert all(0 < share <= 1 for share in rules.scope_widening.values())


BROKEN = {
    "a scenario": ({"target": {"model": "llama-3.1-8b"}}, "is no calibration; make one with"),
    "an unknown key": (content(bandwith=1), "unknown key 'bandwith'"),
    "without its traffic": ({k: v for k, v in content().items() if k != "traffic"},
                            "missing key 'traffic'"),
    "an arm that there is not": (
        content(traffic={"input_tokens": [1, 2], "output_tokens": [1, 2], "lockstep": ["both"]}),
        "traffic.lockstep",
    ),
    "a share beyond all": (
        content(acceptance=[{"num_speculative_tokens": 3, "length": 2.4, "proposal_rate": 1.2}]),
        "proposal_rate",
    ),
    "no parameters": (content(parameters=[], covariance=[]), "parameters"),
    "cut short": ({k: v for k, v in content().items() if k != "covariance"},
                  "missing key 'covariance'"),
    "not square": (content(covariance=[[0.1, 0.0], [0.0]]), "covariance must be 2 x 2"),
    "of another size": (content(covariance=[[0.1]]), "covariance must be 2 x 2"),
    "negative variance": (content(covariance=[[0.1, 0.0], [0.0, -0.1]]), "negative variance"),
    "not a number": (content(covariance=[[0.1, float("nan")], [0.0, 0.1]]), "covariance"),
    "an unknown parameter": (
        content(parameters=[parameter("bandwidth", "log", 1.0), parameter("warp", "log", 1.0)]),
        "unknown 'warp'; known: bandwidth, compute, sharpness, host",
    ),
    "a parameter twice": (
        content(parameters=[parameter("host", "linear", 1.0), parameter("host", "linear", 2.0)]),
        "a name stands twice",
    ),
    "log of nothing": (
        content(parameters=[parameter("bandwidth", "log", 0.0), parameter("host", "linear", 1.0)]),
        "bandwidth is fitted as a logarithm",
    ),
    "another version": (content(specsim_calibration=2), "specsim_calibration"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_line_that_names_the_key(
    tmp_path: Path, data: object, said: str
) -> None:
    path = write(tmp_path / "broken.yaml", data)
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    message = str(caught.value)
    assert said in message
    assert message.startswith(str(path))
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "specsim_calibration: [", "- 1\n- 2\n", "\x00\x01"])
def test_a_truncated_file_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cut.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert "cut.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_real_file_cut_anywhere_never_loads(tmp_path: Path) -> None:
    whole = dump_calibration(Calibration.model_validate(content(runs=[])))
    end = whole.index("left_out")
    for length in range(0, end, 97):
        path = tmp_path / "cut.yaml"
        path.write_text(whole[:length], encoding="utf-8")
        with pytest.raises(InputError):
            load_calibration(path)
