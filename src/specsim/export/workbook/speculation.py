"""The sheets of what is deployed: model and hardware, the drafter and its acceptance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specsim.analysis.size import drafter_size, model_size
from specsim.export.tables import described
from specsim.export.workbook.fields import Field, Fields, fields_sheet
from specsim.export.workbook.formulas import Formula, Range, at, count_up_to, larger, smaller
from specsim.export.workbook.sheets import Cell
from specsim.export.workbook.subjects import Subject
from specsim.schema.model import DrafterSpec
from specsim.schema.results import KvArm, Point

_POSITIONS = 7
"""Draft positions that are shown."""
_BILLION = 1e9


@dataclass(frozen=True)
class Speculation:
    """The sheet, and what others read of it."""

    fields: Fields
    inputs: Fields

    def length(self, s: Subject) -> Formula:
        """Refer to the acceptance length of the inputs."""
        return self.inputs(s, "acceptance_length_used")

    def lengths(self, s: Subject) -> Range:
        """Refer to the acceptance lengths that the model was run at."""
        return self.fields.range(s, "length_1", f"length_{n_lengths(s)}")

    def place(self, s: Subject) -> Formula:
        """Refer to the one of them that is below the acceptance length."""
        return self.fields(s, "place")

    def weight(self, s: Subject) -> Formula:
        """Refer to how far it is from that one to the next."""
        return self.fields(s, "weight")


def n_lengths(s: Subject) -> int:
    """Return how many acceptance lengths the model was run at."""
    assert s.on is not None, "the scenario speculates"
    return int(s.on.lengths.size)


def place_and_weight(
    lengths: Range, length: Formula
) -> tuple[Formula, Callable[[Formula], Formula]]:
    """Return the place of the length below, and how far it is to the next, given a place.

    Notes
    -----
    Straight lines in 1 / length: a request needs (answer - 1) / length decode steps.
    """
    place = larger(1, smaller(len(lengths.cells) - 1, count_up_to(lengths, length)))

    def weight(place: Formula) -> Formula:
        low, high = at(lengths, place), at(lengths, place + 1)
        return (1 / length - 1 / low) / (1 / high - 1 / low)

    return place, weight


def speculation(found: Sequence[Subject], made: Fields) -> Speculation:
    """Build the sheet of the drafter and its acceptance."""
    sheet = fields_sheet(
        "Speculation",
        "The drafter, what it accepts and what it takes of the cache. The model was run at some "
        "acceptance lengths; the other sheets read between them, in 1 / length.",
        found,
    )
    result = Speculation(sheet, made)
    sheet.add(_drafter(), found)
    sheet.add(_acceptance(result), found)
    most = max((n_lengths(s) for s in found if s.on is not None), default=0)
    sheet.add(
        (
            Field(f"length_{i + 1}", "tokens/step", "acceptance length at which the model was run",
                  lambda s, i=i: _length(s, i))  # type: ignore[misc]
            for i in range(most)
        ),
        found,
    )  # fmt: skip
    sheet.add(_reading(result) if most else (), found)
    sheet.add(_memory(), found)
    return result


def _length(s: Subject, i: int) -> Cell | None:
    if s.on is None or i >= s.on.lengths.size:
        return None
    return Cell(float(s.on.lengths[i]), digits="exact")


def _drafter() -> tuple[Field, ...]:
    def size(s: Subject) -> Cell | None:
        drafter = s.deployment.drafter
        if drafter is None:
            return None
        of = drafter_size(drafter) if isinstance(drafter, DrafterSpec) else model_size(drafter)
        return Cell(of.total_params / _BILLION, "fixed", "three")

    def name(s: Subject) -> Cell | None:
        drafter = s.deployment.drafter
        return None if drafter is None else Cell(drafter.id, "fixed")

    def tp(s: Subject) -> Cell | None:
        size = float(s.deployment.draft_tensor_parallel_size)
        return None if s.deployment.drafter is None else Cell(size, "fixed", "count")

    def layers(s: Subject) -> Cell | None:
        drafter = s.deployment.drafter
        return (
            None
            if drafter is None
            else Cell(float(sum(g.count for g in drafter.layers)), "fixed", "count")
        )

    def tree(s: Subject) -> Cell | None:
        shape = s.deployment.scenario.speculation.tree
        return None if shape is None else Cell(float(shape.num_draft_tokens), "fixed", "count")

    def at_load(name: str) -> Callable[[Subject], Cell | None]:
        def read(s: Subject) -> Cell | None:
            on = point(s).speculative
            return None if on is None else Cell(float(getattr(on, name)), digits="ms")

        return read

    return (
        Field("method", "", "of speculating", lambda s: Cell(s.deployment.method, "fixed")),
        Field("drafter", "", "model or head that drafts", name),
        Field("drafter_params_b", "1e9", "weights of the drafter", size),
        Field("drafter_layers", "", "layers of the drafter", layers),
        Field("draft_tensor_parallel_size", "GPUs", "that share the drafter", tp),
        Field("num_speculative_tokens", "tokens", "draft tokens per step, k",
              lambda s: Cell(float(s.k), "fixed", "count")),
        Field("tree_tokens", "tokens", "verified per request and step, of a tree", tree),
        Field("draft_step_ms", "ms", "drafting in a step at the middle load of the scenario",
              at_load("draft_ms")),
        Field("verify_step_ms", "ms", "the target's pass there", at_load("verify_ms")),
        Field("step_overhead_ms", "ms", "host time around the passes there", at_load("host_ms")),
    )  # fmt: skip


def loads_of(s: Subject) -> list[float]:
    """Return the loads of a scenario's points, in order."""
    loads = [p.request_rate if s.is_open else p.concurrency for p in s.prediction.points]
    return [float(load) for load in loads if load is not None]


