from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a case of Llama-3.1-8B with EAGLE-3 on an H100 with other values put in."""

    def write(name: str, points: list[dict[str, Any]], **changes: Any) -> Path:
        case: dict[str, Any] = {
            "case": f"made/{name}",
            "source": {"title": "made", "url": "none", "date": "2026", "license": "facts only"},
            "grade": "A",
            "role": "test",
            "scenario": {
                "name": name,
                "target": {"model": "llama-3.1-8b", "weight_dtype": "bf16"},
                "hardware": {"accelerator": "h100_sxm"},
                "engine": {"name": "vllm", "version": "0.29", "max_num_seqs": 128,
                           "max_model_len": 8192},
                "speculation": {
                    "method": "eagle3", "num_speculative_tokens": 3,
                    "drafter": "eagle3-llama3.1-8b", "acceptance": {"length": 2.2},
                },
                "workload": {"input_tokens": 512, "output_tokens": 256},
            },
            "points": points,
            **changes,
        }  # fmt: skip
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(case), encoding="utf-8")
        return path

    return write
