"""`specsim kv`: what the drafter takes from the KV cache."""

from __future__ import annotations

from pathlib import Path

from specsim.cli.options import Request, scenario_command
from specsim.cli.output import emit, json_option, output_option
from specsim.cli.pictures import memory
from specsim.cli.words import heading, joined, notes
from specsim.schema.results import as_json as plain


@scenario_command("kv", extra=(json_option, output_option))
def command(request: Request, as_json: bool, output: Path | None) -> None:
    """Show what the drafter takes from the KV cache.

    Memory of the replica with speculation off and on: weights, cache, the tokens and requests
    that fit, by what vLLM may use and by nameplate.
    """
    from specsim.analysis.predict import kv_result

    result = kv_result(request.scenario, search=request.search)
    scenario = request.scenario.model_dump(mode="json")
    emit(
        lambda: plain(result),
        lambda screen: joined(
            [
                heading(screen, scenario),
                memory(screen, result, speculates=request.scenario.speculation.method != "none"),
                notes(screen, "WARNINGS", request.notes, role="neutral"),
            ]
        ),
        as_json=as_json,
        output=output,
    )
