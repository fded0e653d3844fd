from __future__ import annotations

import numpy as np
import pytest

from specsim.physics import memory
from specsim.physics.memory import CacheLayers, build_pool


def full(count: int, page_bytes: float, *, block: int = 16, **more: object) -> CacheLayers:
    return CacheLayers(count, "full", page_bytes, block, **more)  # type: ignore[arg-type]


def sliding(count: int, page_bytes: float, window: int, *, block: int = 16) -> CacheLayers:
    return CacheLayers(count, "sliding", page_bytes, block, window)


class TestBytesPerToken:
    def test_heads_are_split_and_then_replicated(self) -> None:
        per_rank = memory.attention_bytes_per_token(
            n_kv_heads=8,
            head_dim=128,
            v_head_dim=128,
            bytes_per_element=2,
            tensor_parallel_size=np.array([1, 2, 8, 16]),
        )
        assert per_rank.tolist() == [4096, 2048, 512, 512]

    def test_a_value_head_of_another_size(self) -> None:
        assert (
            memory.attention_bytes_per_token(
                n_kv_heads=4, head_dim=192, v_head_dim=128, bytes_per_element=1
            )
            == 1280
        )

    @pytest.mark.parametrize(
        ("element", "sparse", "expected"),
        [(2, False, 1152), (1, False, 576), (2, True, 1152), (1, True, 656)],
    )
    def test_latents(self, element: float, sparse: bool, expected: float) -> None:
        assert (
            memory.latent_bytes_per_token(
                kv_lora_rank=512, rope_head_dim=64, bytes_per_element=element, sparse=sparse
            )
            == expected
        )

    def test_a_recurrent_state_keeps_inputs_of_draft_tokens(self) -> None:
        # Qwen3.5-27B: 48 x 128 x 128 fp32, convolution over 10,240 bf16 channels.
        plain, drafting = (
            memory.recurrent_state_bytes(
                n_key_heads=16,
                n_value_heads=48,
                key_dim=128,
                value_dim=128,
                conv_kernel=4,
                state_bytes=4,
                num_speculative_tokens=k,
            )
            for k in (0, 3)
        )
        assert plain == 48 * 128 * 128 * 4 + 10_240 * 3 * 2
        assert drafting - plain == 10_240 * 3 * 2


class TestPool:
    def test_a_drafter_joins_the_table_of_the_target(self) -> None:
        pool = build_pool([full(32, 65536), full(1, 65536, of_drafter=True)])
        assert len(pool.groups) == 1
        assert pool.bytes_per_token == 33 * 65536 / 16

    def test_a_draft_model_with_other_heads_keeps_its_own_page_size(self) -> None:
        assert build_pool([full(36, 65536), full(28, 32768)]).block_bytes == 36 * 65536 + 28 * 32768

    def test_windows_are_grouped_by_the_rarest_kind(self) -> None:
        # Gemma-3-12b: 40 windowed and 8 global layers in a pattern of five to one.
        pool = build_pool([sliding(40, 1000, 1024), full(8, 1000)])
        assert [(g.kind, g.tables) for g in pool.groups] == [("sliding", 5), ("full", 1)]
        assert pool.block_bytes == 8000

    def test_one_extra_layer_pads_instead_of_doubling(self) -> None:
        # gpt-oss-20b and EAGLE-3, the example in vLLM's source: 12 and 12 + 1 -> groups of 13.
        pool = build_pool([sliding(12, 1000, 128), full(12, 1000), full(1, 1000)])
        assert [g.tables for g in pool.groups] == [1, 1]
        assert pool.block_bytes == 13_000

    def test_few_windowed_draft_layers_split_the_target(self) -> None:
        # 32 full layers and 5 windowed ones: groups of 5, 32 -> 35 (vLLM: 9 % waste).
        pool = build_pool([full(32, 1000), sliding(5, 1000, 4096)])
        assert [(g.kind, g.tables) for g in pool.groups] == [("full", 7), ("sliding", 1)]
        assert pool.bytes_per_token == pytest.approx(35_000 / 16)

    def test_a_smaller_page_that_divides_takes_more_tokens(self) -> None:
        pool = build_pool([sliding(10, 4000, 1024), full(10, 2000)])
        assert [(g.kind, g.block_tokens) for g in pool.groups] == [("sliding", 16), ("full", 32)]

    def test_a_page_that_does_not_divide_is_padded(self) -> None:
        pool = build_pool([sliding(10, 4000, 1024), full(10, 3000)])
        assert [g.block_tokens for g in pool.groups] == [16, 16]
        assert pool.block_bytes == 40_000

    def test_latents_beside_windows_store_the_windows_in_full(self) -> None:
        pool = build_pool(
            [full(60, 36864, block=64, latent=True), sliding(5, 65536, 2048, block=64)]
        )
        assert [g.kind for g in pool.groups] == ["full"]
        assert pool.block_bytes == 60 * 36864 + 5 * 65536

    def test_states_share_the_pool_with_the_attention_that_was_grown_to_hold_them(self) -> None:
        states = CacheLayers(48, "state", 3000, 16, state_blocks=2)
        pool = build_pool([states, full(16, 3000)])
        assert [(g.kind, g.tables) for g in pool.groups] == [("state", 3), ("full", 1)]
        assert pool.blocks_per_request(max_model_len=160, in_flight_tokens=0) == 3 * 2 + 10

    def test_the_last_pipeline_stage_holds_the_drafter(self) -> None:
        target, drafter = full(61, 1000), full(1, 1000, of_drafter=True)
        assert build_pool([target, drafter], pipeline_stages=2).block_bytes == 32_000

    def test_packed_pages_lie_side_by_side(self) -> None:
        # DeepSeek-V4-Flash (43 layers): entries and index keys of 21 layers, entries of 20 more.
        latent = {"block": 256, "latent": True}
        pool = build_pool(
            [
                sliding(43, 37440, 128, block=64),
                full(21, 37440, **latent),
                full(21, 8640, **latent),
                full(20, 1728, **latent),
                sliding(21, 32832, 8, block=4),
                sliding(21, 8640, 8, block=4),
                sliding(20, 32832, 128, block=8),
            ],
            packed=True,
        )
        assert pool.block_bytes == 21 * (37440 + 8640) + 20 * 1728
        assert [(g.block_tokens, g.tables) for g in pool.groups] == [
            (64, 2),
            (256, 1),
            (4, 1),
            (8, 1),
        ]


