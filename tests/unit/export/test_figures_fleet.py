"""A plan in pictures: rows of its candidates, and specifications that name them."""

import dataclasses

import pytest

import specsim
from specsim.export.figures import fleet, fleet_words
from specsim.schema.plan import Best, Candidate, Plan, PricePaid, Reached
from specsim.schema.scenario import Scenario

PRICE = PricePaid(2.0, "2026-07-10", "market")


def scenario(method: str = "none", **overrides: object) -> Scenario:
    data = {
        "target": {"model": "llama-3.1-8b"},
        "hardware": {"accelerator": "h100_sxm"},
        "workload": {"input_tokens": 512, "output_tokens": 256},
        "speculation": {"method": method},
    }
    if method != "none":
        data["speculation"] = {"method": method, "acceptance": {"length": 1.6}}
    return specsim.load_scenario(data, overrides=overrides)


def candidate(name: str, arm: str, replicas: int, source: Scenario, **more: object) -> Candidate:
    """Return a candidate of one GPU a replica at 2 $/h, that holds 10 requests/s at the SLO."""
    usd = 2.0 * replicas * 729.6
    values = {f.name: None for f in dataclasses.fields(Candidate)} | {
        "deployment": name, "arm": arm, "varied": {}, "accelerator": "h100_sxm",
        "gpus_per_replica": 1, "load_at_slo": 10.0, "binding": "ttft_p95_ms",
        "reached": (Reached("ttft_p95_ms", 490.0, 500.0, True, 0.98),
                    Reached("tpot_p95_ms", 20.0, 50.0, True, 0.4)),
        "replicas_base": replicas - 1, "replicas": replicas, "gpus": replicas, "servers": 1,
        "utilization_peak": 0.5, "utilization_average": 0.2, "utilization_one_down": 0.625,
        "one_down_ok": True, "one_down_speculation_off": False, "one_down": "it holds",
        "price": PRICE, "usd_per_month": usd, "usd_per_mtok_average": 4.0,
        "usd_per_mtok_peak": 1.6, "simulations": 9, "warnings": (), "source": source,
    } | more  # fmt: skip
    return Candidate(**values)  # type: ignore[arg-type]


OFF = candidate("m h100 tp1", "baseline", 6, scenario())
ON = candidate("m h100 tp1 ngram k3", "speculative", 5, scenario("ngram"), load_at_slo=12.5)
OTHER = candidate(
    "m h200 tp1", "baseline", 4, scenario(**{"hardware.accelerator": "h200_sxm"})
)  # fmt: skip
REFUSED = [
    candidate(name, "baseline", 1, scenario(**{"hardware.tensor_parallel_size": tp}),
              rejected_because="does not fit", usd_per_month=None)
    for name, tp in (("m h100 tp2", 2), ("m h100 tp4", 4))
]  # fmt: skip


def plan(*candidates: Candidate, target: float = 0.7) -> Plan:
    traffic = {"avg_rate": 10.0, "peak_rate": 25.0, "target_utilization": target}
    return Plan(candidates, None, "v", traffic, {}, {}, (), (), {})


def test_bars_are_in_the_order_of_the_table() -> None:
    found = plan(ON, OTHER, OFF, *REFUSED)
    rows = fleet.pairs(found)
    assert [(r["place"], r["name"], r["arm"], r["rank"]) for r in rows] == [
        (0, "h100 tp1 ngram k3", "on", 1), (1, "h200 tp1", "off", 2), (2, "h100 tp1", "off", 3),
    ]  # fmt: skip
    table = [(r["deployment"], r["speculation"]) for r in fleet.ranking(found)]
    for chart, name in (
        (fleet.cost, "candidates"), (fleet.load, "candidates"), (fleet.utilization, "used"),
    ):  # fmt: skip
        drawn = sorted(chart(found)["datasets"][name], key=lambda row: row["place"])
        assert list(dict.fromkeys((r["deployment"], r["arm"]) for r in drawn)) == table
    # Tooltips tell of both arms, whichever is pointed at.
    for row in (rows[0], rows[2]):
        assert (row["load_at_slo_off"], row["load_at_slo_on"]) == (10.0, 12.5)
        assert (row["usd_per_month_off"], row["usd_per_month_on"]) == pytest.approx(
            (2 * 6 * 729.6, 2 * 5 * 729.6)
        )
    assert rows[1]["usd_per_month_on"] is None


