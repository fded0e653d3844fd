"""Engine constants: inheritance between versions, the nearest version, defaults by device."""

from __future__ import annotations

import pytest

from specsim.catalog.engines import (
    engine_names,
    engine_versions,
    load_engine,
    parse_version,
    scheduler_defaults,
    version_before,
)
from specsim.errors import InputError, NotFoundError
from specsim.schema.base import Range


def test_every_engine_loads_and_its_versions_rise():
    assert engine_names() == ["sglang", "tensorrt-llm", "vllm"]
    for name in engine_names():
        parsed = [parse_version(v) for v in engine_versions(name)]
        assert parsed == sorted(parsed)
        assert len(set(parsed)) == len(parsed)


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
def test_every_range_holds_its_value(name):
    for version in engine_versions(name):
        constants, _ = load_engine(name, version)
        for field, value in constants:
            if isinstance(value, Range):
                assert 0 <= value.low <= value.value <= value.high, (version, field)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.28.0", (0, 28, 0)),
        ("0.10.1.1", (0, 10, 1, 1)),
        ("0.5.10.post1", (0, 5, 10)),
        ("0.23.1rc1", (0, 23, 1)),
        ("v0.23.1rc1.dev1201+gd08eebad1.d20260717", (0, 23, 1)),
        ("1", (1,)),
    ],
)
def test_versions_as_engines_print_them(text, release):
    assert parse_version(text) == release


def test_a_version_without_digits_is_one_line():
    with pytest.raises(InputError, match="'nightly' is not a version"):
        parse_version("nightly")


def test_missing_parts_of_a_version_are_zero():
    assert not version_before((0, 13), (0, 13, 0))
    assert version_before((0, 9), (0, 10))


@pytest.mark.parametrize(
    ("asked", "chosen", "said"),
    [
        (None, "0.33", False),
        ("0.33.0", "0.33", False),
        ("0.28.0", "0.25.1", True),
        ("0.10.1.1", "0.10", False),
        ("0.9.1", "0.8.5", True),
        ("0.23.1rc1", "0.19.1", True),
        ("0.5.4", "0.6", True),
        ("0.99", "0.33", True),
        ("0.6.3", "0.6", False),
    ],
)
def test_the_newest_version_not_newer_than_asked_is_used_and_said(asked, chosen, said):
    constants, warnings = load_engine("vllm", asked)
    assert constants.version == chosen
    assert bool(warnings) is said
    if said:
        assert asked in warnings[0]
        assert chosen in warnings[0]


def test_unknown_engine_names_the_nearest():
    with pytest.raises(NotFoundError, match="unknown engine 'vlm'; nearest: vllm"):
        load_engine("vlm")


def test_what_a_version_does_not_state_is_that_of_the_version_before():
    old, _ = load_engine("vllm", "0.6")
    new, _ = load_engine("vllm", "0.33")
    assert new.eager_layer_us == old.eager_layer_us
    assert new.block_size == 16


def test_vllm_facts_by_version():
    # Utilisation 0.9 to 0.19.1, 0.92 from 0.25.1; 1.207 ms of host time published for 0.10.1.
    utilisation = {
        v: load_engine("vllm", v)[0].gpu_memory_utilization for v in ("0.19.1", "0.25.1")
    }
    assert utilisation == {"0.19.1": 0.9, "0.25.1": 0.92}
    assert load_engine("vllm", "0.10.2")[0].sync_host_ms.value == 1.207
    newest, _ = load_engine("vllm")
    assert newest.async_scheduling
    assert newest.ngram_always_drafts
    assert newest.draft_graphs["draft_model"] == "eager"
    assert newest.draft_graphs["default"] == "full"
    assert "medusa" not in newest.methods
    assert "medusa" in load_engine("vllm", "0.29")[0].methods
    assert not load_engine("vllm", "0.19.1")[0].graph_memory_budgeted


@pytest.mark.parametrize(
    ("memory_gib", "device", "seqs", "tokens"),
    [
        (79.6, "h100_sxm", 1024, 8192),
        (79.3, "a100_sxm_80", 256, 2048),
        (119.6, "dgx_spark_gb10", 256, 2048),
        (44.5, "l40s", 256, 2048),
        (140.4, "h200_sxm", 1024, 8192),
        (178.4, "b200_sxm", 1024, 16384),
        (185.0, "gb200", 1024, 16384),
    ],
)
def test_scheduler_defaults_of_vllm(memory_gib, device, seqs, tokens):
    constants, _ = load_engine("vllm", "0.33")
    defaults = scheduler_defaults(constants, memory_gib=memory_gib, device_id=device)
    assert (defaults.max_num_seqs, defaults.max_num_batched_tokens) == (seqs, tokens)


def test_sglang_caps_running_requests_with_speculation():
    constants, _ = load_engine("sglang")
    assert constants.speculative_max_num_seqs == 48
    assert constants.tree_drafting
