"""How a paged KV cache is cut into blocks, and how many sequences fit in it.

The cache is one pool of equal blocks. Layers that cache in the same way form groups; every group
has a block table of its own, and one block carries the pages of all layers of one group, so all
groups draw from the same pool and the widest group sets the size of a block. That is how vLLM V1
sizes it (vllm/v1/core/kv_cache_utils.py and kv_cache_interface.py at 0.32, class names in
brackets below). Lengths and counts broadcast; scalars in give a scalar out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specsim.physics.cost import Num

CacheKind = Literal["full", "sliding", "chunked", "state"]
_LOCAL: tuple[CacheKind, ...] = ("sliding", "chunked")


def attention_bytes_per_token(
    *,
    n_kv_heads: Num,
    head_dim: Num,
    v_head_dim: Num,
    bytes_per_element: Num,
    tensor_parallel_size: Num = 1,
) -> Num:
    """Return the cache that one token takes in one layer of one rank, in bytes.

    Notes
    -----
    max(1, n_kv / TP) * (d_k + d_v) * bytes [AttentionSpec]: beyond n_kv ranks the heads are
    replicated, and a layer whose keys serve as values still stores both.

    Examples
    --------
    >>> attention_bytes_per_token(
    ...     n_kv_heads=8, head_dim=128, v_head_dim=128, bytes_per_element=2, tensor_parallel_size=16
    ... )
    512
    """
    heads = np.maximum(1, np.floor_divide(n_kv_heads, tensor_parallel_size))
    per_token = heads * (head_dim + v_head_dim) * bytes_per_element
    return per_token.item() if np.ndim(per_token) == 0 else per_token


def latent_bytes_per_token(
    *,
    kv_lora_rank: Num,
    rope_head_dim: Num,
    bytes_per_element: Num,
    sparse: bool = False,
) -> Num:
    """Return the cache of one token in one layer of latent attention (MLA), in bytes per rank.

    Notes
    -----
    (r + d_rope) * bytes, no values and nothing to split over ranks [MLAAttentionSpec]. Sparse
    attention on an fp8 cache keeps the rope part in 16 bits and an fp32 scale per 128 latents:
    512 + 16 + 128 = 656 bytes for DeepSeek-V3.2 and GLM-5 ['fp8_ds_mla'].

    Examples
    --------
    >>> latent_bytes_per_token(
    ...     kv_lora_rank=512, rope_head_dim=64, bytes_per_element=1, sparse=True
    ... )
    656.0
    """
    if sparse and bytes_per_element == 1:
        return kv_lora_rank * (1 + 4 / 128) + 2 * rope_head_dim
    return (kv_lora_rank + rope_head_dim) * bytes_per_element


def recurrent_state_bytes(
    *,
    n_key_heads: Num,
    n_value_heads: Num,
    key_dim: Num,
    value_dim: Num,
    conv_kernel: Num,
    state_bytes: Num,
    conv_bytes: Num = 2.0,
    num_speculative_tokens: Num = 0,
    tensor_parallel_size: Num = 1,
) -> Num:
    """Return the size of one state of one recurrent layer on one rank, in bytes.

    Notes
    -----
    (n_v d_v d_k * state_bytes + (2 n_k d_k + n_v d_v)(kernel - 1 + k) * conv_bytes) / TP
    [MambaSpec; gated_delta_net_state_shape, kda_state_shape, mamba2_state_shape]: the convolution
    keeps the inputs of the k tokens that may yet be rejected.
    """
    channels = 2 * n_key_heads * key_dim + n_value_heads * value_dim
    conv = channels * (conv_kernel - 1 + num_speculative_tokens) * conv_bytes
    state = n_value_heads * value_dim * key_dim * state_bytes
    return (conv + state) / tensor_parallel_size


def aligned_block_tokens(
    *, state_page_bytes: float, attention_bytes_per_token: float, block_tokens: int
) -> int:
    """Return the tokens per attention block of a hybrid, raised until a page holds a state.

    Notes
    -----
    block * ceil(state / (block * bytes per token)); the state's page is then padded to the
    attention page [Platform._align_hybrid_block_size].

    Examples
    --------
    >>> aligned_block_tokens(
    ...     state_page_bytes=1_100_000, attention_bytes_per_token=2048, block_tokens=16
    ... )
    544
    """
    return block_tokens * math.ceil(state_page_bytes / (block_tokens * attention_bytes_per_token))


@dataclass(frozen=True, slots=True)
class CacheLayers:
    """`count` layers that cache in the same way."""

    count: int
    kind: CacheKind
    page_bytes: float
    """Of one block in one layer of one rank."""
    block_tokens: int
    window: int = 0
    """Sliding window or chunk length; 0 for the other kinds. [tokens]"""
    state_blocks: int = 0
    """Blocks per sequence of a recurrent layer."""
    latent: bool = False
    """Read row by row: the page cannot be padded [MLAAttentionSpec]."""
    of_drafter: bool = False
    """Lives on the last pipeline stage only."""


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Block tables of one kind: a sequence takes blocks in each of `tables` tables."""

    kind: CacheKind
    tables: int
    block_tokens: int
    window: int = 0
    state_blocks: int = 0

    def blocks_at_most(self, *, tokens: Num, in_flight_tokens: Num) -> Num:
        """Return the blocks that the engine reserves for a sequence of at most `tokens`.

        Notes
        -----
        full ceil(L/b); sliding ceil(min(w - 1 + f, L)/b) + 1; chunked ceil(min(w + f, L)/b), with
        f the tokens scheduled and not yet settled [max_memory_usage_bytes of each spec].
        """
        block = self.block_tokens
        match self.kind:
            case "full":
                blocks = np.ceil(tokens / block)
            case "sliding":
                held = np.minimum(self.window - 1 + in_flight_tokens, tokens)
                blocks = np.ceil(held / block) + 1
            case "chunked":
                blocks = np.ceil(np.minimum(self.window + in_flight_tokens, tokens) / block)
            case "state":
                blocks = self.state_blocks + np.zeros_like(tokens, dtype=float)
        return self.tables * blocks

    def blocks_held(self, *, tokens: Num, lookahead_tokens: Num) -> Num:
        """Return the mean blocks of decoding sequences whose mean length is `tokens`.

        Notes
        -----
        Lengths are taken as spread evenly over a block: E[ceil(L/b)] = (L + (b - 1)/2)/b. A
        window of h tokens at a random place covers (h + b - 1)/b blocks; a chunk is half full.
        """
        block = self.block_tokens
        grown = (tokens + lookahead_tokens + (block - 1) / 2) / block
        match self.kind:
            case "full":
                blocks = grown
            case "sliding":
                blocks = np.minimum(grown, (self.window + lookahead_tokens + block - 1) / block)
            case "chunked":
                half = (self.window / 2 + lookahead_tokens + (block - 1) / 2) / block
                blocks = np.minimum(grown, half)
            case "state":
                blocks = self.state_blocks + 0 * grown
        return self.tables * blocks


