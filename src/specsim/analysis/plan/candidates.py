"""Candidate deployments: one scenario varied over its structure, each with speculation off and on.

What differs in its way of speculating only has one off arm, which is tested once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.analysis.arms import baseline_arm
from specsim.analysis.curves import pair
from specsim.analysis.plan.fleet import one_down_rate, replicas_for
from specsim.analysis.plan.search import (
    LoadAtSlo,
    LoadTest,
    LoadTestFactory,
    load_at_slo,
    metric_of,
)
from specsim.analysis.prepare import prepared, provenance, scenario_json
from specsim.analysis.resolve import Deployment
from specsim.analysis.warnings import late_warnings
from specsim.catalog.scenario import load_scenario
from specsim.errors import SpecsimError, UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.hardware import HardwareProfile
from specsim.schema.plan import PlanArm, PricePaid, Reached
from specsim.schema.results import DOES_NOT_START
from specsim.schema.scenario import Load, Scenario, Workload
from specsim.schema.simulation import ArmSimulation
from specsim.schema.slo import Slo
from specsim.schema.speculation import Speculation
from specsim.schema.traffic import Traffic

MAX_CANDIDATES = 1000
"""Each is some ten simulations."""
_STRUCTURE = ("target", "hardware", "engine", "speculation")
_METHOD = "speculation.method"
_OF_THE_METHOD = tuple(
    f"speculation.{name}"
    for name in ("drafter", "drafter_weight_dtype", "draft_tensor_parallel_size", "tree")
)
"""Another way of speculating brings its own."""
_FASTER = "narrower weights, more tensor parallelism or a faster device"
_REMEDIES = {
    "ttft": f"the prompt alone takes that long: {_FASTER}, or cached prefixes",
    "tpot": f"the steps alone take that long: {_FASTER}, or another way of speculating",
    "itl": f"a step alone takes that long: {_FASTER}, or fewer draft tokens",
    "e2e": f"a request alone takes that long: {_FASTER}, or shorter answers",
    "attainment": f"requests on their own miss their bounds: {_FASTER}, or a lower attainment_pct",
}
"""What helps a target that is missed at almost no load, beside a looser target."""


@dataclass(frozen=True)
class Option:
    """One arm of one deployment."""

    scenario: Scenario
    arm: PlanArm
    varied: dict[str, Any]
    off: str
    """Names the off arm of the same deployment, which options may share."""
    error: SpecsimError | None = None
    """The combination is no scenario."""


@dataclass(frozen=True)
class Setting:
    """What all options are tested with."""

    slo: Slo
    traffic: Traffic
    factory: LoadTestFactory
    search: tuple[Path, ...] = ()
    calibration: Calibration | None = None


@dataclass(frozen=True)
class Outcome:
    """What the test of an option found."""

    option: Option
    deployment: str
    accelerator: str
    gpus_per_replica: int | None = None
    tdp_w: float | None = None
    price: PricePaid | None = None
    load: LoadAtSlo | None = None
    ttft_p95_ms: float | None = None
    tpot_p95_ms: float | None = None
    one_down_speedup: float | None = None
    rejected_because: str | None = None
    error: SpecsimError | None = None
    scenario: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    defaults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def options(
    bases: Sequence[Scenario], axes: Mapping[str, Sequence[Any]], *, peak_rate: float
) -> tuple[Option, ...]:
    """Return every arm of every combination, each once.

    Parameters
    ----------
    axes : mapping
        Values by key of the scenario: ``{"hardware.accelerator": ("h100_sxm", "h200_sxm")}``.

    Raises
    ------
    UsageError
        An axis is not of the deployment, or there are too many combinations.
    """
    for key in axes:
        if key.partition(".")[0] not in _STRUCTURE:
            raise UsageError(
                f"--vary {key}: a plan varies the deployment ({', '.join(_STRUCTURE)}); load and "
                "lengths are those of the traffic"
            )
    n = len(bases) * math.prod(len(values) for values in axes.values())
    if n > MAX_CANDIDATES:
        raise UsageError(f"that is {n} deployments; a plan compares at most {MAX_CANDIDATES}")
    combinations = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    found: dict[tuple[str, PlanArm], Option] = {}
    for base, varied in itertools.product(bases, combinations):
        # All serve the same requests, at a rate: those of the first scenario.
        base = base.model_copy(
            update={"workload": bases[0].workload, "load": Load(request_rate=(peak_rate,))}
        )
        for option in _arms(base, varied):
            said = "" if option.error is None else str((option.varied, option.error))
            found.setdefault((_key(option.scenario) + said, option.arm), option)
    return tuple(found.values())


def _arms(base: Scenario, varied: dict[str, Any]) -> Iterator[Option]:
    structure = {k: v for k, v in varied.items() if not k.startswith("speculation.")}
    try:
        off = _varied(base.model_copy(update={"speculation": Speculation()}), structure)
    except SpecsimError as error:
        yield Option(base, "baseline", structure, "", error)
        return
    key = _key(off)
    yield Option(off, "baseline", structure, key)
    try:
        on = _varied(base, varied)
    except SpecsimError as error:
        yield Option(base, "speculative", varied, key, error)
        return
    if on.speculation.method != "none":
        yield Option(on, "speculative", varied, key)


def _varied(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    if not values:
        return scenario
    changes = dict(values)
    if values.get(_METHOD, scenario.speculation.method) != scenario.speculation.method:
        changes = {**dict.fromkeys(_OF_THE_METHOD), **changes}
    return load_scenario(scenario.model_dump(exclude_unset=True), overrides=changes)


def _key(scenario: Scenario) -> str:
    return scenario.model_copy(update={"name": ""}).model_dump_json()


def outcome(option: Option, setting: Setting) -> Outcome:
    """Test one option: a task that can be sent to another process."""
    raw = option.scenario
    accelerator = str(option.varied.get("hardware.accelerator", raw.hardware.accelerator))
    name = _name(raw, option.arm, raw.speculation.num_speculative_tokens, option.varied)
    if option.error is not None:
        tried = [f"{key.rpartition('.')[2]}={value}" for key, value in option.varied.items()]
        return _failed(option, " ".join([name, *tried]), accelerator, option.error)
    try:
        deployment, laid = prepared(raw, setting.search, setting.calibration)
        test = setting.factory(deployment, laid, setting.slo)
        if option.arm == "baseline":
            late = baseline_arm(deployment, laid.point()).budget.notes
        else:
            late = late_warnings(deployment, pair(deployment, laid.point()))
        load = load_at_slo(test, option.arm, setting.slo)
        at_peak = _at_peak(test, option, setting.traffic, load)
        one_down = _one_down_speedup(test, option, setting.traffic, load)
    except SpecsimError as error:
        return _failed(option, name, accelerator, error)
    profile = deployment.hardware
    return Outcome(
        option=option,
        deployment=_resolved_name(deployment, option),
        accelerator=profile.identity.id,
        gpus_per_replica=deployment.n_gpus,
        tdp_w=profile.datasheet.tdp_w,
        price=listed_price(profile),
        load=load,
        ttft_p95_ms=at_peak.ttft_ms.p95 if at_peak else None,
        tpot_p95_ms=at_peak.tpot_ms.p95 if at_peak else None,
        one_down_speedup=one_down,
        rejected_because=next((n for n in late if n.startswith(DOES_NOT_START)), None)
        or _unreachable(load),
        scenario=scenario_json(deployment),
        provenance=provenance(deployment, laid),
        defaults=tuple(d for d in deployment.defaults if not d.startswith("load.")),
        warnings=(*deployment.warnings, *late, *_test_warnings(deployment, load)),
    )


def _failed(option: Option, name: str, accelerator: str, error: SpecsimError) -> Outcome:
    return Outcome(option, name, accelerator, rejected_because=str(error), error=error)


def _at_peak(
    test: LoadTest, option: Option, traffic: Traffic, load: LoadAtSlo
) -> ArmSimulation | None:
    """Serve what a replica of the whole fleet gets at the peak."""
    if load.request_rate <= 0:
        return None
    each = traffic.peak_rate / replicas_for(traffic, load.request_rate)
    return test.at_rate(option.arm, each)


def _one_down_speedup(
    test: LoadTest, option: Option, traffic: Traffic, load: LoadAtSlo
) -> float | None:
    """Compare the arms at the load that a replica gets while another one is down."""
    if option.arm == "baseline" or load.request_rate <= 0:
        return None
    rate = one_down_rate(traffic, load.request_rate)
    if rate is None or rate >= min(test.stable_rate("baseline"), load.stable_rate):
        return None
    off, on = test.at_rate("baseline", rate), test.at_rate("speculative", rate)
    if off.overloaded or on.overloaded or not on.tpot_ms.mean > 0:
        return None
    return float(off.tpot_ms.mean / on.tpot_ms.mean)


def listed_price(profile: HardwareProfile) -> PricePaid | None:
    """Return the price that a profile lists: the first typical one, else the first."""
    prices = sorted(profile.price, key=lambda price: price.kind != "typical")
    if not prices:
        return None
    date = None if prices[0].as_of is None else prices[0].as_of.isoformat()
    return PricePaid(prices[0].usd_per_gpu_hour, date, f"{prices[0].kind}, {prices[0].source}")


def _unreachable(load: LoadAtSlo) -> str | None:
    """Say why no load meets the SLO, and what would change that; None if one does."""
    if load.request_rate > 0:
        return None
    if load.binding is None:
        return "it sustains no load: its queue grows at 1 % of what it should serve"
    r = load.binding
    return f"{missed(r)}: {_REMEDIES[metric_of(r)]}; or loosen the target"


def missed(r: Reached) -> str:
    """Say which target is missed at almost no load, and by how much."""
    if r.target.startswith("attainment"):
        return f"{r.value:.3g} % of requests meet their bounds at almost no load, {r.limit:g} asked"
    return (
        f"{r.target} is {r.value:,.3g} at almost no load, {r.limit:g} allowed "
        f"({r.excess - 1:.0%} over)"
    )


def _test_warnings(deployment: Deployment, load: LoadAtSlo) -> Iterator[str]:
    if load.n_refused:
        yield (
            f"{load.n_refused} requests of the test are refused: longer than max_model_len "
            f"{deployment.max_model_len} or the cache; raise --max-model-len or cut them"
        )


def even_lengths(workload: Workload) -> Iterator[str]:
    """Name the percentiles that are not given, without which all requests are alike."""
    for name, what in (("input_tokens", "prompts"), ("output_tokens", "answers")):
        if getattr(workload, f"{name}_p95") is None:
            flag = f"--{name.removesuffix('_tokens')}-len-p95"
            yield f"workload.{name}_p95: none, so all {what} are of one length ({flag})"


def _name(scenario: Scenario, arm: PlanArm, k: int | None, varied: Mapping[str, Any]) -> str:
    """Return a short readable name; what was varied and has no place in it is put behind it."""
    target, hardware, speculation = scenario.target, scenario.hardware, scenario.speculation
    words = [_short(target.model), target.weight_dtype or "", _short(hardware.accelerator)]
    words.append(f"tp{hardware.tensor_parallel_size}")
    if hardware.pipeline_parallel_size > 1:
        words.append(f"pp{hardware.pipeline_parallel_size}")
    if hardware.expert_parallel:
        words.append("ep")
    if scenario.engine.name != "vllm":
        words.append(scenario.engine.name)
    if arm == "speculative":
        words.append(speculation.method)
        if speculation.method == "draft_model" or "speculation.drafter" in varied:
            words.append(_short(speculation.drafter or ""))
        words.append(f"k{k}" if k else "")
    shown = {
        "target.model", "target.weight_dtype", "hardware.accelerator",
        "hardware.tensor_parallel_size", "hardware.pipeline_parallel_size",
        "hardware.expert_parallel", "engine.name", "speculation.method", "speculation.drafter",
        "speculation.num_speculative_tokens",
    }  # fmt: skip
    words += [
        f"{key.rpartition('.')[2]}={value}" for key, value in varied.items() if key not in shown
    ]
    return " ".join(filter(None, words))


def _resolved_name(deployment: Deployment, option: Option) -> str:
    """Return the same with the names that the catalog has for what aliases stand for."""
    s, drafter = deployment.scenario, deployment.drafter
    named = s.model_copy(
        update={
            "target": s.target.model_copy(update={"model": deployment.model.id}),
            "hardware": s.hardware.model_copy(
                update={"accelerator": deployment.hardware.identity.id}
            ),
            "speculation": s.speculation.model_copy(
                update={"drafter": None if drafter is None else drafter.id}
            ),
        }
    )
    return _name(named, option.arm, deployment.num_speculative_tokens, option.varied)


def _short(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
