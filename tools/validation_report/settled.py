"""Compute the facts behind 'physics settled with the data' from the measurements.

Run once where the data folder is present; the page is made from what it writes:

    cd tools && python -m validation_report.settled ../../shared
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

KEPT = Path(__file__).parents[2] / "validation" / "settled.yaml"
Row = dict[str, str]


def rows(folder: Path, name: str, keep: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """Return the rows of one table of measurements."""
    with (folder / "measurements" / f"{name}.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if keep(row)]


def expert_overlap(folder: Path) -> dict[str, Any]:
    """Fit how the experts that one sequence touches grow with its tokens."""
    table = rows(folder, "fergusfinn-qwen36-moe-acceptance-experts")

    def counts(metric: str) -> dict[int, float]:
        return {int(r["load"]): float(r["value"]) for r in table if r["metric"] == metric}

    run, batch = counts("distinct_experts_run_of_N"), counts("distinct_experts_batch_of_N")
    independent = counts("distinct_experts_uniform")
    q = np.array([n for n in run if n > 1])
    own = np.log([run[n] / run[1] for n in q])
    few = q <= 8
    mixed = np.log([batch[n] / batch[1] for n in q])
    uniform = np.log([independent[n] / independent[1] for n in q])
    return {
        "experts": 256,
        "topk": 8,
        "beta": round(slope(np.log(q), own), 3),
        "beta_up_to_8": round(slope(np.log(q[few]), own[few]), 3),
        "concentration": round(slope(uniform, mixed), 3),
        "run_of_4": run[4],
        "batch_of_4": batch[4],
        "run_of_16": run[16],
        "batch_of_16": batch[16],
    }


def slope(x: Any, y: Any) -> float:
    """Return the least-squares slope through the origin."""
    return float(np.dot(x, y) / np.dot(x, x))


def bench_files(folder: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield result files of a benchmark client that measured something."""
    for path in sorted((folder / "samples" / kind).glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("mean_itl_ms"):
            yield path.stem, found


def verify_attention(folder: Path) -> dict[str, Any]:
    """Return what a longer cache costs a step, by verified tokens per sequence."""
    itl = {name: f["median_itl_ms"] for name, f in bench_files(folder, "vllm_bench_rust_json")}
    arms = {1: "no_spec", 2: "k1", 3: "k2", 4: "k3", 6: "k5", 8: "k7"}
    h100 = {
        q: round(itl[f"gemma4_31b_b11_ctx32768_{arm}"] - itl[f"gemma4_31b_b11_ctx4096_{arm}"], 2)
        for q, arm in arms.items()
    }
    forward = {
        (int(r["input_len"]), int(r["load"])): float(r["value"])
        for r in rows(folder, "adixg-verify-cost-probe", lambda r: r["metric"] == "forward_ms")
    }
    laptop = {
        tokens // 8: round(forward[2048, tokens] - forward[0, tokens], 2)
        for tokens in (16, 32, 64, 128, 256, 512)
    }
    return {"h100_nvl_28k_tokens_ms": h100, "rtx_4060_2k_tokens_ms": laptop}


def k_zero(folder: Path) -> dict[str, Any]:
    """Return the cost of a loaded drafter that drafts nothing, in percent of the plain step."""
    found: dict[str, list[float]] = {}
    table = rows(folder, "depthchart-gemma31b-h100nvl", lambda r: r["metric"] == "tpot_ms")
    for length in sorted({r["input_len"] for r in table}, key=float):
        off, on = (
            median(
                float(r["value"])
                for r in table
                if r["input_len"] == length and f"arm={arm};" in r["note"]
            )
            for arm in ("no_spec", "k0")
        )
        found[f"batch 11, {float(length):.0f} tokens"] = [off, on]
    ledger = rows(folder, "depthchart-results-batchaxis", lambda r: r["metric"] == "tpot_ms")
    pairs = zip(
        (r for r in ledger if r["spec_on"] == "0"),
        (r for r in ledger if r["spec_on"] == "1"),
        strict=True,
    )
    for number, (plain, tier) in enumerate(pairs, 1):
        name = f"batch {plain['load']}, run {number}"
        found[name] = [float(plain["value"]), float(tier["value"])]
    return {
        name: {"off_ms": off, "k0_ms": on, "percent": round(100.0 * (on / off - 1.0), 1)}
        for name, (off, on) in found.items()
    }


def zero_acceptance(folder: Path) -> dict[str, Any]:
    """Return time per token of a drafter that is never right, and without it at equal batch.

    The source prints medians at one rate and 99th percentiles at all: those are scaled by the ratio
    of the two at that rate. Requests in flight are throughput x time per token.
    """
    table = rows(folder, "llama70b-fp8-eagle3-zero-acceptance-qps", lambda r: bool(r["load"]))

    def read(metric: str, spec_on: str) -> dict[float, float]:
        return {
            float(r["load"]): float(r["value"])
            for r in table
            if r["metric"] == metric and r["spec_on"] == spec_on
        }

    medians, tails = read("tpot_p50_ms", "0"), read("tpot_p99_ms", "0")
    served = read("throughput_tok_s", "0")
    scale = median(ms / tails[rate] for rate, ms in medians.items())
    off = sorted((served[rate] * ms * scale / 1e3, ms * scale) for rate, ms in tails.items())
    ((rate, on_ms),) = read("tpot_p50_ms", "1").items()
    in_flight = read("throughput_tok_s", "1")[rate] * on_ms / 1e3
    off_ms = float(np.interp(in_flight, [b for b, _ in off], [ms for _, ms in off]))
    return {
        "in_flight": round(in_flight, 0),
        "on_ms": round(on_ms, 1),
        "off_ms": round(off_ms, 1),
        "percent": round(100.0 * (on_ms / off_ms - 1.0), 0),
    }


def flatness(folder: Path) -> dict[str, Any]:
    """Return how far the acceptance length moves over the loads of one curve, in percent."""
    curves: dict[tuple[str, ...], dict[float, float]] = defaultdict(dict)
    for path in sorted((folder / "measurements").glob("*.csv")):
        if path.stem == "index_curves":
            continue
        for r in rows(folder, path.stem, lambda r: r["metric"].startswith("acceptance_length")):
            if not r["load"] or r["load_kind"] not in ("concurrency", "batch"):
                continue
            key = (path.stem, r["url"], r["drafter_method"], r["num_spec_tokens"], r["dataset"],
                   r["input_len"], r["temperature"], r["note"][:12])  # fmt: skip
            curves[key][float(r["load"])] = float(r["value"])
    spreads: dict[str, float] = {}
    for (source, _, method, k, data, *_), at in curves.items():
        if len(at) >= 3:
            low, high = min(at.values()), max(at.values())
            name = " ".join(filter(None, (source, method, k, data[:24])))
            spread = round(100.0 * (high - low) / float(np.mean(list(at.values()))), 1)
            spreads[name] = max(spread, spreads.get(name, 0.0))
    trained = [v for name, v in spreads.items() if "ngram" not in name]
    return {
        "curves": len(spreads),
        "trained": len(trained),
        "trained_median_percent": round(median(trained), 1),
        "trained_largest_percent": max(trained),
        "largest": dict(sorted(spreads.items(), key=lambda item: -item[1])[:4]),
    }


def itl_over_tpot(folder: Path) -> dict[str, Any]:
    """Compare mean ITL over mean TPOT with the acceptance length that the server counted."""
    errors: dict[str, float] = {}
    plain: list[float] = []
    for kind in ("vllm_bench_json", "vllm_bench_rust_json"):
        for name, f in bench_files(folder, kind):
            if not f.get("mean_tpot_ms"):
                continue
            ratio = f["mean_itl_ms"] / f["mean_tpot_ms"]
            counted = f.get("spec_decode_acceptance_length")
            if counted:
                errors[name] = round(100.0 * (ratio / counted - 1.0), 1)
            elif "_k0" not in name:
                plain.append(ratio)
    size = sorted(abs(e) for e in errors.values())
    worst = max(errors, key=lambda name: abs(errors[name]))
    return {
        "files": len(errors),
        "median_abs_percent": round(median(size), 1),
        "largest_abs_percent": size[-1],
        "largest_in": worst,
        "within_2_percent": sum(e <= 2.0 for e in size),
        "without_speculation": [round(min(plain), 3), round(max(plain), 3)],
    }


FACTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "expert_overlap": expert_overlap,
    "verify_attention": verify_attention,
    "k_zero": k_zero,
    "zero_acceptance": zero_acceptance,
    "flatness": flatness,
    "itl_over_tpot": itl_over_tpot,
}


def main() -> None:
    """Write the facts."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../../shared")
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder; give the one with measurements/ and samples/")
    head = "# Made by tools/validation_report/settled.py from published measurements. Facts only.\n"
    body = yaml.safe_dump({name: fact(folder) for name, fact in FACTS.items()}, sort_keys=False)
    KEPT.write_text(head + body, encoding="utf-8")


if __name__ == "__main__":
    main()
