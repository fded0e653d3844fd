"""`specsim crossover`: where speculation stops paying."""

from __future__ import annotations

from pathlib import Path

from specsim.cli.options import Request, calibration_option, scenario_command
from specsim.cli.output import emit, json_option, output_option
from specsim.cli.pictures import crossover as drawn
from specsim.cli.words import heading, joined, notes, unit_of_load
from specsim.errors import UsageError
from specsim.schema.results import as_json as plain


@scenario_command("crossover", extra=(calibration_option, json_option, output_option))
def command(request: Request, calibration: Path | None, as_json: bool, output: Path | None) -> None:
    """Show only where speculation stops paying.

    The load is searched from 1 to max_num_seqs, or up to the largest stable request rate, not
    only on the loads that are given.
    """
    if request.scenario.speculation.method == "none":
        raise UsageError(
            "crossover of a deployment without speculation; name a method with --spec-method or "
            "in the scenario's speculation.method"
        )
    from specsim.analysis.predict import predict, predict_crossover

    if as_json:
        emit(
            lambda: plain(
                predict_crossover(request.scenario, search=request.search, calibration=calibration)
            ),
            lambda screen: [],
            as_json=True,
            output=output,
        )
        return
    # The plot needs the speedup by load beside the crossing.
    prediction = predict(request.scenario, search=request.search, calibration=calibration)
    found = prediction.crossover
    assert found is not None
    scenario = prediction.scenario
    emit(
        lambda: None,
        lambda screen: joined(
            [
                heading(screen, scenario, prediction.provenance),
                drawn(screen, found, prediction.points, unit_of_load(scenario)),
                notes(screen, "WARNINGS", (*prediction.warnings, *request.notes), role="neutral"),
            ]
        ),
        as_json=False,
        output=output,
    )
