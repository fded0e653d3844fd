"""Everything specsim raises on purpose.

::

    SpecsimError                  exit 2 unless said otherwise
    ├── UsageError                contradictory or missing input
    ├── InputError                a file or value that is wrong (unknown key, out of range, broken)
    │   └── NotFoundError         a name that no catalog knows; carries the nearest names
    ├── ModelConfigError          a config.json with something that is not modelled, named
    ├── InfeasibleError           does not fit in memory                         exit 3
    ├── CalibrationError          the fit cannot be done                         exit 4
    └── MissingExtraError         an optional dependency is not installed

A message is one line: what was asked, what was got, what is allowed or nearest, the next command.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecsimError(Exception):
    """Base of all errors that a user can act on."""

    exit_code = 2


class UsageError(SpecsimError):
    """Flags or inputs that contradict each other or are missing."""


class InputError(SpecsimError):
    """A file or a value that cannot be accepted."""


class NotFoundError(InputError):
    """A name that is not in the catalog."""


class ModelConfigError(SpecsimError):
    """A model configuration with a feature that is not modelled."""


class InfeasibleError(SpecsimError):
    """The deployment does not fit in the memory of its accelerators."""

    exit_code = 3


class CalibrationError(SpecsimError):
    """The measurements do not allow a fit."""

    exit_code = 4


class MissingExtraError(SpecsimError):
    """An optional dependency is needed and absent."""


def nearest(name: str, known: Iterable[str], *, n: int = 3) -> list[str]:
    """Return up to `n` known names that look like `name`, best first (case ignored)."""
    by_lower = {k.lower(): k for k in sorted(known)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=n, cutoff=0.4)
    return [by_lower[c] for c in close]


def not_found(kind: str, name: str, known: Iterable[str], next_command: str) -> NotFoundError:
    """Build the one-line 'unknown name' error with the nearest names and the next command."""
    close = nearest(name, known)
    hint = f"nearest: {', '.join(close)}" if close else "nothing similar is known"
    return NotFoundError(f"unknown {kind} {name!r}; {hint}; list them with `{next_command}`")
