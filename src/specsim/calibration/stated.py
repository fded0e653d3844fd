"""What measured runs say that they are of, where a scenario has something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from specsim.catalog.hardware import load_hardware
from specsim.catalog.models import canonical_id
from specsim.errors import SpecsimError
from specsim.schema.measurement import Measurement
from specsim.schema.scenario import Scenario

_BESIDES_THE_CHIP = re.compile(r"nvidia|tesla|geforce|amd|instinct|intel|\d+gb|hbm\w*|\d+x|x\d+")
"""Words of a device's name that the catalog's names leave out."""


@dataclass(frozen=True)
class Stated:
    """One thing that a run states and a scenario has otherwise."""

    what: str
    key: str
    """Of the scenario."""
    theirs: str
    here: str
    value: str | int | None
    """What the scenario would have of it; None where nothing of the catalog is meant."""
    reason: str = ""
    """Why a fit leaves the run out; '': it does not."""


@dataclass(frozen=True)
class Difference:
    """The same thing over all runs that state it alike."""

    stated: Stated
    sources: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What differs, and what comes of it."""
        one = self.stated
        n = len(self.sources)
        who = f"{n} files say" if n > 1 else f"{self.sources[0]} says"
        text = f"{one.what}: {who} {one.theirs}, the scenario has {one.here}"
        if one.reason:
            return f"{text}; a fit to this scenario leaves such runs out"
        if one.value is None:
            return f"{text}; the catalog does not know that name: make sure that it is the same"
        return text

    @property
    def advice(self) -> str:
        """What differs, and which words of a command take what the runs say."""
        one = self.stated
        if one.value is None:
            return self.sentence
        return f"{self.sentence}; to take theirs: --set {one.key}={one.value}"


def differences(rows: Iterable[Measurement], scenario: Scenario) -> tuple[Difference, ...]:
    """Return what runs, and the logs beside them, state otherwise than a scenario.

    What a run leaves open is no difference, and neither is a k beside runs of the scenario's own.
    """
    rows = tuple(rows)
    found: dict[Stated, list[str]] = {}
    for row in rows:
        for one in stated_otherwise(row, scenario):
            found.setdefault(one, []).append(row.source)
    ks = {r.num_speculative_tokens for r in rows if r.arm == "on"}
    if scenario.speculation.num_speculative_tokens in ks:
        found = {one: of for one, of in found.items() if one.what != "draft tokens per step"}
    return tuple(Difference(one, tuple(dict.fromkeys(of))) for one, of in found.items())


def common(found: Sequence[Difference]) -> dict[str, str | int]:
    """Return what to set in a scenario, by key, for what its runs say: where they agree."""
    said: dict[str, set[str | int]] = {}
    for one in (each.stated for each in found):
        if one.value is not None:
            said.setdefault(one.key, set()).add(one.value)
    return {key: values.pop() for key, values in said.items() if len(values) == 1}


def stated_otherwise(row: Measurement, scenario: Scenario) -> Iterator[Stated]:
    """Yield what a row states and a scenario has otherwise."""
    yield from _model(row, scenario)
    yield from _accelerator(row, scenario)
    yield from _engine(row, scenario)
    devices = scenario.hardware.tensor_parallel_size
    if row.tensor_parallel_size and row.tensor_parallel_size != devices:
        theirs = row.tensor_parallel_size
        yield Stated(
            "tensor parallel size", "hardware.tensor_parallel_size", str(theirs), str(devices),
            theirs, f"is of tensor_parallel_size {theirs}, the scenario is of {devices}",
        )  # fmt: skip
    if row.arm == "on":
        yield from _speculation(row, scenario)


def _model(row: Measurement, scenario: Scenario) -> Iterator[Stated]:
    here = canonical_id(scenario.target.model)
    if not row.model or here is None or row.model == scenario.target.model:
        return
    there = canonical_id(row.model)
    if there is None:
        yield Stated("model", "target.model", row.model, here, None)
    elif there != here:
        reason = f"is of model {row.model} ({there}), the scenario is of {here}"
        yield Stated("model", "target.model", there, here, there, reason)


def _accelerator(row: Measurement, scenario: Scenario) -> Iterator[Stated]:
    named = row.accelerator or row.metadata.get("device", "")
    there, short = _device(named)
    here, _ = _device(scenario.hardware.accelerator)
    # 'H100' says neither SXM nor PCIe.
    if there and here and there != here and not here.startswith(short):
        # Which of the makes of a CPU it was, 'cpu' does not say.
        value = None if short == "cpu" else there
        yield Stated("accelerator", "hardware.accelerator", named, here, value)


@lru_cache(maxsize=64)
def _device(name: str) -> tuple[str | None, str]:
    """Return the shipped profile that a device's name stands for, and the name's own words."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    chip = "_".join(word for word in words if not _BESIDES_THE_CHIP.fullmatch(word))
    for key in ("_".join(words), chip):
        try:
            return load_hardware(key).identity.id, chip
        except SpecsimError:
            continue
    return None, chip


def _engine(row: Measurement, scenario: Scenario) -> Iterator[Stated]:
    here, asked = scenario.engine.name, scenario.engine.version
    if row.engine and row.engine != here:
        reason = f"is of engine {row.engine}, the scenario is of {here}"
        yield Stated("engine", "engine.name", row.engine, here, row.engine, reason)
    elif row.engine_version and asked and not row.engine_version.lstrip("v").startswith(asked):
        there = row.engine_version.lstrip("v")
        value = ".".join(there.split(".")[:2])
        yield Stated("engine version", "engine.version", there, asked, value)


def _speculation(row: Measurement, scenario: Scenario) -> Iterator[Stated]:
    asked = scenario.speculation
    if row.method and row.method != asked.method:
        reason = f"speculates by {row.method}, the scenario by {asked.method}"
        yield Stated("method", "speculation.method", row.method, asked.method, row.method, reason)
    k = row.num_speculative_tokens
    if k and k != asked.num_speculative_tokens:
        here = str(asked.num_speculative_tokens or "none")
        yield Stated("draft tokens per step", "speculation.num_speculative_tokens", str(k), here, k)
    there, named = canonical_id(row.drafter or ""), asked.drafter
    if there and named and there != (canonical_id(named) or named):
        yield Stated("drafter", "speculation.drafter", there, named, there)