def test_ranking_and_reasons() -> None:
    found = plan(ON, OFF, *REFUSED)
    rows = fleet.ranking(found)
    first = [(r["rank"], r["speculation"], r["replicas"]) for r in rows]
    assert first == [(1, "on", 5), (2, "off", 6)]
    assert rows[0]["usd_per_month"] == pytest.approx(7296.0)
    assert fleet.rejected(found) == [
        {"candidates": ["m h100 tp2, speculation off", "m h100 tp4, speculation off"],
         "because": "does not fit"}
    ]  # fmt: skip
    assert [(r["target"], r["binds"]) for r in fleet.reached(ON)] == [
        ("TTFT p95, ms", True), ("TPOT p95, ms", False),
    ]  # fmt: skip


def test_off_and_on_of_what_is_best() -> None:
    rows = {r["quantity"]: (r["off"], r["on"]) for r in fleet.off_on(plan(ON, OTHER, OFF))}
    assert rows["$/month"] == ("$8,755", "$7,296")
    assert rows["replicas"] == ("6", "5")
    # 25 requests/s at the peak, each replica filled to 70 % of 10 or 12.5.
    assert rows["replicas, unrounded"] == ("3.57", "2.86")
    assert rows["used, one down"] == ("62%", "62%")
    alone = {r["quantity"]: (r["off"], r["on"]) for r in fleet.off_on(plan(OTHER))}
    assert alone["GPUs"] == ("4", "–")


@pytest.mark.parametrize(
    ("load_at_slo", "said"),
    [
        (25 / 0.7 / 2.06, "the peak needs 2.06, so 3, and 1 spare. "
                          "Nearly 2: 3.0 % more per replica would save one."),
        (25 / 0.7 / 2.0005, "the peak needs just over 2, so 3, and 1 spare. "
                            "Nearly 2: under 0.1 % more per replica would save one."),
        (25 / 0.7 / 2.5, "the peak needs 2.50, so 3, and 1 spare."),
        (25 / 0.7 / 2.0, "the peak needs 2.00, so 2, and 1 spare."),
        (25 / 0.7 / 0.05, "the peak needs 0.05, so 1, and 1 spare."),
    ],
)  # fmt: skip
def test_rounding_is_shown_and_said_where_it_was_close(load_at_slo: float, said: str) -> None:
    base = 3 if 2.0 + 1e-9 < 25 / 0.7 / load_at_slo else round(25 / 0.7 / load_at_slo + 0.49)
    c = dataclasses.replace(
        ON, load_at_slo=load_at_slo, replicas_base=base, replicas=base + 1
    )  # fmt: skip
    assert fleet_words.rounding(plan(c), c) == said
    [row] = fleet.ranking(plan(c))
    assert row["replicas_needed"] == pytest.approx(25 / 0.7 / load_at_slo)


def test_what_was_refused_has_nothing_to_round() -> None:
    none = dataclasses.replace(
        OFF, load_at_slo=None, replicas=None, replicas_base=None, rejected_because="does not fit"
    )
    assert fleet_words.needed(plan(none), none) is None
    assert fleet_words.rounding(plan(none), none) == ""
    without = dataclasses.replace(ON, replicas=ON.replicas_base)
    assert fleet_words.rounding(plan(without), without).endswith("so 4.")