def point(s: Subject) -> Point:
    """Return the scenario's point at the load that is looked at first."""
    return s.prediction.points[loads_of(s).index(s.load)]


def _acceptance(made: Speculation) -> tuple[Field, ...]:
    def position(i: int) -> Callable[[Subject], Cell | None]:
        def read(s: Subject) -> Cell | None:
            a = s.prediction.acceptance
            if a is None or i >= len(a.per_position):
                return None
            return Cell(a.per_position[i], "fixed", "ratio")

        return read

    def source(s: Subject) -> Cell | None:
        a = s.prediction.acceptance
        return None if a is None else Cell(a.source, "fixed")

    def shown(s: Subject) -> Cell | None:
        return None if s.on is None else Cell(made.length(s), "formula", "three")

    return (
        *(
            Field(f"accept_pos{i + 1}", "", "probability that this draft token and those before "
                  "it are accepted, as given", position(i))
            for i in range(_POSITIONS)
        ),
        Field("accept_len_AL", "tokens/step", "acceptance length that sheets are read at", shown),
        Field("accept_source", "", "where the acceptance that was given comes from", source),
    )  # fmt: skip


def _reading(made: Speculation) -> tuple[Field, ...]:
    def place(s: Subject) -> Cell | None:
        if s.on is None:
            return None
        where, _ = place_and_weight(made.lengths(s), made.length(s))
        return Cell(where, "formula", "count")

    def weight(s: Subject) -> Cell | None:
        if s.on is None:
            return None
        _, far = place_and_weight(made.lengths(s), made.length(s))
        return Cell(far(made.place(s)), "formula", "exact")

    return (
        Field("place", "", "which of these lengths is just below that of the inputs", place),
        Field("weight", "", "how far it is from there to the next, in 1 / length", weight),
    )


def _memory() -> tuple[Field, ...]:
    def arm(name: str, which: str) -> Callable[[Subject], Cell | None]:
        def read(s: Subject) -> Cell | None:
            kv: KvArm = getattr(s.prediction.kv, which)
            if which == "speculative" and s.on is None:
                return None
            return Cell(float(getattr(kv, name)), digits="three" if "gib" in name else "count")

        return read

    def described_as(name: str) -> tuple[str, str]:
        text, unit = described(KvArm, name)
        return unit, text

    rows = []
    for name, which in (
        ("drafter_weights_gib", "speculative"), ("bytes_per_token", "baseline"),
        ("bytes_per_token", "speculative"), ("kv_tokens", "baseline"),
        ("kv_tokens", "speculative"), ("max_concurrency", "baseline"),
        ("max_concurrency", "speculative"),
    ):  # fmt: skip
        unit, text = described_as(name)
        side = "off" if which == "baseline" else "on"
        rows.append(Field(f"{name}_{side}", unit, f"{text}; {side}", arm(name, which)))
    lost = Field(
        "kv_lost_pct", "%", "share of the cache lost to the drafter",
        lambda s: None if s.on is None else Cell(100.0 * s.prediction.kv.lost_fraction,
                                                 digits="pct"),
    )  # fmt: skip
    return (*rows, lost)


def model_and_hardware(found: Sequence[Subject]) -> Fields:
    """Build the sheet of the target and what it runs on."""
    sheet = fields_sheet(
        "Model+HW",
        "What is served, on what, and how the engine is started. All of it is fixed: to change "
        "it, export again.",
        found,
    )
    sheet.add(_model(), found)
    sheet.add(_hardware(), found)
    sheet.add(_engine(), found)
    return sheet


