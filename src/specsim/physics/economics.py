"""Dollars and energy per token."""

from __future__ import annotations

from specsim.physics.cost import Num
from specsim.units import HOUR_S, MTOK


def usd_per_mtok(*, usd_per_gpu_hour: Num, n_gpus: Num, tokens_per_s: Num) -> Num:
    """Price of a million tokens on devices that are paid by the hour.

    Notes
    -----
    price x devices / (3600 x tokens/s) x 1e6 (definitions.md section 3). The devices are paid
    whether busy or not, so cost follows the tokens served.

    Examples
    --------
    >>> usd_per_mtok(usd_per_gpu_hour=3.6, n_gpus=1, tokens_per_s=1000.0)
    1.0
    """
    return usd_per_gpu_hour * n_gpus / (HOUR_S * tokens_per_s) * MTOK


def joule_per_token(*, power_w: Num, n_gpus: Num, tokens_per_s: Num) -> Num:
    """Energy per token at a constant board power. [J]."""
    return power_w * n_gpus / tokens_per_s