def test_fewer_drafts_are_hinted_at_where_one_k_lost() -> None:
    def drafting(k: int) -> Candidate:
        source = scenario("ngram", **{"speculation.num_speculative_tokens": k})
        return dataclasses.replace(ON, source=source)

    off = Best("m", "baseline", 0, "", None, None, None, {})
    on = dataclasses.replace(off, arm="speculative")

    def of(best: Best | None, *candidates: Candidate) -> Plan:
        return dataclasses.replace(plan(*candidates), best=best)

    assert fleet_words.fewer_drafts(of(off, OFF, drafting(4))) == (4, (1, 2, 3))
    assert fleet_words.fewer_drafts(of(off, OFF, drafting(8))) == (8, (1, 2, 3))
    assert fleet_words.fewer_drafts(of(off, OFF, drafting(2))) == (2, (1,))
    for nothing in (
        of(off, OFF, drafting(1)),
        of(off, OFF, drafting(4), drafting(2)),
        of(on, drafting(4), OFF),
        of(None, OFF, drafting(4)),
        of(off, OFF),
    ):
        assert fleet_words.fewer_drafts(nothing) is None


def test_dollars_are_told_from_those_of_one_replica() -> None:
    found = plan(ON)
    found.traffic["spares"] = 2
    said = fleet_words.dollars(found)
    assert "2.5 × the average" in said
    assert "filled to 70% of what meets the SLO, with 2 spares" in said


def test_one_down_in_words() -> None:
    off = dataclasses.replace(ON, one_down_ok=False, one_down_speculation_off=True)
    not_held = dataclasses.replace(off, one_down_speculation_off=False)
    assert [fleet.one_down(c)[0] for c in (ON, off, not_held)] == [
        "holds", "speculation off", "not held",
    ]  # fmt: skip


def test_cost_is_drawn_in_dollars_or_without_prices_in_gpus() -> None:
    spec = fleet.cost(plan(ON, OFF))
    rows = spec["datasets"]["candidates"]
    assert [r["value"] for r in rows] == pytest.approx([7296.0, 8755.2])
    assert rows[0]["label"] == "tp1 ngram k3, on · $7,296 · 5 × 1 GPUs"
    bars = spec["layer"][0]["encoding"]
    assert bars["x"]["title"] == "price of a month"
    assert {"usd_per_month_off", "usd_per_month_on"} <= {t["field"] for t in bars["tooltip"]}
    unpriced = [dataclasses.replace(c, price=None, usd_per_month=None) for c in (ON, OFF)]
    spec = fleet.cost(plan(*unpriced))
    assert [r["value"] for r in spec["datasets"]["candidates"]] == [5, 6]
    assert spec["layer"][0]["encoding"]["x"]["title"] == "GPUs"
    some = fleet.cost(plan(ON, unpriced[1]))["datasets"]["candidates"]
    assert "no price" in some[1]["label"]


def test_load_says_what_binds() -> None:
    rows = fleet.load(plan(ON, OFF))["datasets"]["candidates"]
    assert rows[0]["label"] == "tp1 ngram k3, on · 12.5 · TTFT p95 binds"


def test_utilization_of_average_peak_and_one_down() -> None:
    alone = dataclasses.replace(OTHER, utilization_one_down=None)
    spec = fleet.utilization(plan(ON, alone))
    assert [(r["state"], r["used"]) for r in spec["datasets"]["used"]] == [
        ("average", 0.2), ("peak", 0.5), ("one down", 0.625), ("average", 0.2), ("peak", 0.5),
    ]  # fmt: skip
    assert [m.get("label") for m in spec["datasets"]["marks"]] == ["SLO", None, "target 70%"]
    assert len(fleet.utilization(plan(ON, target=1.0))["datasets"]["marks"]) == 2


def test_what_nothing_meets_has_no_bars() -> None:
    found = plan(*REFUSED)
    assert fleet.pairs(found) == fleet.ranking(found) == []
    assert fleet.cost(found)["datasets"]["candidates"] == []


def test_a_picture_holds_few_candidates() -> None:
    many = [
        candidate(f"m tp{n}", "baseline", n, scenario(**{"hardware.pipeline_parallel_size": n}))
        for n in range(1, fleet.MOST_DRAWN + 5)
    ]
    assert len(fleet.pairs(plan(*many))) == fleet.MOST_DRAWN
    assert len(fleet.ranking(plan(*many))) == len(many)


def test_words_that_names_share() -> None:
    assert fleet.shared_words(["a b c", "a b d"]) == "a b "
    assert fleet.shared_words(["a b"]) == "a "
    assert fleet.shared_words(["a"]) == fleet.shared_words([]) == ""