@dataclass(frozen=True, slots=True)
class CachePool:
    """The pool of blocks of one rank."""

    block_bytes: float
    groups: tuple[CacheGroup, ...]

    @property
    def block_tokens(self) -> int:
        """Tokens per block of the first full-attention group, else of the first group."""
        full = [g for g in self.groups if g.kind == "full"]
        return (full or list(self.groups))[0].block_tokens

    @property
    def bytes_per_token(self) -> float:
        """What each further token of a long sequence takes on one rank, padding included."""
        return sum(
            g.tables * self.block_bytes / g.block_tokens for g in self.groups if g.kind == "full"
        )

    def num_blocks(self, available_bytes: Num) -> Num:
        """Return the whole blocks in `available_bytes`; one of them is the null block."""
        return np.maximum(np.floor(available_bytes / self.block_bytes), 0.0)

    def blocks_per_request(self, *, max_model_len: Num, in_flight_tokens: Num) -> Num:
        """Return the blocks reserved for one request of `max_model_len`."""
        return sum(
            g.blocks_at_most(tokens=max_model_len, in_flight_tokens=in_flight_tokens)
            for g in self.groups
        )

    def max_concurrency(self, *, num_blocks: Num, max_model_len: Num, in_flight_tokens: Num) -> Num:
        """Return the requests of `max_model_len` that fit, as the engine prints it.

        Notes
        -----
        num_blocks / blocks per request [get_max_concurrency_for_kv_cache_config]; the null block
        is not taken off. The printed number of tokens is int(this * max_model_len).
        """
        return num_blocks / self.blocks_per_request(
            max_model_len=max_model_len, in_flight_tokens=in_flight_tokens
        )

    def sequences_that_fit(
        self,
        *,
        num_blocks: Num,
        tokens_per_sequence: Num,
        lookahead_tokens: Num = 0,
        shared_prefix_tokens: Num = 0,
    ) -> Num:
        """Return the sequences in flight that fit, at a mean length.

        Notes
        -----
        (blocks - null - shared) / (blocks held - shared). Whole blocks of a shared prefix are
        stored once in full-attention groups; windows and states are each sequence's own.
        """
        held: Num = 0.0
        shared: Num = 0.0
        for group in self.groups:
            held += group.blocks_held(tokens=tokens_per_sequence, lookahead_tokens=lookahead_tokens)
            if group.kind == "full":
                prefix = np.minimum(shared_prefix_tokens, tokens_per_sequence)
                shared += group.tables * np.floor(prefix / group.block_tokens)
        free = np.maximum(num_blocks - 1 - shared, 0.0)
        return free / np.maximum(held - shared, 1e-9)


