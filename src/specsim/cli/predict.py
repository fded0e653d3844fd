"""`specsim predict`: the whole answer to one scenario."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from specsim.cli.options import Request, calibration_option, scenario_command
from specsim.cli.output import emit, json_option, output_option
from specsim.cli.report import report
from specsim.cli.workbook import refuse_workbook, save, workbook_options, worked_out
from specsim.schema.results import as_json as plain


@scenario_command(
    "predict",
    extra=(
        calibration_option,
        json_option,
        output_option,
        *workbook_options,
        click.option("--brief", is_flag=True, help="Only the verdict and the table by load."),
    ),
)
def command(
    request: Request,
    calibration: Path | None,
    as_json: bool,
    output: Path | None,
    brief: bool,
    xlsx: Path | None,
    csv_dir: Path | None,
    overwrite: bool,
) -> None:
    """Say whether, up to which load and why speculation pays.

    The scenario is a YAML file, a pasted vLLM command, or flags; flags override either.

    \b
    specsim predict examples/llama-3.3-70b-4xh100.yaml
    specsim predict --from-command 'vllm serve ...' --gpu h100_sxm --acceptance-length 2.4
    specsim predict --model llama-3.1-8b --gpu h100_sxm --spec-method eagle3 --spec-tokens 3 \\
        --acceptance-rate 0.7
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.analysis.predict import predict

    if xlsx is not None or csv_dir is not None:
        refuse_workbook(xlsx, csv_dir, overwrite=overwrite)
    prediction = predict(request.scenario, search=request.search, calibration=calibration)
    prediction = dataclasses.replace(prediction, warnings=(*prediction.warnings, *request.notes))
    emit(
        lambda: plain(prediction),
        lambda screen: report(screen, prediction, brief=brief, search=request.search),
        as_json=as_json,
        output=output,
    )
    if xlsx is not None or csv_dir is not None:
        from specsim.catalog.calibration import load_calibration
        from specsim.export.workbook.subjects import Asked

        fitted = None if calibration is None else load_calibration(calibration)
        asked = Asked(search=request.search, calibration=fitted)
        save(worked_out([request.scenario], asked), xlsx, csv_dir)
