"""Parts of a grid, in order and whoever computes them."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from specsim import sweep
from specsim.catalog.scenario import load_scenario
from specsim.errors import InputError, UsageError

CHAT = Path(__file__).parents[3] / "examples" / "llama-3.1-8b-eagle3-h100.yaml"
AXES = {"workload.input_tokens": range(100, 160), "load.concurrency": (1, 8)}


class Failing:
    """Runs the first tasks, then fails as a pool does whose worker was killed."""

    def __init__(self, good):
        self.good, self.made = good, []

    def submit(self, function, /, *args):
        future = Future()
        if len(self.made) < self.good:
            future.set_result(function(*args))
        elif len(self.made) == self.good:
            future.set_exception(MemoryError("killed"))
        self.made.append(future)
        return future


def test_columns_do_not_depend_on_the_executor():
    here = sweep(load_scenario(CHAT), AXES)
    with ThreadPoolExecutor(2) as pool:
        there = sweep(load_scenario(CHAT), AXES, executor=pool)
    assert {k: v.tolist() for k, v in here.items()} == {k: v.tolist() for k, v in there.items()}


def test_a_worker_that_dies_leaves_the_parts_and_cancels_the_rest(tmp_path):
    scenario, path = load_scenario(CHAT), tmp_path / "grid.csv"
    pool = Failing(good=3)
    with pytest.raises(InputError, match=r"a worker failed: MemoryError: killed.*--resume"):
        sweep(scenario, AXES, output=path, executor=pool)
    assert len(list((tmp_path / "grid.csv.parts").glob("part-*.csv"))) == 3
    assert all(future.cancelled() for future in pool.made[4:])
    assert sweep(scenario, AXES, output=path, resume=True) == {"ok": 120}
    assert sweep(scenario, AXES, output=tmp_path / "whole.csv") == {"ok": 120}
    assert path.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_parts_of_another_catalog_are_not_gone_on_with(tmp_path):
    scenario, path = load_scenario(CHAT), tmp_path / "grid.csv"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.yaml").write_text("a: 1\n")
    with pytest.raises(InputError):
        sweep(scenario, AXES, output=path, executor=Failing(good=1), search=[mine])
    (mine / "notes.yaml").write_text("a: 22\n")
    with pytest.raises(UsageError, match="another grid"):
        sweep(scenario, AXES, output=path, resume=True, search=[mine])


def test_a_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "grid.csv"
    link.symlink_to(tmp_path / "there" / "real.csv")
    sweep(load_scenario(CHAT), {"load.concurrency": (1,)}, output=link)
    assert link.is_symlink()
    assert (tmp_path / "there" / "real.csv").read_text().count("\n") == 2


def test_what_failed_is_counted_beside_what_did_not(tmp_path):
    counts = sweep(
        load_scenario(CHAT),
        {"hardware.tensor_parallel_size": (1, 3), "load.concurrency": (1, 8)},
        output=tmp_path / "grid.csv",
    )
    assert json.loads(json.dumps(counts)) == {"ok": 2, "refused": 2}