def build_pool(
    layers: Sequence[CacheLayers], *, pipeline_stages: int = 1, packed: bool = False
) -> CachePool:
    """Group layers into block tables and size the block [get_kv_cache_groups].

    Parameters
    ----------
    pipeline_stages : int
        Target layers are spread over them; the block is that of the fullest stage, which also
        holds the drafter.
    packed : bool
        Pages of different sizes lie side by side in a block (DeepSeek-V4's block-outermost
        layout), so that they need not be made equal.

    Notes
    -----
    1. All layers alike (one kind, block length and window): one table, a block is the sum of
       their pages, whatever their sizes. A drafter's full-attention layers join the target's.
    2. Otherwise all pages are made as large as the largest: a smaller page that divides it takes
       more tokens per block, any other is padded [unify_kv_cache_spec_page_size]. Where latent
       pages stand in the way, windows are stored in full instead.
    3. Each kind is then split into tables of equally many layers: as many as the rarest kind has,
       unless the most frequent has less than 1.5 times that, then as many as that has
       [_get_kv_cache_groups_uniform_page_size]. Tables that are not full waste their padding.
    """
    alike = {(x.kind, x.block_tokens, x.window, x.state_blocks) for x in layers}
    if len(alike) == 1:
        return _one_table(layers, pipeline_stages)
    if packed:
        return _packed_pool(layers, pipeline_stages)
    largest = max(x.page_bytes for x in layers)
    if any(x.latent and largest % x.page_bytes for x in layers):
        block = next(x.block_tokens for x in layers if x.latent)
        return _one_table([_stored_in_full(x, block) for x in layers], pipeline_stages)

    buckets: dict[tuple[object, ...], list[CacheLayers]] = {}
    for x in layers:
        same = (x.kind, x.block_tokens, x.page_bytes, x.window, x.latent)
        buckets.setdefault(same, []).append(_grown_page(x, largest))
    counts = [sum(x.count for x in bucket) for bucket in buckets.values()]
    fewest, most = min(counts), max(counts)
    group_size = most if most < 1.5 * fewest else fewest

    groups = []
    widest = 0
    for bucket, count in zip(buckets.values(), counts, strict=True):
        tables = math.ceil(count / group_size)
        groups.append(_group(bucket[0], tables))
        widest = max(widest, _on_fullest_stage(bucket, tables, pipeline_stages))
    return CachePool(block_bytes=widest * largest, groups=tuple(groups))


