"""A workbook: what is predicted for it, and the file with about 5,000 rows of sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specsim.catalog.scenario import load_scenario
from specsim.export.workbook.book import assembled
from specsim.export.workbook.subjects import Asked, subjects

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-3.3-70b-4xh100.yaml"


def _scenarios(n_loads: int) -> list[Any]:
    return [
        load_scenario(
            EXAMPLE,
            overrides={
                "name": f"k = {k}",
                "load.concurrency": list(range(1, n_loads + 1)),
                "speculation.num_speculative_tokens": k,
                "speculation.acceptance": {"rate": 0.6},
            },
        )
        for k in (2, 3, 4)
    ]


def test_file_of_5000_rows(benchmark: Any, tmp_path: Path) -> None:
    """Sheets, formulas with their values, and the file; the predictions are done."""
    found = tuple(subjects(_scenarios(800), Asked()))

    def write() -> int:
        book = assembled(found)
        book.save(tmp_path / "plan.xlsx")
        return sum(len(s.rows) for s in book.sheets if s.name in ("Sweep", "Points"))

    assert benchmark.pedantic(write, rounds=3) > 5000


def test_predictions_of_one_scenario(benchmark: Any) -> None:
    """All that the model has to give for a workbook, without load tests."""
    benchmark.pedantic(lambda: list(subjects([load_scenario(EXAMPLE)], Asked())), rounds=3)
