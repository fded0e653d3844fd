from __future__ import annotations

import numpy as np
import pytest

from specsim.physics.economics import joule_per_token, usd_per_mtok


def test_price_of_a_million_tokens() -> None:
    # 4 H100 at 3.43 $/h and 2,000 tokens/s: 13.72 $ an hour for 7.2 million tokens.
    price = usd_per_mtok(usd_per_gpu_hour=3.43, n_gpus=4, tokens_per_s=2000.0)
    assert price == pytest.approx(13.72 / 7.2)


def test_price_falls_with_the_tokens_served() -> None:
    prices = usd_per_mtok(usd_per_gpu_hour=2.0, n_gpus=1, tokens_per_s=np.array([100.0, 200.0]))
    assert prices[0] == pytest.approx(2 * prices[1])


def test_energy_of_a_token() -> None:
    assert joule_per_token(power_w=700.0, n_gpus=2, tokens_per_s=1000.0) == pytest.approx(1.4)
