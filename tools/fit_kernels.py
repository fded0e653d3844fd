"""Fit the kernel constants of the hardware profiles to measured tables, and write them.

    python tools/fit_kernels.py [--tables DIR] [--only BOARD ...] [--check]

Needs the tables of ../shared/kernels. Rewrites the `effective` blocks that come from tables (GEMM,
decode and latent attention, mixture of experts, recurrent states, all-reduce) in the profiles
below hardware_profiles/, leaves every other line as it is, and writes the errors to
validation/kernel_fit.json. A second run changes nothing; `--check` only says whether one would.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernel_fits import attention, collectives, gemm, moe, same_die
from kernel_fits.profiles import replace_blocks
from kernel_fits.tables import TABLES_NAME, Board, board

ROOT = Path(__file__).parents[1]
TABLES = ROOT.parent / "shared" / "kernels"
PROFILES = ROOT / "hardware_profiles" / "nvidia"
REPORT = ROOT / "validation" / "kernel_fit.json"

BOARDS = (
    "a100_sxm",
    "h100_sxm",
    "h200_sxm",
    "l40s",
    "rtx_pro_6000_server",
    "b200_sxm",
    "b300_sxm",
    "gb200",
    "gb300",
)

Blocks = dict[tuple[str, ...], dict[str, Any]]


def fit_boards(tables: Path, names: Iterable[str] = BOARDS) -> tuple[dict[str, Blocks], Any]:
    """Fit every block of some boards.

    Returns
    -------
    blocks, report
        {profile: {path below `effective`: block}}, and {kernel: {board: errors}}.
    """
    boards = {name: board(name) for name in names}
    blocks: dict[str, Blocks] = {}
    report: dict[str, Any] = {}

    def add(own: Board, path: tuple[str, ...], data: dict[str, Any], error: Any) -> None:
        blocks.setdefault(own.profile, {})[path] = same_die.note_rebase(data, own)
        for other in same_die.OF.get(own.table, ()):
            blocks.setdefault(other, {})[path] = same_die.adapt(data, own, other)
        if error is not None:
            report.setdefault(path[0], {}).setdefault(own.table, {})[path[-1]] = error

    for kind, found in (
        ("gemm", gemm.blocks(tables, boards)),
        ("decode_attention", attention.decode_blocks(tables, boards)),
        ("moe", moe.blocks(tables, boards)),
    ):
        for name, by_dtype in found.items():
            for dtype, (data, error) in by_dtype.items():
                add(boards[name], (kind, dtype), data, error)
    for kind, single in (
        ("mla_attention", attention.mla_blocks(tables, boards)),
        ("linear_attention", attention.linear_blocks(tables, boards)),
    ):
        for name, (data, error) in single.items():
            add(boards[name], (kind,), data, error)
    for name, by_devices in collectives.blocks(tables, boards).items():
        for devices, data in by_devices.items():
            add(boards[name], ("all_reduce", str(devices)), data, None)
    return blocks, report


def rewritten(blocks: dict[str, Blocks]) -> dict[Path, str]:
    """Return the new text of every profile."""
    texts = {}
    for profile, own in blocks.items():
        path = PROFILES / f"{profile}.yaml"
        texts[path] = replace_blocks(path.read_text(), own)
    return texts


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--only", nargs="+", default=list(BOARDS), choices=BOARDS)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    options = parser.parse_args(arguments)
    if not options.tables.is_dir():
        print(f"no folder {options.tables}; the tables come beside the checkout", file=sys.stderr)
        return 2
    blocks, report = fit_boards(options.tables, options.only)
    texts = rewritten(blocks)
    if set(options.only) == set(BOARDS):
        page = {"tables": TABLES_NAME, "kernels": report}
        texts[REPORT] = json.dumps(page, indent=1, sort_keys=True) + "\n"
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(path.relative_to(ROOT))
        if not options.check:
            path.write_text(texts[path])
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
