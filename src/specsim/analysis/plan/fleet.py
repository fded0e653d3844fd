"""Replicas, servers, money and power for a load, as capacity planners count them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specsim.physics.economics import joule_per_token, usd_per_mtok
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW
from specsim.schema.traffic import HOURS_PER_MONTH, Traffic
from specsim.units import HOUR_S

GPUS_PER_SERVER = 8
_EXACTLY = 1e-9
"""A quotient this little above a whole number is that number: 14 / 1.4 replicas are 10."""
_WATT_PER_KW = 1000.0


@dataclass(frozen=True)
class Fleet:
    """As many replicas as a load needs, and what they cost: fields of a `Candidate`."""

    replicas_base: int
    replicas: int
    gpus: int
    servers: int
    utilization_peak: float
    utilization_average: float
    utilization_one_down: float | None
    one_down_ok: bool
    one_down_speculation_off: bool
    one_down_speedup: float | None
    one_down: str
    usd_per_hour: float | None
    usd_per_month: float | None
    usd_per_mtok_average: float | None
    usd_per_mtok_peak: float | None
    power_kw: float | None
    kwh_per_month: float | None
    joule_per_token: float | None


def fleet(
    traffic: Traffic,
    *,
    load_at_slo: float,
    load_at_slo_off: float | None = None,
    one_down_speedup: float | None = None,
    output_tokens: float,
    gpus_per_replica: int,
    gpus_per_server: int = GPUS_PER_SERVER,
    usd_per_gpu_hour: float | None,
    tdp_w: float | None,
) -> Fleet:
    """Size the fleet of one candidate.

    Parameters
    ----------
    load_at_slo : float
        Of one replica. [requests/s]
    load_at_slo_off : float, optional
        The same with speculation off, for a candidate with it on. [requests/s]
    one_down_speedup : float, optional
        Time per token, off / on, at the load that `one_down_rate` returns.
    output_tokens : float
        Mean answer length.

    Notes
    -----
    replicas = ceil(peak / (load at SLO x target utilization)) + spares. The fleet is paid around
    the clock, whatever comes: a month's price by a month's tokens is the price of a token.
    """
    peak = traffic.peak_rate
    replicas = replicas_for(traffic, load_at_slo)
    gpus = replicas * gpus_per_replica
    holds, needs_off, sentence = _one_down(replicas, peak, load_at_slo, load_at_slo_off)
    if holds and one_down_speedup is not None:
        sentence += f"; {_still_pays(one_down_speedup)}"
    # Averaged over the month, hours without operation included.
    month_rate = traffic.monthly_requests / (HOURS_PER_MONTH * HOUR_S)
    month_tok_s, price = month_rate * output_tokens, usd_per_gpu_hour
    hourly = None if price is None else price * gpus
    power_kw = None if tdp_w is None else tdp_w * gpus / _WATT_PER_KW
    return Fleet(
        replicas_base=replicas - traffic.spares,
        replicas=replicas,
        gpus=gpus,
        servers=servers(replicas, gpus_per_replica, gpus_per_server),
        utilization_peak=peak / (replicas * load_at_slo),
        utilization_average=traffic.avg_rate / (replicas * load_at_slo),
        utilization_one_down=peak / ((replicas - 1) * load_at_slo) if replicas > 1 else None,
        one_down_ok=holds,
        one_down_speculation_off=needs_off,
        one_down_speedup=one_down_speedup,
        one_down=sentence,
        usd_per_hour=hourly,
        usd_per_month=None if hourly is None else hourly * HOURS_PER_MONTH,
        usd_per_mtok_average=_usd_per_mtok(price, gpus, month_tok_s),
        usd_per_mtok_peak=_usd_per_mtok(price, gpus, peak * output_tokens),
        power_kw=power_kw,
        kwh_per_month=None if power_kw is None else power_kw * HOURS_PER_MONTH,
        joule_per_token=None
        if tdp_w is None
        else float(joule_per_token(power_w=tdp_w, n_gpus=gpus, tokens_per_s=month_tok_s)),
    )


def replicas_for(traffic: Traffic, load_at_slo: float) -> int:
    """Return the replicas of a fleet, spares included."""
    base = traffic.peak_rate / (load_at_slo * traffic.target_utilization)
    return max(math.ceil(base * (1.0 - _EXACTLY)), 1) + traffic.spares


def one_down_rate(traffic: Traffic, load_at_slo: float) -> float | None:
    """Return what each replica gets at the peak while one is down; None if none is left."""
    left = replicas_for(traffic, load_at_slo) - 1
    return traffic.peak_rate / left if left else None


def servers(replicas: int, gpus_per_replica: int, gpus_per_server: int) -> int:
    """Return the servers that hold the replicas; one that fits into a server is not split."""
    if gpus_per_replica > gpus_per_server:
        return replicas * math.ceil(gpus_per_replica / gpus_per_server)
    return math.ceil(replicas / (gpus_per_server // gpus_per_replica))


def _usd_per_mtok(price: float | None, gpus: int, tokens_per_s: float) -> float | None:
    if price is None:
        return None
    return float(usd_per_mtok(usd_per_gpu_hour=price, n_gpus=gpus, tokens_per_s=tokens_per_s))


def _one_down(
    replicas: int, peak: float, load_at_slo: float, load_at_slo_off: float | None
) -> tuple[bool, bool, str]:
    """Return whether the rest holds the peak, whether only with speculation off, and both said."""
    if replicas == 1:
        return False, False, "with the one replica down nothing is served: give it a spare"
    each = peak / (replicas - 1)
    if each <= load_at_slo * (1.0 + _EXACTLY):
        left = "the other runs" if replicas == 2 else f"the other {replicas - 1:,} run"
        used = f"{each / load_at_slo:.0%} of the load that meets the SLO"
        return True, False, f"with one replica down {left} at {used}"
    rest = "the other gets" if replicas == 2 else "each of the others gets"
    above = (
        f"with one replica down {rest} {each:.3g} requests/s, above the "
        f"{load_at_slo:.3g} that meet the SLO"
    )
    if load_at_slo_off is None:
        return False, False, f"{above}: one more replica would hold it"
    if each <= load_at_slo_off * (1.0 + _EXACTLY):
        off = f"speculation must then be off, which holds {load_at_slo_off:.3g}"
        return False, True, f"{above} with speculation on: {off}"
    both = f"with speculation on and the {load_at_slo_off:.3g} with it off"
    return False, False, f"{above} {both}: one more replica would hold it"


def _still_pays(speedup: float) -> str:
    if speedup < NEUTRAL_LOW:
        return f"tokens then come {1 / speedup:.2f}× faster with speculation off"
    if speedup > NEUTRAL_HIGH:
        return f"speculation still pays there, {speedup:.2f}x in time per token"
    return "speculation changes little there"
