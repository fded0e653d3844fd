"""What stands behind a prediction: figures that were measured beside those that are predicted.

Field names are those of the workbook's sheet 'Measured vs model'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specsim.schema.results import says

EvidenceKind = Literal["own measurement", "published"]
EvidenceArm = Literal["off", "on", "on / off"]
EvidenceMetric = Literal["speedup", "tpot_ms", "output_tok_s", "ttft_ms"]
EvidenceLoad = Literal["concurrency", "request_rate", "tokens_in_step"]


@dataclass(frozen=True)
class Evidence:
    """One figure, measured and predicted."""

    case: str = says("source/name of a published case; file name of an own measurement")
    what: EvidenceKind = says("own measurement or published")
    model: str = says("target model")
    accelerator: str = says("device")
    method: str = says("way of speculating; none where the figure is of speculation off")
    k: int = says("draft tokens per step; 0 where the figure is of speculation off", "tokens")
    arm: EvidenceArm = says("speculation off, on, or the ratio of both")
    load: float = says("concurrency, request rate or tokens in one step")
    load_kind: EvidenceLoad = says("which of them")
    metric: EvidenceMetric = says("speedup (on / off), tpot_ms, output_tok_s or ttft_ms")
    unit: str = says("of measured and predicted; empty: a ratio")
    measured: float = says("what the run or the source says, a mean over requests", "as unit")
    predicted: float | None = says("what specsim says; null: it cannot, see note", "as unit")
    predicted_low: float | None = says("10th percentile; null: no band", "as unit")
    predicted_high: float | None = says("90th percentile; null: no band", "as unit")
    error_pct: float | None = says("predicted / measured - 1", "%")
    in_interval: bool | None = says("measured lies in the 80 % band; null: no band")
    used_for_calibration: bool = says(
        "own: a run of the calibration; published: the shipped constants were tuned on it"
    )
    grade: str | None = says(
        "A everything stated, B one input assumed, C several; null: own measurement"
    )
    source: str = says("raw file or files; address of what was published")
    note: str = says("why there is no prediction, and what to know when reading the row")
