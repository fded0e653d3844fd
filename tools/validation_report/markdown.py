"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable

NONE = "-"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    header = tuple(header)
    lines = [header, ("---",) * len(header), *map(tuple, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def linked(name: str, url: str) -> str:
    """Return a link to the first address in `url`, where there is one."""
    return f"[{name}]({url.split()[0]})" if url.startswith("http") else name


def percent(value: float | None, *, signed: bool = False) -> str:
    """Return a figure in percent to a tenth; a dash for none."""
    if value is None:
        return NONE
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def share(part: float | None, n: float | None) -> str:
    """Return `part of n (percent)`; a dash where there are none."""
    if not n or part is None:
        return NONE
    return f"{part:.0f} of {n:.0f} ({100.0 * part / n:.0f} %)"


def section(title: str, *paragraphs: str, level: int = 2) -> str:
    """Return a headed section."""
    return "\n\n".join([f"{'#' * level} {title}", *filter(None, paragraphs)]) + "\n"
