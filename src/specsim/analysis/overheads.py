"""What the engine adds around the passes of an arm: host times, launches, limits of graphs."""

from __future__ import annotations

from specsim.analysis.constants import Constants
from specsim.analysis.resolve import Deployment
from specsim.physics.cost import Num
from specsim.physics.step import Overheads
from specsim.schema.base import Range
from specsim.units import MICRO, MILLI


def overheads(deployment: Deployment, constants: Constants, *, speculative: bool) -> Overheads:
    """Return the overheads of an arm."""
    engine, given = deployment.engine, deployment.scenario.engine
    method = deployment.method if speculative else "none"
    width, tree = 1, None
    if speculative:
        tree = deployment.scenario.speculation.tree
        width = 1 + deployment.num_speculative_tokens if tree is None else tree.num_draft_tokens

    def draw(constant: Range, override_ms: float | None, family: str) -> Num:
        if override_ms is not None:
            return override_ms * MILLI
        return constants.value(constant, family) * MILLI

    asynchronous = deployment.async_scheduling
    if speculative:
        asynchronous = deployment.speculative_async_scheduling
    host = engine.host_ms if asynchronous else engine.sync_host_ms
    proposer = {"ngram": engine.ngram_host_ms, "suffix": engine.suffix_host_ms}.get(method)
    return Overheads(
        host_s=draw(host, given.host_ms, "host"),
        per_sequence_host_s=constants.value(
            engine.per_sequence_host_us, "host", key="per_sequence_host"
        )
        * MICRO,
        speculative_host_s=draw(
            engine.speculative_host_ms, given.speculative_host_ms, "speculative_host"
        ),
        speculative_per_sequence_host_s=constants.value(
            engine.speculative_per_sequence_host_us_by_method.get(
                method, engine.speculative_per_sequence_host_us
            ),
            "speculative_host",
        )
        * MICRO,
        proposer_host_s=0.0 if proposer is None else draw(proposer, None, "proposer"),
        draft_host_s=draw(
            engine.draft_host_ms_by_method.get(method, engine.draft_host_ms),
            given.draft_host_ms,
            "draft_host",
        )
        + (0.0 if tree is None else draw(engine.tree_pass_host_ms, None, "draft_host")),
        eager_layer_s=constants.value(engine.eager_layer_us, "eager") * MICRO,
        piecewise_layer_s=constants.value(engine.piecewise_layer_us, "eager") * MICRO
        if speculative and _verifies_piecewise(deployment)
        else 0.0,
        draft_eager_layer_s=constants.value(
            engine.eager_draft_layer_us or engine.eager_layer_us, "eager"
        )
        * MICRO,
        max_graph_tokens=float(_max_graph_tokens(deployment, width)),
    )


def _verifies_piecewise(deployment: Deployment) -> bool:
    asked = deployment.scenario.engine.speculative_graphs
    if asked is not None:
        return asked == "piecewise"
    capability = deployment.hardware.identity.compute_capability or ""
    return capability in deployment.engine.piecewise_capabilities


def _max_graph_tokens(deployment: Deployment, width: int) -> int:
    """Return the rows that captured graphs cover (docs/method.md, graphs)."""
    engine = deployment.engine
    if not deployment.scenario.engine.cuda_graphs:
        return 0
    if deployment.scenario.engine.max_graph_tokens is not None:
        return deployment.scenario.engine.max_graph_tokens
    capability = deployment.hardware.identity.compute_capability or ""
    limit = (
        engine.max_graph_tokens_sm10x if capability.startswith("sm10") else engine.max_graph_tokens
    )
    return min(
        limit,
        deployment.max_num_seqs * width * engine.graph_tokens_per_seq,
        deployment.max_num_batched_tokens,
    )