def _fixed(
    read: Callable[[Subject], float | str | None], digits: str = ""
) -> Callable[[Subject], Cell | None]:
    def cell(s: Subject) -> Cell | None:
        value = read(s)
        return None if value is None else Cell(value, "fixed", digits)

    return cell


def _model() -> tuple[Field, ...]:
    return (
        Field("target_model", "", "model that is served", _fixed(lambda s: s.deployment.model.id)),
        Field("params_total_b", "1e9", "weights",
              _fixed(lambda s: model_size(s.deployment.model).total_params / _BILLION, "three")),
        Field("params_active_b", "1e9", "weights that a token passes through",
              _fixed(lambda s: model_size(s.deployment.model).active_params / _BILLION, "three")),
        Field("weight_dtype", "", "of the weights", _fixed(lambda s: s.deployment.weight_dtype)),
        Field("kv_dtype", "", "of the cache", _fixed(lambda s: s.deployment.kv_dtype)),
        Field("kv_bytes_per_token", "bytes/GPU", "cache of a further token on one GPU, off",
              _fixed(lambda s: s.prediction.kv.baseline.bytes_per_token, "count")),
        Field("max_context", "tokens", "max_model_len",
              _fixed(lambda s: float(s.deployment.max_model_len), "count")),
    )  # fmt: skip


def _hardware() -> tuple[Field, ...]:
    def tflops(s: Subject) -> float | None:
        rates = s.deployment.hardware.datasheet.dense_tflops
        dtype = s.deployment.weight_dtype
        name = {"nvfp4": "fp4", "mxfp4": "fp4", "int4": "bf16"}.get(dtype, dtype)
        value = getattr(rates, name, None)
        return float(value if value is not None else rates.bf16)

    def sheet(s: Subject, name: str) -> float | None:
        value = getattr(s.deployment.hardware.datasheet, name)
        return None if value is None else float(value)

    def hardware(s: Subject, name: str) -> float:
        return float(getattr(s.deployment.scenario.hardware, name))

    return (
        Field("gpu", "", "accelerator", _fixed(lambda s: s.deployment.hardware.identity.id)),
        Field("vram_gb", "GB", "marketed memory of one", 
              _fixed(lambda s: sheet(s, "memory_gb"), "count")),
        Field("mem_bw_tb_s", "TB/s", "datasheet memory bandwidth of one",
              _fixed(lambda s: (sheet(s, "memory_bandwidth_gb_per_s") or 0.0) / 1000.0, "three")),
        Field("dense_tflops_at_dtype", "TFLOP/s", "datasheet rate of one, dense, at the weights' "
              "dtype; bf16 where it is multiplied in that", _fixed(tflops, "count")),
        Field("interconnect", "", "between GPUs of a server",
              _fixed(lambda s: s.deployment.hardware.datasheet.link.kind)),
        Field("tdp_w", "W", "rated power of one", _fixed(lambda s: sheet(s, "tdp_w"), "count")),
        Field("tensor_parallel_size", "GPUs", "that share every layer",
              _fixed(lambda s: hardware(s, "tensor_parallel_size"), "count")),
        Field("pipeline_parallel_size", "", "stages",
              _fixed(lambda s: hardware(s, "pipeline_parallel_size"), "count")),
        Field("expert_parallel", "", "experts spread over the GPUs",
              _fixed(lambda s: "y" if s.deployment.scenario.hardware.expert_parallel else "n")),
        Field("gpus_per_replica", "GPUs", "of one replica",
              _fixed(lambda s: float(s.deployment.n_gpus), "count")),
    )  # fmt: skip


def _engine() -> tuple[Field, ...]:
    return (
        Field("engine", "", "that serves", _fixed(lambda s: s.deployment.scenario.engine.name)),
        Field("engine_version", "", "of its constants",
              _fixed(lambda s: s.deployment.engine.version)),
        Field("graph_mode", "", "whether steps are captured graphs",
              _fixed(lambda s: "graphs" if s.deployment.scenario.engine.cuda_graphs else "eager")),
        Field("gpu_memory_utilization", "", "share of the memory that the engine takes",
              _fixed(lambda s: s.deployment.gpu_memory_utilization, "ratio")),
        Field("max_num_seqs", "requests", "most that run at a time",
              _fixed(lambda s: float(s.deployment.max_num_seqs), "count")),
        Field("max_batched_tokens", "tokens", "most in one step",
              _fixed(lambda s: float(s.deployment.max_num_batched_tokens), "count")),
    )  # fmt: skip
