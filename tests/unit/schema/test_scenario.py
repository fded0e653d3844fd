"""What a scenario cannot say: loads, trees, token budgets, truth values as numbers."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.errors import InputError
from specsim.schema.base import parse
from specsim.schema.model import DrafterSpec
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import Tree


def scenario(**parts: Any) -> Scenario:
    data = {"target": {"model": "m"}, "hardware": {"accelerator": "h100_sxm"}, **parts}
    return parse(Scenario, data, what="s")


def refused(**parts: Any) -> str:
    with pytest.raises(InputError) as caught:
        scenario(**parts)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_token_budget_below_the_batch_is_refused_as_vllm_does() -> None:
    said = refused(engine={"max_num_batched_tokens": 64, "max_num_seqs": 128})
    assert "max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (128)" in said
    scenario(engine={"max_num_batched_tokens": 128, "max_num_seqs": 128})
    # SGLang's --chunked-prefill-size is of prompts and caps no batch.
    scenario(engine={"name": "sglang", "max_num_batched_tokens": 64, "max_num_seqs": 128})


def test_a_token_budget_holds_one_draft_with_its_bonus_token() -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 8}
    assert "must be at least speculation.num_speculative_tokens + 1 (9)" in refused(
        engine={"max_num_batched_tokens": 8}, speculation=drafts
    )
    scenario(engine={"max_num_batched_tokens": 9}, speculation=drafts)
    scenario(engine={"max_num_batched_tokens": 8}, speculation={"method": "none"})


def test_loads_in_plain_words() -> None:
    assert "load.concurrency: got []; there is no load in it" in refused(load={"concurrency": []})
    many = list(range(1, 1002))
    assert "that is 1001 loads; give at most 1000" in refused(load={"request_rate": many})
    assert len(scenario(load={"concurrency": many[:1000]}).load.concurrency or ()) == 1000
    assert "load.concurrency: got true" in refused(load={"concurrency": [True]})


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"request_rate": [1e-7]}, "request_rate goes from 0.000001 to 1,000,000,000 requests/s"),
        ({"request_rate": [1, 1e300]}, "request_rate goes from 0.000001 to 1,000,000,000"),
        ({"request_rate": [0]}, "loads must be above 0"),
        ({"concurrency": [1e300]}, "concurrency ends at 10,000,000"),
    ],
)
def test_loads_that_nobody_has(load: dict[str, Any], said: str) -> None:
    assert said in refused(load=load)
    assert scenario(load={"request_rate": [1e-6, 1e9]}).load.request_rate == (1e-6, 1e9)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("workload", "burstiness", 1e-320),
        ("workload", "burstiness", 0.009),
        ("workload", "burstiness", 1e300),
        ("workload", "temperature", 1e300),
        ("workload", "num_requests", 10**30),
        ("engine", "max_model_len", 10**30),
        ("engine", "max_num_seqs", 10**30),
        ("engine", "max_num_batched_tokens", 10**30),
        ("engine", "max_graph_tokens", 10**30),
        ("engine", "host_ms", 1e23),
        ("engine", "speculative_host_ms", 1e23),
        ("engine", "draft_host_ms", 1e23),
    ],
)
def test_figures_that_are_slips(part: str, key: str, value: float) -> None:
    assert f"{part}.{key}: got {value!r}; input should be" in refused(**{part: {key: value}})


@pytest.mark.parametrize(
    ("topk", "depth", "most"), [(1, 3, 4), (2, 3, 15), (4, 2, 21), (8, 3, 512), (100, 64, 512)]
)
def test_a_tree_has_no_more_tokens_than_its_branches_allow(
    topk: int, depth: int, most: int
) -> None:
    assert Tree(topk=topk, num_draft_tokens=2).most_tokens(depth) == most


def test_trees_out_of_bounds() -> None:
    def tree(topk: int, tokens: int, depth: int = 3) -> dict[str, Any]:
        shape = {"topk": topk, "num_draft_tokens": tokens}
        return {"method": "eagle", "num_speculative_tokens": depth, "tree": shape}

    assert "less than or equal to 512" in refused(speculation=tree(100, 1000))
    assert "(16) is above 15, all tokens of a tree of topk 2 and depth 3" in refused(
        speculation=tree(2, 16)
    )
    scenario(speculation=tree(2, 15))
    scenario(speculation=tree(8, 64, 6))


@pytest.mark.parametrize("value", [True, False])
def test_truth_values_are_no_numbers(value: bool) -> None:
    for part, key in (("workload", "temperature"), ("hardware", "tensor_parallel_size")):
        fields = {"accelerator": "b", key: value} if part == "hardware" else {key: value}
        said = refused(**{part: fields})
        assert f"{part}.{key}: got " in said
    assert scenario(engine={"cuda_graphs": value}).engine.cuda_graphs is value


@pytest.mark.parametrize(
    ("given", "read"), [("0.10", "0.10"), (0.33, "0.33"), (0.25, "0.25"), (1, "1"), (None, None)]
)
def test_versions(given: object, read: str | None) -> None:
    assert scenario(engine={"version": given}).engine.version == read


@pytest.mark.parametrize("given", [0.1, 0.5, 1.0])
def test_versions_that_may_have_lost_a_zero(given: float) -> None:
    assert f"put the version in quotes: '{given}' or '{given}0'" in refused(
        engine={"version": given}
    )
    assert "engine.version: got True" in refused(engine={"version": True})


def test_a_medusa_drafter_says_how_many_heads_it_has() -> None:
    data = {
        "id": "d", "kind": "medusa", "target": "m", "hidden_size": 64, "target_hidden_size": 64,
        "vocab_size": 100,
    }  # fmt: skip
    with pytest.raises(InputError, match="needs n_medusa_heads"):
        parse(DrafterSpec, data, what="d")
    assert parse(DrafterSpec, {**data, "n_medusa_heads": 5}, what="d").n_medusa_heads == 5


@pytest.mark.parametrize("form", [{"rate": 0.7}, {"per_position": [0.7, 0.4]}, {"profile": "p"}])
def test_only_what_hangs_on_k_was_measured_at_one(form: dict[str, Any]) -> None:
    said = refused(speculation={"method": "eagle", "acceptance": {**form, "measured_at_k": 4}})
    assert "measured_at_k belongs to length and draft_acceptance_rate" in said
    assert f"{next(iter(form))} does not" in said
