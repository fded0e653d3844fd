"""Calibration files, and the shipped table of what a calibration may change."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml

from specsim.catalog.files import data_dir, read_mapping, read_shipped
from specsim.errors import InputError
from specsim.schema.base import parse
from specsim.schema.calibration import Calibration, CalibrationRules


@lru_cache(maxsize=1)
def load_rules() -> CalibrationRules:
    """Return the shipped parameters, priors and thresholds."""
    path = data_dir("calibration.yaml")
    return parse(CalibrationRules, read_shipped(path), what=str(path))


def load_calibration(path: Path | str) -> Calibration:
    """Read a file that `specsim calibrate` wrote.

    Raises
    ------
    InputError
        It is something else, or broken: one line that names the key.
    """
    path = Path(path)
    try:
        data = read_mapping(path)
    except InputError as error:
        raise InputError(f"{error}; expected a file of `specsim calibrate`") from error
    if "specsim_calibration" not in data:
        raise InputError(
            f"{path}: is no calibration; make one with `specsim calibrate SCENARIO --measurements "
            "PATH --out calibration.yaml`"
        )
    calibration = parse(Calibration, data, what=str(path))
    known = load_rules().parameters
    for parameter in calibration.parameters:
        if parameter.name not in known:
            raise InputError(
                f"{path}: parameters: unknown {parameter.name!r}; known: {', '.join(known)}"
            )
        spec = known[parameter.name]
        low, high = spec.factor
        if parameter.scale != spec.scale or not low <= parameter.factor <= high:
            raise InputError(
                f"{path}: parameters: {parameter.name}: got {parameter.factor:g} "
                f"({parameter.scale}); allowed: {low:g} to {high:g} ({spec.scale})"
            )
    return calibration


def dump_calibration(calibration: Calibration) -> str:
    """Return a calibration as YAML that loads back equal, to six digits."""
    data = calibration.model_dump(mode="json", exclude_none=True)
    header = (
        "# Written by `specsim calibrate`; laid over the shipped constants by --calibration.\n"
        "# factor: on the shipped constant; identifiable: false means that the runs leave it open\n"
        "# and the prior around the shipped value decides.\n"
    )
    text: str = yaml.safe_dump(
        _rounded(data), sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
    return header + text


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
