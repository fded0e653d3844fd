"""How drafts are made and how often they are accepted (definitions.md section 1)."""

from __future__ import annotations

import itertools
from typing import Literal

from pydantic import Field, field_validator, model_validator

from specsim.schema.base import Record, WeightDtype

Method = Literal[
    "none", "ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa",
    "dflash", "dspark", "p_eagle", "pard",
]  # fmt: skip
NO_DRAFTER: tuple[str, ...] = ("none", "ngram", "suffix")
"""Methods without weights of their own."""


class Acceptance(Record):
    """How many draft tokens are accepted, in exactly one of five forms."""

    length: float | None = Field(
        default=None, ge=1, description="mean tokens per target step, bonus token included"
    )
    rate: float | None = Field(
        default=None, ge=0, le=1, description="per token, given that the ones before were accepted"
    )
    draft_acceptance_rate: float | None = Field(
        default=None, ge=0, le=1, description="accepted / drafted, as engines print it"
    )
    per_position: tuple[float, ...] | None = Field(
        default=None, min_length=1, description="unconditional, non-increasing, as vLLM prints it"
    )
    profile: str | None = Field(default=None, description="a bundled measurement, by id")
    proposal_rate: float | None = Field(
        default=None, gt=0, le=1, description="share of steps that draft at all (n-gram, suffix)"
    )
    counts: int | None = Field(
        default=None, gt=0, description="drafts behind the figure: sets its sampling error"
    )
    spread: float | None = Field(
        default=None,
        ge=0,
        le=5,
        description="how much requests differ: standard deviation, between requests, of the "
        "log-odds of the per-token rate; absent: the method's",
    )
    measured_at_k: int | None = Field(
        default=None,
        gt=0,
        le=64,
        description="num_speculative_tokens that a length or accepted share was measured at, "
        "where it is not the scenario's",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Acceptance:
        forms = ("length", "rate", "draft_acceptance_rate", "per_position", "profile")
        given = [f for f in forms if getattr(self, f) is not None]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of {', '.join(forms)} must be given, got {', '.join(given) or 'none'}"
            )
        if self.measured_at_k is not None and given[0] not in ("length", "draft_acceptance_rate"):
            raise ValueError(
                f"measured_at_k belongs to length and draft_acceptance_rate, which hang on k; "
                f"{given[0]} does not"
            )
        if self.per_position is not None:
            p = self.per_position
            if any(not 0 <= x <= 1 for x in p):
                raise ValueError("per_position entries must lie in 0..1")
            if any(later > earlier + 1e-9 for earlier, later in itertools.pairwise(p)):
                raise ValueError(
                    "per_position must not rise: it is the probability that this and all earlier "
                    "positions are accepted"
                )
        return self


MAX_TREE_TOKENS = 512
"""Most tokens of one tree: published ones verify up to 64 (SGLang), 512 leaves room."""


class Tree(Record):
    """Tree drafting (SGLang): `num_draft_tokens` includes the root and is what is verified."""

    topk: int = Field(gt=0, le=MAX_TREE_TOKENS, description="branches per drafting step")
    num_draft_tokens: int = Field(
        gt=1, le=MAX_TREE_TOKENS, description="tokens verified per sequence, root included"
    )

    def most_tokens(self, depth: int) -> int:
        """Return the size of the full tree of this depth, root included: sum of topk^i."""
        size = 0
        for level in range(depth + 1):
            size += self.topk**level
            if size >= MAX_TREE_TOKENS:
                return MAX_TREE_TOKENS
        return size


class Speculation(Record):
    """One way of speculating."""

    method: Method = "none"
    num_speculative_tokens: int | None = Field(
        default=None, gt=0, le=64, description="draft tokens per step (k); depth for a tree"
    )
    drafter: str | None = Field(default=None, description="catalog id or path of the drafter")
    drafter_weight_dtype: WeightDtype | None = Field(
        default=None, description="absent: the drafter's own, else the target's"
    )
    draft_tensor_parallel_size: int | None = Field(
        default=None, gt=0, description="1 or the target's; absent: the target's"
    )
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] | None = Field(
        default=None,
        min_length=1,
        description="vLLM's schedule of k: first and last batch size, and k there; 0 is off",
    )
    tree: Tree | None = None
    adaptive_verification: bool = False
    acceptance: Acceptance | None = None

    @field_validator("num_speculative_tokens_per_batch_size")
    @classmethod
    def _tiers_in_order(
        cls, tiers: tuple[tuple[int, int, int], ...] | None
    ) -> tuple[tuple[int, int, int], ...] | None:
        """Refuse what vLLM refuses (v1/spec_decode/dynamic/utils.py)."""
        if tiers is None:
            return None
        name = "num_speculative_tokens_per_batch_size"
        if tiers[0][0] != 1:
            raise ValueError(f"{name} must start at batch size 1, not {tiers[0][0]}")
        before = 0
        for first, last, k in tiers:
            if last < first or k < 0:
                raise ValueError(f"{name}: [{first}, {last}, {k}] is no [first, last, k]")
            if first <= before:
                raise ValueError(f"{name}: batch size {first} is in two ranges")
            before = last
        return tiers

    @model_validator(mode="after")
    def _consistent(self) -> Speculation:
        if self.method == "none":
            return self
        k = self.num_speculative_tokens
        if self.drafter is not None and self.method in NO_DRAFTER:
            raise ValueError(f"method {self.method} has no drafter, got {self.drafter!r}")
        if self.tree is not None and k is not None and self.tree.num_draft_tokens < k + 1:
            raise ValueError(
                f"tree.num_draft_tokens ({self.tree.num_draft_tokens}) must be at least "
                f"num_speculative_tokens + 1 ({k + 1})"
            )
        if self.tree is not None and k is not None:
            most = self.tree.most_tokens(k)
            if self.tree.num_draft_tokens > most:
                raise ValueError(
                    f"tree.num_draft_tokens ({self.tree.num_draft_tokens}) is above {most}, all "
                    f"tokens of a tree of topk {self.tree.topk} and depth {k}, root included"
                )
        given = self.acceptance
        if given is not None and given.length is not None and k is not None:
            k = given.measured_at_k or k
            if given.length > k + 1 + 1e-9:
                raise ValueError(
                    f"acceptance.length {given.length} is above num_speculative_tokens "
                    f"+ 1 = {k + 1}, which no step can yield"
                )
        return self


class ProfilePoint(Record):
    """Acceptance measured in one setting."""

    temperature: float = Field(ge=0)
    length: float | None = Field(default=None, ge=1)
    num_speculative_tokens: int | None = Field(default=None, gt=0)
    draft_acceptance_rate: float | None = Field(default=None, ge=0, le=1)
    per_position: tuple[float, ...] | None = None
    proposal_rate: float | None = Field(default=None, gt=0, le=1)
    counts: int | None = Field(default=None, gt=0)
    source: str
    note: str = ""

    @model_validator(mode="after")
    def _some_form(self) -> ProfilePoint:
        if self.per_position is None and self.length is None and self.draft_acceptance_rate is None:
            raise ValueError("a profile point needs per_position, length or draft_acceptance_rate")
        if self.length is not None and self.per_position is None:
            if self.num_speculative_tokens is None:
                raise ValueError("length needs num_speculative_tokens beside it")
        return self


class AcceptanceProfile(Record):
    """A drafter family on a kind of text, at one or more temperatures."""

    id: str
    method: Method
    dataset: str
    drafter: str | None = None
    target: str | None = None
    points: tuple[ProfilePoint, ...] = Field(min_length=1)
