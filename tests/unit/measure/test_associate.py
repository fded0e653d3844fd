"""Which facts belong to which run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim.measure.associate import Found, Kind, associate, by_name, token
from specsim.measure.read import read_measurements
from specsim.schema.measurement import ArmSource, MeasuredAcceptance, MeasuredArm, Measurement

LAB = Path(__file__).parents[2] / "data" / "lab" / "closed_loop"


def acceptance(length: float) -> MeasuredAcceptance:
    return MeasuredAcceptance(length, None, None, 100, 300, round(100 * (length - 1)))


def entry(
    path: str,
    kind: Kind = "run",
    arm: MeasuredArm = "unknown",
    arm_from: ArmSource = "",
    **facts: Any,
) -> Found:
    row = Measurement(source=path, format="test", arm=arm, arm_from=arm_from, **facts)
    return Found(Path("results") / path, row, kind)


OFF_LOG = entry("server_off.log", "server", "off", "log", engine_version="0.29.0", kv_tokens=900)
ON_LOG = entry(
    "server_mtp.log", "server", "on", "log", engine_version="0.29.0", kv_tokens=800,
    weights_gib=15.0, method="mtp", num_speculative_tokens=3,
)  # fmt: skip


def lent(*found: Found) -> Measurement:
    """Return the first row after association."""
    return associate(found)[0]


def test_the_only_server_lends_its_facts() -> None:
    row = lent(entry("c1.json"), entry("server.log", "server", "on", "log", kv_tokens=800,
                                       method="mtp", num_speculative_tokens=3))  # fmt: skip
    assert (row.arm, row.arm_from) == ("on", "log")
    assert (row.kv_tokens, row.method, row.num_speculative_tokens) == (800, "mtp", 3)
    assert row.metadata["server"] == "server.log"


def test_of_two_servers_the_name_decides() -> None:
    rows = associate(
        [entry("off_c1.json"), entry("mtp_c1.json"), entry("c1.json"), OFF_LOG, ON_LOG]
    )
    assert [row.arm for row in rows[:3]] == ["off", "on", "unknown"]
    assert [row.kv_tokens for row in rows[:3]] == [900, 800, None]
    assert [row.num_speculative_tokens for row in rows[:3]] == [None, 3, None]


def test_a_log_and_a_dump_of_one_server_are_one() -> None:
    dump = entry("metrics_off.prom", "server", "off", "metrics", kv_tokens=900)
    row = lent(entry("off_c1.json"), dump, OFF_LOG)
    assert (row.arm, row.arm_from, row.engine_version) == ("off", "log", "0.29.0")
    assert row.metadata["server"] == "metrics_off.prom, server_off.log"


def test_starts_that_differ_lend_what_they_agree_on() -> None:
    log = [
        entry("server.log", "server", "off", "log", engine_version="0.29.0", kv_tokens=900),
        entry("server.log", "server", "on", "log", engine_version="0.29.0", kv_tokens=800),
    ]
    row = lent(entry("c1.json"), *log)
    assert (row.arm, row.engine_version, row.kv_tokens) == ("unknown", "0.29.0", None)


def test_a_run_beside_the_server_of_another() -> None:
    rows = associate([entry("off_c1.json"), entry("x_c1.json"), OFF_LOG])
    assert [row.kv_tokens for row in rows[:2]] == [900, None]


def test_what_a_run_states_stands() -> None:
    row = lent(
        entry("c1.json", arm="on", arm_from="counters", acceptance=acceptance(2.5), kv_tokens=1),
        entry("server.log", "server", "off", "log", engine_version="0.29.0", kv_tokens=900),
    )
    assert (row.arm, row.arm_from, row.kv_tokens) == ("on", "counters", 1)
    assert row.engine_version is None
    assert "speculation is off, yet this run counted drafted tokens" in row.warnings[0]


def test_a_name_against_the_only_server() -> None:
    row = lent(entry("off_c1.json"), entry("server.log", "server", "on", "log", kv_tokens=800))
    assert (row.arm, row.arm_from, row.kv_tokens) == ("off", "name", None)
    assert "this file's name that it is off" in row.warnings[0]


def test_another_k_is_another_server() -> None:
    run = entry("c1.json", arm="on", arm_from="counters", num_speculative_tokens=5)
    row = lent(
        run, entry("server.log", "server", "on", "log", num_speculative_tokens=3, kv_tokens=8)
    )
    assert (row.num_speculative_tokens, row.kv_tokens) == (5, None)
    assert "says k = 3, this run 5" in row.warnings[0]


def test_dumps_around_a_run_fill_its_gaps() -> None:
    around = entry(
        "c4_r1.before.prom", "difference", "on", "counters", acceptance=acceptance(2.5),
        num_speculative_tokens=3, kv_tokens=800, completed=7, metadata={"num_preemptions": "2"},
    )  # fmt: skip
    rows = associate([around, entry("c4_r1.json", completed=6)])
    assert len(rows) == 1
    assert (rows[0].arm, rows[0].arm_from, rows[0].kv_tokens) == ("on", "counters", 800)
    assert (rows[0].acceptance, rows[0].completed) == (acceptance(2.5), 6)
    assert rows[0].metadata == {"num_preemptions": "2"}
    [own] = associate(
        [around, entry("c4_r1.json", arm="on", arm_from="counters", acceptance=acceptance(2.6))]
    )
    assert own.acceptance == acceptance(2.6)
    assert "2.5 in the counters around the run" in own.warnings[0]
    [close] = associate(
        [around, entry("c4_r1.json", arm="on", arm_from="counters", acceptance=acceptance(2.51))]
    )
    assert close.warnings == ()


def test_dumps_without_a_run_stay_a_row() -> None:
    around = entry("c4_r1.before.prom", "difference", "on", "counters")
    assert len(associate([around, entry("c8_r1.json")])) == 2


@pytest.mark.parametrize(
    ("path", "arm", "k"),
    [
        ("off_c1.json", "off", None),
        ("x_nospec_c1.json", "off", None),
        ("no-spec/c1.json", "off", None),
        ("baseline_c1.json", "off", None),
        ("base/c1.json", "off", None),
        ("nomtp_bench.json", "off", None),
        ("without_spec.json", "off", None),
        ("on_c4.json", "on", None),
        ("qwen_on_c4.json", "on", None),
        ("spec_c4.json", "on", None),
        ("mtp2_bench.json", "on", 2),
        ("eagle3_c4.json", "on", None),
        ("x_k3_c4.json", "on", 3),
        ("eagle3/k5/run.json", "on", 5),
        ("spec_off_c1.json", "off", None),
        ("off/mtp1/run.json", "on", 1),
        # These say nothing.
        ("kimi-k2_c1.json", "unknown", None),
        ("run_on_h100.json", "unknown", None),
        ("qwen3-8b-base-chat_c1.json", "unknown", None),
        ("off_vs_mtp3.json", "unknown", None),
        ("gemma_k0.json", "unknown", None),
        ("offline_spectrum.json", "unknown", None),
    ],
)
def test_names(path: str, arm: str, k: int | None) -> None:
    assert by_name(Path("results") / path) == (arm, k)


def test_a_name_is_the_last_resort() -> None:
    assert lent(entry("off_c1.json")).arm_from == "name"
    stated = lent(entry("off_c1.json", arm="on", arm_from="metadata", num_speculative_tokens=2))
    assert (stated.arm, stated.arm_from, stated.warnings) == ("on", "metadata", ())
    assert lent(entry("mtp3_c1.json")).num_speculative_tokens == 3
    assert lent(entry("off.yaml", "table", "unknown")).arm == "unknown"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("server.log", ""),
        ("metrics_off.prom", "off"),
        ("dsv-mtp2-metrics-before.txt", "dsv-mtp2"),
        ("snapshot_measure_1.json", "measure_1"),
        ("q0.5_r2.after.prom", "q0.5_r2"),
    ],
)
def test_tokens(name: str, expected: str) -> None:
    assert token(Path(name)) == expected


def test_folders_are_the_same_however_they_are_given() -> None:
    absolute = Found(Path("results/server.log").absolute(), OFF_LOG.row, "server")
    assert lent(entry("c1.json"), absolute).arm == "off"


def test_our_own_runs() -> None:
    rows = {Path(row.source).name: row for row in read_measurements(LAB).rows}
    off, on = rows["off_c4.json"], rows["dm_70_3_c4.json"]
    assert (off.arm, off.arm_from, off.kv_tokens) == ("off", "log", 87296)
    assert (on.arm, on.arm_from, on.kv_tokens) == ("on", "counters", 80640)
    assert (on.method, on.engine_version) == ("draft_model", "0.32.0")
    assert off.warnings == on.warnings == ()