class TestCapacity:
    def test_blocks_of_a_request_at_most(self) -> None:
        pool = build_pool([sliding(50, 4000, 1024), full(10, 2000)])
        # Window 1023 + two steps of 8192 in flight: 1088 blocks of 16, one more for the edge.
        assert pool.blocks_per_request(max_model_len=34816, in_flight_tokens=16384) == (
            5 * 1089 + 34816 / 32
        )

    def test_a_chunk_needs_no_block_at_the_edge(self) -> None:
        pool = build_pool([CacheLayers(36, "chunked", 100, 16, 8192), full(12, 100)])
        assert pool.blocks_per_request(max_model_len=100_000, in_flight_tokens=8192) == (
            3 * 1024 + 6250
        )

    def test_sequences_fit_by_mean_length_and_one_block_is_kept(self) -> None:
        pool = build_pool([full(1, 1600)])
        fit = pool.sequences_that_fit(
            num_blocks=1001, tokens_per_sequence=np.array([152.5, 1592.5])
        )
        # 16-token blocks, the last half full on average: 152.5 + 7.5 = 10 blocks.
        assert fit.tolist() == [100.0, 10.0]

    def test_lookahead_slots_cost_sequences(self) -> None:
        pool = build_pool([full(1, 1600)])
        assert pool.sequences_that_fit(
            num_blocks=1001, tokens_per_sequence=152.5, lookahead_tokens=16
        ) == pytest.approx(1000 / 11)

    def test_a_shared_prefix_is_stored_once(self) -> None:
        pool = build_pool([full(1, 1600)])
        assert pool.sequences_that_fit(
            num_blocks=1001, tokens_per_sequence=152.5, shared_prefix_tokens=80
        ) == pytest.approx((1000 - 5) / (10 - 5))

    def test_windows_stop_growing(self) -> None:
        pool = build_pool([sliding(1, 1600, 128)])
        short, long, longer = pool.sequences_that_fit(
            num_blocks=1001, tokens_per_sequence=np.array([24.5, 4096, 65536])
        )
        assert short == 500
        assert long == longer == pytest.approx(1000 / ((128 + 15) / 16))

    def test_never_negative(self) -> None:
        pool = build_pool([full(1, 1600)])
        assert pool.num_blocks(-5.0) == 0
        assert pool.sequences_that_fit(num_blocks=0, tokens_per_sequence=100.0) == 0

    def test_scalar_equals_array(self) -> None:
        pool = build_pool([sliding(50, 4000, 1024), full(10, 2000)])
        lengths = np.array([100.0, 1500.0, 20_000.0])
        together = pool.sequences_that_fit(num_blocks=20_000, tokens_per_sequence=lengths)
        alone = [pool.sequences_that_fit(num_blocks=20_000, tokens_per_sequence=x) for x in lengths]
        assert together.tolist() == alone
