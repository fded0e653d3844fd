"""A scenario: one deployment, one way of speculating, one workload (case_format.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from specsim.schema.base import KvDtype, Record, WeightDtype
from specsim.schema.speculation import Speculation

EngineName = Literal["vllm", "sglang", "tensorrt-llm"]
MAX_LOADS = 1000
"""Most loads of one prediction: each is a row of the answer."""
LEAST_RATE, MOST_RATE = 1e-6, 1e9
"""Of arrivals [requests/s]: one in twelve days, below which times between requests swallow the
milliseconds of one, and more than any fleet gets."""
MOST_CONCURRENCY = 10_000_000
MOST_REQUESTS = 10_000_000
"""Of one run, which are drawn at once."""
_MOST_SEQS, _MOST_TOKENS, _MOST_HOST_MS = 10_000_000, 1_000_000_000, 60_000
"""Far above any engine's; figures beyond are slips, and print as rows of digits."""
RATES = f"{LEAST_RATE:.6f} to {MOST_RATE:,.0f}"
DEFAULT_CONCURRENCY: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Target(Record):
    """The model that is served."""

    model: str = Field(description="catalog id, Hugging Face id, or path of a config.json")
    weight_dtype: WeightDtype | None = Field(default=None, description="absent: the checkpoint's")
    kv_dtype: KvDtype | None = Field(default=None, description="absent: bf16 or the checkpoint's")


class Hardware(Record):
    """What it runs on."""

    accelerator: str = Field(description="hardware profile id, or path of a profile")
    tensor_parallel_size: int = Field(default=1, gt=0, le=64)
    pipeline_parallel_size: int = Field(default=1, gt=0, le=64)
    expert_parallel: bool = False


