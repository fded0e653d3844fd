"""KV capacity against what real servers printed, and against published shares of cache lost."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from specsim.analysis.cache import cache_pool
from specsim.analysis.kv import kv_budget
from specsim.catalog.engines import load_engine
from specsim.catalog.models import load_drafter, load_model
from specsim.physics.memory import CachePool
from specsim.schema.base import KvDtype
from specsim.schema.model import (
    DenseMlp,
    DrafterSpec,
    FullAttention,
    Indexer,
    LayerGroup,
    MlaAttention,
    ModelSpec,
)
from specsim.units import GIB

TOKENS_TOLERANCE = 0.02


@dataclass(frozen=True)
class ServerLog:
    """What a vLLM server printed at start."""

    text: str

    def number(self, pattern: str) -> float:
        found = re.search(pattern, self.text)
        assert found, f"no line matches {pattern!r}"
        return float(found[1].replace(",", ""))

    def word(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found, f"no line matches {pattern!r}"
        return found[1]

    @property
    def kv_tokens(self) -> float:
        return self.number(r"KV cache size: ([\d,]+) tokens")

    @property
    def available_bytes(self) -> float:
        return self.number(r"Available KV cache memory: ([\d.]+) GiB") * GIB

    @property
    def max_model_len(self) -> float:
        return self.number(r"max_seq_len=(\d+)")

    @property
    def tensor_parallel_size(self) -> int:
        return int(self.number(r"tensor_parallel_size=(\d+)"))

    @property
    def max_num_batched_tokens(self) -> int:
        return int(self.number(r"max_num_batched_tokens=(\d+)"))


def pool_of(
    model: ModelSpec,
    drafter: DrafterSpec | ModelSpec | None = None,
    *,
    k: int = 0,
    kv_dtype: KvDtype = "bf16",
    tensor_parallel_size: int = 1,
    block_size: int = 16,
) -> CachePool:
    return cache_pool(
        model,
        drafter,
        num_speculative_tokens=k,
        kv_dtype=kv_dtype,
        tensor_parallel_size=tensor_parallel_size,
        draft_tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=1,
        block_size=block_size,
    )


def printed_tokens(
    pool: CachePool, available_bytes: float, max_model_len: float, in_flight_tokens: float = 0
) -> int:
    concurrency = pool.max_concurrency(
        num_blocks=pool.num_blocks(available_bytes),
        max_model_len=max_model_len,
        in_flight_tokens=in_flight_tokens,
    )
    return int(concurrency * max_model_len)


def llama(*, layers: int, hidden: int, heads: int, kv_heads: int, mlp: int) -> ModelSpec:
    attention = FullAttention(n_heads=heads, n_kv_heads=kv_heads, head_dim=64)
    group = LayerGroup(count=layers, attention=attention, mlp=DenseMlp(intermediate_size=mlp))
    return ModelSpec(id="lab", hidden_size=hidden, vocab_size=8192, layers=(group,))


LAB_TARGET = llama(layers=12, hidden=1024, heads=16, kv_heads=4, mlp=2816)
LAB_DRAFTER = llama(layers=2, hidden=256, heads=4, kv_heads=2, mlp=704)


@pytest.mark.parametrize(("drafter", "tokens"), [(None, 87_296), (LAB_DRAFTER, 80_640)])
def test_cpu_backend_exactly(drafter: ModelSpec | None, tokens: int) -> None:
    # vLLM 0.32, CPU backend, 2 GiB of cache, blocks of 128 tokens, fp32.
    pool = pool_of(LAB_TARGET, drafter, k=3, kv_dtype="fp32", block_size=128)
    assert printed_tokens(pool, 2 * GIB, max_model_len=2048) == tokens


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "drafter"),
    [
        ("closed_loop/server_off", None),
        ("closed_loop/server_dm_50_3", LAB_DRAFTER),
        ("closed_loop/server_dm_70_3", LAB_DRAFTER),
        ("open_loop/server_off", None),
        ("open_loop/server_dm_70_3", LAB_DRAFTER),
    ],
)
def test_lab_server_logs_exactly(shared: Path, name: str, drafter: ModelSpec | None) -> None:
    log = ServerLog((shared / "lab" / f"{name}.log").read_text())
    available = log.number(r"Explicitly set \(([\d.]+)/") * GIB
    pool = pool_of(LAB_TARGET, drafter, k=3, kv_dtype="fp32", block_size=128)
    assert printed_tokens(pool, available, log.max_model_len) == log.kv_tokens


@pytest.fixture(scope="module")
def dspark_log(shared: Path) -> ServerLog:
    return ServerLog(
        (shared / "samples/server_logs/qwen3_8b_dspark_adaptive_smoke.log").read_text()
    )


@pytest.mark.shared
def test_qwen3_8b_with_dspark_tokens(dspark_log: ServerLog) -> None:
    pool = pool_of(load_model("qwen3-8b"), load_drafter("dspark-qwen3-8b"), k=7)
    tokens = printed_tokens(pool, dspark_log.available_bytes, dspark_log.max_model_len)
    assert tokens == pytest.approx(dspark_log.kv_tokens, rel=TOKENS_TOLERANCE)


@pytest.mark.shared
def test_qwen3_8b_with_dspark_from_weights_and_utilisation(dspark_log: ServerLog) -> None:
    engine, _ = load_engine("vllm", dspark_log.word(r"LLM engine \(v([\d.]+)"))
    model = load_model("qwen3-8b")
    budget = kv_budget(
        model=model,
        drafter=load_drafter("dspark-qwen3-8b"),
        method="dspark",
        num_speculative_tokens=int(dspark_log.number(r"num_spec_tokens=(\d+)")),
        weight_dtype="bf16",
        expert_dtype=None,
        drafter_weight_dtype=None,
        kv_dtype="bf16",
        memory_usable_bytes=dspark_log.number(r"Free memory on device \([\d.]+/([\d.]+)") * GIB,
        memory_nameplate_bytes=80e9,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        draft_tensor_parallel_size=None,
        expert_parallel=False,
        gpu_memory_utilization=dspark_log.number(r"'gpu_memory_utilization': ([\d.]+)"),
        max_num_seqs=int(dspark_log.number(r"'max_num_seqs': (\d+)")),
        max_num_batched_tokens=dspark_log.max_num_batched_tokens,
        max_model_len=int(dspark_log.max_model_len),
        engine=engine,
        async_scheduling=True,
    )
    loaded = dspark_log.number(r"Model loading took ([\d.]+) GiB")
    weights = budget.device_weights_gib + budget.device_drafter_weights_gib
    assert weights == pytest.approx(loaded, rel=0.01)
    assert budget.kv_gib * GIB == pytest.approx(dspark_log.available_bytes, rel=0.02)
    assert budget.kv_tokens == pytest.approx(dspark_log.kv_tokens, rel=TOKENS_TOLERANCE)


@pytest.mark.shared
def test_glm_with_sparse_attention(shared: Path) -> None:
    log = ServerLog((shared / "samples/server_logs/glm52_nospec_c1_server.log").read_text())
    assert log.word(r"kv_cache_dtype=(\w+)") == "fp8_ds_mla"
    config = json.loads((shared / "samples/hf_configs/zai-org--GLM-5.2_config.json").read_text())
    selectors = Counter(config["indexer_types"])
    assert sum(selectors.values()) == config["num_hidden_layers"] == 78
    pool = pool_of(
        ModelSpec(
            id="glm-5.2",
            hidden_size=config["hidden_size"],
            vocab_size=config["vocab_size"],
            layers=tuple(
                LayerGroup(count=count, attention=sparse_latents(config, shared_index=kind))
                for kind, count in selectors.items()
            ),
        ),
        kv_dtype="fp8",
        tensor_parallel_size=log.tensor_parallel_size,
    )
    assert pool.block_tokens == log.number(r"Setting kv cache block size to (\d+)")
    tokens = printed_tokens(pool, log.available_bytes, log.max_model_len)
    assert tokens == pytest.approx(log.kv_tokens, rel=TOKENS_TOLERANCE)


def sparse_latents(config: dict[str, int], *, shared_index: str) -> MlaAttention:
    return MlaAttention(
        n_heads=config["num_attention_heads"],
        q_lora_rank=config["q_lora_rank"],
        kv_lora_rank=config["kv_lora_rank"],
        qk_nope_head_dim=config["qk_nope_head_dim"],
        qk_rope_head_dim=config["qk_rope_head_dim"],
        v_head_dim=config["v_head_dim"],
        indexer=Indexer(
            n_heads=config["index_n_heads"],
            head_dim=config["index_head_dim"],
            topk=config["index_topk"],
            shared=shared_index == "shared",
        ),
    )


@pytest.mark.shared
def test_qwen3_4b_on_four_ranks(shared: Path) -> None:
    # The log has no line of available memory, so the arithmetic runs backwards: the tokens, at
    # 1,024 bytes per layer and rank, must leave weights and 1 to 2 GiB of 90 % of a 24 GiB card.
    log = ServerLog((shared / "samples/server_logs/qwen3_4b_xpu_tp4_server.log").read_text())
    model = load_model("qwen3-4b")
    block = int(log.number(r"'block_size': (\d+)"))
    pool = pool_of(model, tensor_parallel_size=log.tensor_parallel_size, block_size=block)
    assert pool.bytes_per_token == 36 * 1024
    cache_gib = log.kv_tokens * pool.bytes_per_token / GIB
    rest = 0.9 * 24 - cache_gib - log.number(r"Model loading took ([\d.]+) GiB")
    assert 1.0 < rest < 2.0


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "drafter", "k"),
    [("gemma4_31b_nospec", None, 0), ("gemma4_31b_k3", "mtp-gemma-4-31b", 3)],
)
def test_gemma_windows_exactly(shared: Path, name: str, drafter: str | None, k: int) -> None:
    # 50 windowed and 10 global layers: five tables and one; the assistant caches nothing.
    text = (shared / "samples/prometheus" / f"{name}_startup.prom.txt").read_text()
    facts = dict(re.findall(r'(\w+)="([^"]*)"', re.findall(r"cache_config_info\{.*", text)[0]))
    tokens, concurrency = (
        int(facts["kv_cache_size_tokens"]),
        float(facts["kv_cache_max_concurrency"]),
    )
    max_model_len = round(tokens / concurrency)
    pool = pool_of(
        load_model("gemma-4-31b"),
        load_drafter(drafter) if drafter else None,
        k=k,
        block_size=int(facts["block_size"]),
    )
    predicted = pool.max_concurrency(
        num_blocks=int(facts["num_gpu_blocks"]),
        max_model_len=max_model_len,
        in_flight_tokens=2 * 8192,
    )
    assert predicted == concurrency
    assert int(predicted * max_model_len) == tokens


@pytest.mark.parametrize(
    ("target", "drafter", "more"),
    [
        ("llama-3.1-8b", "eagle3-llama3.1-8b", 4096 / 131_072),  # theory.md 3: 3.1 %
        ("llama-3.1-70b", "eagle3-llama3.3-70b", 0.0125),  # 1.25 %
        ("qwen3-8b", "qwen3-0.6b", 114_688 / 147_456),  # paper: 1.77 times
    ],
)
def test_cache_per_token_that_a_drafter_adds(target: str, drafter: str, more: float) -> None:
    model = load_model(target)
    alone = pool_of(model).bytes_per_token
    together = pool_of(model, load_drafter(drafter), k=4).bytes_per_token
    assert together / alone - 1 == pytest.approx(more)