def _one_table(layers: Sequence[CacheLayers], stages: int) -> CachePool:
    block_bytes = sum(_on_fullest_stage([x], 1, stages) * x.page_bytes for x in layers)
    return CachePool(block_bytes=block_bytes, groups=(_group(layers[0], 1),))


def _packed_pool(layers: Sequence[CacheLayers], stages: int) -> CachePool:
    """Split kinds so that their tables are about equally wide [_get_packed_kv_cache_groups].

    A kind whose page sizes occur equally often is a repeating pattern and may be split; one that
    mixes sizes in such a pattern stays whole, and its length is the least for the others.
    """
    kinds: dict[tuple[object, ...], dict[float, list[CacheLayers]]] = {}
    for x in layers:
        pages = kinds.setdefault((x.kind, x.block_tokens, x.window), {})
        pages.setdefault(x.page_bytes, []).append(x)

    def repeats(pages: dict[float, list[CacheLayers]]) -> list[int]:
        return [sum(x.count for x in same) for same in pages.values()]

    patterns = [repeats(pages) for pages in kinds.values() if len(set(repeats(pages))) == 1]
    least = max((p[0] for p in patterns if len(p) > 1), default=0)
    per_table = _least_padding([p[0] for p in patterns], least) if least else 0

    groups = []
    block_bytes = 0.0
    for pages in kinds.values():
        numbers = repeats(pages)
        splits = per_table and len(set(numbers)) == 1
        tables = math.ceil(numbers[0] / per_table) if splits else 1
        groups.append(_group(next(iter(pages.values()))[0], tables))
        width = sum(_on_fullest_stage(same, tables, stages) * page for page, same in pages.items())
        block_bytes = max(block_bytes, width)
    return CachePool(block_bytes=block_bytes, groups=tuple(groups))


def _least_padding(counts: Sequence[int], least: int) -> int:
    """Return the table width that pads `counts` least; of equals the larger [_approximate_gcd]."""
    widths = range(least, max(least, *counts) + 1)
    return min(widths, key=lambda width: (sum(-n % width for n in counts), -width))


def _on_fullest_stage(bucket: Sequence[CacheLayers], tables: int, stages: int) -> int:
    """Layers of the widest table of `bucket` on the stage that has most."""
    drafter = sum(x.count for x in bucket if x.of_drafter)
    target = sum(x.count for x in bucket) - drafter
    if stages == 1:
        return math.ceil((target + drafter) / tables)
    return math.ceil(math.ceil(target / tables) / stages) + math.ceil(drafter / tables)


def _group(x: CacheLayers, tables: int) -> CacheGroup:
    return CacheGroup(
        kind=x.kind,
        tables=tables,
        block_tokens=x.block_tokens,
        window=x.window,
        state_blocks=x.state_blocks,
    )


def _grown_page(x: CacheLayers, page_bytes: float) -> CacheLayers:
    """Make the page `page_bytes` large: by more tokens per block if that comes out even."""
    divides = x.kind != "state" and page_bytes % x.page_bytes == 0
    ratio = int(page_bytes // x.page_bytes) if divides else 1
    return replace(x, page_bytes=page_bytes, block_tokens=x.block_tokens * ratio)


def _stored_in_full(x: CacheLayers, block_tokens: int) -> CacheLayers:
    """Keep every token of a windowed layer [_promote_local_kv_cache_specs]."""
    page_bytes = x.page_bytes * block_tokens / x.block_tokens
    kind: CacheKind = "full" if x.kind in _LOCAL else x.kind
    return replace(x, kind=kind, window=0, block_tokens=block_tokens, page_bytes=page_bytes)