class EngineSettings(Record):
    """How the engine is started. What is absent is the engine version's default."""

    name: EngineName = "vllm"
    version: str | None = Field(default=None, description="absent: the newest known")
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    max_num_seqs: int | None = Field(default=None, gt=0, le=_MOST_SEQS)
    max_num_batched_tokens: int | None = Field(default=None, gt=0, le=_MOST_TOKENS)
    max_model_len: int | None = Field(default=None, gt=0, le=_MOST_TOKENS)
    cuda_graphs: bool = True
    max_graph_tokens: int | None = Field(
        default=None,
        gt=0,
        le=_MOST_TOKENS,
        description="largest captured step [tokens]; absent: engine default",
    )
    async_scheduling: bool | None = None
    speculative_graphs: Literal["full", "piecewise"] | None = Field(
        default=None,
        description="graphs of verification: piecewise where the engine's log says that it "
        "overrides cudagraph_mode; absent: what the version does on this device",
    )
    host_ms: float | None = Field(
        default=None,
        ge=0,
        le=_MOST_HOST_MS,
        description="host time of a step; absent: the engine version's",
    )
    speculative_host_ms: float | None = Field(
        default=None,
        ge=0,
        le=_MOST_HOST_MS,
        description="what speculation adds to it; absent: the engine version's",
    )
    draft_host_ms: float | None = Field(
        default=None,
        ge=0,
        le=_MOST_HOST_MS,
        description="host time of a drafter pass, beyond the launch of every layer where it has no "
        "graphs; absent: the engine version's",
    )

    @field_validator("version", mode="before")
    @classmethod
    def _version_as_text(cls, value: object) -> object:
        """Take a version that lost its quotes: 0.33 is still 0.33, but 0.10 has become 0.1."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        text = str(value)
        if isinstance(value, float) and len(text.partition(".")[2]) == 1:
            raise ValueError(
                f"as a number {text} and {text}0 are the same; put the version in quotes: "
                f"'{text}' or '{text}0'"
            )
        return text

    @model_validator(mode="after")
    def _batch_within_tokens(self) -> EngineSettings:
        tokens, seqs = self.max_num_batched_tokens, self.max_num_seqs
        # vLLM's own check and words (config/scheduler.py); SGLang's chunk is of prompts only.
        if self.name == "vllm" and tokens is not None and seqs is not None and tokens < seqs:
            raise ValueError(
                f"max_num_batched_tokens ({tokens}) must be greater than or equal to "
                f"max_num_seqs ({seqs})"
            )
        return self


class Workload(Record):
    """What is asked."""

    input_tokens: float = Field(default=512, gt=0, description="mean prompt length [tokens]")
    output_tokens: float = Field(default=256, ge=1, description="mean answer length [tokens]")
    input_tokens_p95: float | None = Field(
        default=None,
        gt=0,
        description="95th percentile of prompt lengths, lognormal around the mean [tokens]; "
        "absent: all alike",
    )
    output_tokens_p95: float | None = Field(
        default=None,
        ge=1,
        description="95th percentile of answer lengths, lognormal around the mean [tokens]; "
        "absent: all alike",
    )
    burstiness: float = Field(
        default=1.0,
        ge=0.01,
        le=1e6,
        description="shape of the gamma-distributed gaps between arrivals, as vLLM's bench has "
        "it: 1 is Poisson, less is burstier",
    )
    cached_prompt_tokens: float = Field(
        default=0, ge=0, description="prefix-cache hits per request, not prefilled [tokens]"
    )
    cached_prompt_tokens_speculative: float | None = Field(
        default=None, ge=0, description="the same with speculation on, where it differs [tokens]"
    )
    shared_prefix: bool = Field(
        default=False, description="the cached tokens are one prefix of all requests, stored once"
    )
    arrival: Literal["steady", "burst"] = "steady"
    num_requests: int | None = Field(default=None, gt=0, le=MOST_REQUESTS, description="with burst")
    temperature: float = Field(default=0.0, ge=0, le=100)

    @model_validator(mode="after")
    def _percentiles_above_means(self) -> Workload:
        for name in ("input_tokens", "output_tokens"):
            mean, p95 = getattr(self, name), getattr(self, f"{name}_p95")
            # exp(z^2 / 2): no lognormal has its 95th percentile further above its mean.
            if p95 is not None and not mean <= p95 <= 3.868 * mean:
                raise ValueError(
                    f"{name}_p95 ({p95:g}) must lie between {name} ({mean:g}) and 3.87 times that: "
                    "no lognormal has that mean and that percentile"
                )
        return self

    @model_validator(mode="after")
    def _cached_within_prompt(self) -> Workload:
        for name in ("cached_prompt_tokens", "cached_prompt_tokens_speculative"):
            cached = getattr(self, name)
            if cached is not None and cached > self.input_tokens:
                raise ValueError(
                    f"{name} ({cached:g}) is above input_tokens ({self.input_tokens:g})"
                )
        return self


class Load(Record):
    """Either requests kept in the system, or requests arriving per second."""

    concurrency: tuple[float, ...] | None = Field(default=None, description="[requests]")
    request_rate: tuple[float, ...] | None = Field(default=None, description="[requests/s]")

    @field_validator("concurrency", "request_rate", mode="before")
    @classmethod
    def _some_but_not_too_many(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError("there is no load in it; give at least one, such as [1, 8, 64]")
            if len(value) > MAX_LOADS:
                raise ValueError(f"that is {len(value)} loads; give at most {MAX_LOADS}")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Load:
        if (self.concurrency is None) == (self.request_rate is None):
            raise ValueError("give concurrency or request_rate, not both and not neither")
        values = self.concurrency if self.concurrency is not None else self.request_rate
        if any(v <= 0 for v in values or ()):
            raise ValueError("loads must be above 0")
        if self.concurrency is not None and any(v < 1 for v in self.concurrency):
            raise ValueError("concurrency starts at 1")
        if any(v > MOST_CONCURRENCY for v in self.concurrency or ()):
            raise ValueError(f"concurrency ends at {MOST_CONCURRENCY:,}")
        if any(not LEAST_RATE <= v <= MOST_RATE for v in self.request_rate or ()):
            raise ValueError(f"request_rate goes from {RATES} requests/s")
        return self


class Scenario(Record):
    """Everything a prediction is made from."""

    name: str = ""
    target: Target
    hardware: Hardware
    engine: EngineSettings = EngineSettings()
    speculation: Speculation = Speculation()
    workload: Workload = Workload()
    load: Load = Load(concurrency=DEFAULT_CONCURRENCY)

    @model_validator(mode="after")
    def _step_holds_a_draft(self) -> Scenario:
        k, tokens = self.speculation.num_speculative_tokens, self.engine.max_num_batched_tokens
        if self.speculation.method == "none" or k is None or tokens is None:
            return self
        if self.engine.name == "vllm" and tokens < k + 1:
            raise ValueError(
                f"engine.max_num_batched_tokens ({tokens}) must be at least "
                f"speculation.num_speculative_tokens + 1 ({k + 1}): one request's step"
            )
        return self
