"""What the data settled, in words around numbers that are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from specsim import predict
from specsim.catalog.files import read_mapping
from specsim.catalog.general import load_general
from specsim.catalog.scenario import load_scenario
from specsim.schema.results import Point
from specsim.schema.scenario import Scenario
from specsim.schema.validation import CaseCheck, PointCheck
from validation_report import figures
from validation_report.markdown import section

FACTS = figures.ROOT / "validation" / "settled.yaml"
GRAPH_TOKENS = 512
HEAD = """\
Questions that theory leaves open, and what the measurements say. Figures of others are computed
once by `tools/validation_report/settled.py` and kept in `validation/settled.yaml`; predictions are
computed with the page.
"""


def physics_section() -> str:
    """Return an item for each question."""
    facts = read_mapping(FACTS)
    items = (
        ("Experts shared within a sequence", _experts(facts["expert_overlap"])),
        ("Verify attention with several queries", _attention(facts["verify_attention"])),
        ("Trees against chains on SGLang", _trees()),
        ("A draft model in vLLM 0.33", _draft_model()),
        ("The cliff at the graph limit", _cliff()),
        ("The cost of k = 0", _k_zero(facts["k_zero"])),
        ("A drafter that is never right", _zero(facts["zero_acceptance"])),
        ("Acceptance over load", _flat(facts["flatness"])),
        ("ITL over TPOT", _itl(facts["itl_over_tpot"])),
    )
    return section(
        "Physics settled with the data",
        HEAD.strip(),
        *(f"**{title}.** {' '.join(sentences)}" for title, sentences in items),
    )


def _case(name: str) -> CaseCheck:
    return next(c for c in figures.validation().cases if c.case == name)


def _pairs(points: list[PointCheck]) -> str:
    """Return `measured (predicted)` of some points."""
    return ", ".join(
        f"{p.measured_speedup:.2f} ({p.predicted_speedup:.2f})"
        for p in points
        if p.measured_speedup is not None and p.predicted_speedup is not None
    )


def _experts(f: dict[str, Any]) -> Iterator[str]:
    shipped = load_general().sequence_overlap
    yield (
        f"On Qwen3.6-35B-A3B (top {f['topk']} of {f['experts']}) four consecutive tokens of one "
        f"sequence touch {f['run_of_4']:.1f} experts and four of different sequences "
        f"{f['batch_of_4']:.1f}; sixteen touch {f['run_of_16']:.0f} against {f['batch_of_16']:.0f}."
    )
    yield (
        f"The growth q^beta of equation (4) fits with beta {f['beta_up_to_8']:.2f} up to 8 tokens "
        f"({f['beta']:.2f} up to 16); the Cohere figure means 0.66. Skewed routing alone explains "
        f"an exponent of {f['concentration']:.2f} on independent tokens, in the range of the "
        f"kernel fits."
    )
    yield (
        f"Shipped: {shipped.value:g} ({shipped.low:g} to {shipped.high:g}). At batch 8 on "
        f"gpt-oss-120b (k = 2, 3, 4, 6; acceptance assumed) measured and (predicted) are "
        f"{_pairs(list(_case('gptoss-eagle3-k-h100/batch8').points))}."
    )


def _attention(f: dict[str, Any]) -> Iterator[str]:
    nvl, laptop = f["h100_nvl_28k_tokens_ms"], f["rtx_4060_2k_tokens_ms"]
    several = [ms for q, ms in nvl.items() if q > 1]
    yield (
        f"28,672 more cached tokens per request cost Gemma-4-31B on one H100 NVL {nvl[1]:.1f} ms "
        f"per step with one query token and, with 2 to {max(nvl)}, {min(several):.1f} to "
        f"{max(several):.1f} ms (median {median(several):.1f}); reading the cache once per query "
        f"would multiply it by up to {max(nvl)}."
    )
    yield (
        f"On an RTX 4060 2,048 more cost {min(laptop.values()):.1f} to {max(laptop.values()):.1f} "
        f"ms whether a request has {min(laptop)} or {max(laptop)} tokens in the pass. The cache is "
        f"read once per sequence, on both."
    )


def _trees() -> Iterator[str]:
    qwen = _case("specdecode-bench/qwen3-8b-tree-gsm8k")
    llama = _case("specdecode-bench/llama3-70b-tree-sharegpt")
    yield (
        f"At batch 1 a tree wins: chain, 6 and 21 tokens on Qwen3-8B measured (predicted) "
        f"{_pairs(list(qwen.points[:3]))}; on Llama-3-70B {_pairs(list(llama.points[:3]))}."
    )
    chain, tree = (
        list(_case(f"glm47flash-h100pcie/{name}").points)
        for name in ("eagle3-chain-k3", "eagle3-tree16")
    )
    loads = ", ".join(f"{p.load:g}" for p in chain)
    ratios = [_ratio(t, c) for t, c in zip(tree, chain, strict=True)]
    yield (
        f"With load it loses: on GLM-4.7-Flash the tree of 16 over the chain, at {loads} requests, "
        f"measured (predicted) {', '.join(f'{m:.2f} ({p:.2f})' for m, p in ratios)}. The host "
        f"builds and masks a tree per request without overlap (spec v1), and verification pays for "
        "tokens of which one path at most is kept: chains are the safe default beyond a few "
        "requests."
    )


def _ratio(a: PointCheck, b: PointCheck) -> tuple[float, float]:
    return (
        (a.measured_speedup or 0.0) / (b.measured_speedup or 1.0),
        (a.predicted_speedup or 0.0) / (b.predicted_speedup or 1.0),
    )


def _scenario(
    version: str, method: str, drafter: str | None, model: str, tp: int, loads: list[int]
) -> Scenario:
    return load_scenario(
        {
            "name": "a question",
            "target": {"model": model},
            "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": tp},
            "engine": {"name": "vllm", "version": version, "max_num_seqs": 512,
                       "max_model_len": 4096},
            "speculation": {
                "method": method, "num_speculative_tokens": 3,
                "acceptance": {"length": 2.6}, **({"drafter": drafter} if drafter else {}),
            },
            "workload": {"input_tokens": 512, "output_tokens": 256},
            "load": {"concurrency": loads},
        }
    )  # fmt: skip


def _on(point: Point) -> Any:
    assert point.speculative is not None
    return point.speculative


def _draft_model() -> Iterator[str]:
    old, new = (
        predict(_scenario(version, "draft_model", "llama-3.1-8b", "llama-3.1-70b", 4, [1])).points[
            0
        ]
        for version in ("0.32", "0.33")
    )
    yield (
        "Since 0.33 vLLM runs a stand-alone draft model on the second runner without captured "
        "graphs: a 70B target with an 8B drafter on four GH200 was measured at 103 to 126 ms per "
        "round, where a pass of the drafter needs 4 ms."
    )
    yield (
        f"With the 1 ms per layer and pass that this means, the same pair on four H100 at k = 3 is "
        f"predicted at {_on(new).step_ms:.0f} ms per step and a speedup of {new.speedup:.2f}; with "
        f"0.32 it is {_on(old).step_ms:.0f} ms and {old.speedup:.2f}. It is a defect of a version, "
        f"so it lives in the engine's constants and not in the physics."
    )


def _cliff() -> Iterator[str]:
    cases = figures.cases()
    beyond = sum(
        c.scored
        and p.measured_speedup is not None
        and (p.load or 0.0) * (1 + p.num_speculative_tokens) > GRAPH_TOKENS
        and cases[c.case].points[p.index].concurrency is not None
        and cases[c.case].scenario.engine.name == "vllm"
        for c in figures.validation().cases
        for p in c.points
    )
    yield (
        f"vLLM's graphs cover {GRAPH_TOKENS} tokens by default, so with k = 3 a step leaves them "
        "beyond 128 requests. The only direct figure is Qwen3-1.7B on an H100 (vLLM 0.28): 2.2 to "
        "2.4 ms captured, 8.2 ms flat without. "
        f"{beyond or 'None'} of the scored vLLM points lie beyond the limit."
    )
    small, large = (
        predict(_scenario("0.29", "ngram", None, model, 1, [128, 129])).points
        for model in ("qwen3-0.6b", "llama-3.1-8b")
    )
    yield (
        "Predicted verification at 128 and 129 requests: "
        f"{_verify(small)} for Qwen3-0.6B and {_verify(large)} for Llama-3.1-8B, whose step takes "
        "longer than its launches: the cliff is one of small models and of tensor parallelism. No "
        "measurement at the edge checks it."
    )


def _verify(points: Sequence[Point]) -> str:
    return " and ".join(f"{_on(p).verify_ms:.1f} ms" for p in points)


def _k_zero(f: dict[str, Any]) -> Iterator[str]:
    each = "; ".join(
        f"{name}: {e['off_ms']:.1f} to {e['k0_ms']:.1f} ms (+{e['percent']:.0f} %)"
        for name, e in f.items()
    )
    yield (
        f"A loaded drafter that drafts nothing (a tier with k = 0 of a dynamic schedule) is not "
        f"free on the builds measured (Gemma-4-31B, H100 NVL): {each}."
    )
    extra = [e["k0_ms"] - e["off_ms"] for e in f.values()]
    yield (
        f"That is {min(extra):.1f} to {max(extra):.1f} ms per step, from piecewise graphs and the "
        f"drafter still following the text, and it is not part of the physics: a tier with k = 0 "
        f"is worse than speculation switched off by as much."
    )


def _zero(f: dict[str, Any]) -> Iterator[str]:
    on = _case("llama70b-fp8-eagle3-zero-acceptance-qps/on-only")
    errors = [a.error_pct for p in on.points for a in p.arms if a.metric == "tpot_ms"]
    yield (
        f"Llama-3.3-70B FP8 with a mismatched EAGLE-3 head (k = 3, acceptance 0.01 %) on an H200 "
        f"takes {f['on_ms']:.0f} ms per token with {f['in_flight']:.0f} requests in flight, and "
        f"{f['off_ms']:.0f} ms without speculation at the same number: +{f['percent']:.0f} %, the "
        f"whole price of drafting and verifying when nothing comes back."
    )
    yield (
        f"The prediction of that arm is off by {', '.join(f'{e:+.0f}' for e in errors)} % at its "
        f"loads (lengths and cached share are assumed)."
    )


def _flat(f: dict[str, Any]) -> Iterator[str]:
    worst = ", ".join(f"{name}: {spread:.0f} %" for name, spread in list(f["largest"].items())[:2])
    yield (
        f"Over {f['trained']} curves of trained drafters with three loads or more the acceptance "
        f"length moves by {f['trained_median_percent']:.1f} % of itself at the median and "
        f"{f['trained_largest_percent']:.0f} % at most, without a trend: it is a property of text "
        f"and drafter, and one figure per curve is enough."
    )
    yield (
        "The exceptions are runs of few prompts, and n-gram in SGLang, which looks up the text of "
        f"other requests too ({worst})."
    )


def _itl(f: dict[str, Any]) -> Iterator[str]:
    low, high = f["without_speculation"]
    yield (
        f"One chunk per step reaches the client, so mean ITL over mean TPOT is the acceptance "
        f"length. In {f['files']} result files with the server's own count the ratio is off by "
        f"{f['median_abs_percent']:.1f} % at the median, within 2 % in {f['within_2_percent']}, "
        f"and {f['largest_abs_percent']:.1f} % at most; without speculation it is {low:.2f} to "
        f"{high:.2f}."
    )
    yield (
        "It needs no metric of the server, and it is a check on any acceptance length that "
        "somebody reports: where the two disagree by more than a few percent, one of them was "
        "measured on something else."
    )
