"""Whether a stated time per output token is what its name says."""

from __future__ import annotations

from specsim.schema.measurement import Latency

AGREEMENT = 1.25
"""A mean of ratios differs from the ratio of means by less than this where lengths vary."""


def checked_tpot(
    stated: Latency | None,
    e2e_ms: Latency | None,
    ttft_ms: Latency | None,
    output_tokens: float | None,
) -> tuple[Latency | None, tuple[str, ...]]:
    """Return the TPOT to use, and a warning where it is not the stated one.

    inference-perf of 2025 notes two times per streamed piece, so that its value is about half of
    (E2E - TTFT) / (output tokens - 1). That quotient of the means replaces a value that differs.

    Examples
    --------
    >>> ms = lambda mean: Latency(mean, None, None, None, None, None)
    >>> tpot, warnings = checked_tpot(ms(10.8), ms(1283.5), ms(50.6), 62.98)
    >>> round(tpot.mean, 2), len(warnings)
    (19.89, 1)
    """
    derived = _quotient(e2e_ms, ttft_ms, output_tokens)
    if derived is None:
        return stated, ()
    replacement = Latency(mean=derived, p50=None, p90=None, p95=None, p99=None, std=None)
    if stated is None or not stated.mean:
        return replacement, ("TPOT is (E2E - TTFT) / (output tokens - 1) of the means",)
    if 1 / AGREEMENT <= stated.mean / derived <= AGREEMENT:
        return stated, ()
    return replacement, (
        f"the stated time per output token of {stated.mean:.4g} ms contradicts latency and length "
        f"of the answers: TPOT is (E2E - TTFT) / (output tokens - 1) = {derived:.4g} ms",
    )


def _quotient(
    e2e_ms: Latency | None, ttft_ms: Latency | None, output_tokens: float | None
) -> float | None:
    e2e = None if e2e_ms is None else e2e_ms.mean
    ttft = None if ttft_ms is None else ttft_ms.mean
    if e2e is None or ttft is None or output_tokens is None or output_tokens <= 1 or e2e <= ttft:
        return None
    return (e2e - ttft) / (output_tokens - 1)
