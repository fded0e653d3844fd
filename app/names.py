"""Names that a stranger writes: never a path on this machine.

Where the app listens to others, whoever opens it could otherwise have files of the server read by
writing their path for a model.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from pathlib import Path, PurePosixPath

import streamlit as st

from specsim.catalog.models import canonical_id, drafter_ids, model_ids
from specsim.errors import UsageError
from specsim.schema.scenario import Scenario

_FILES = (".json", ".yaml", ".yml")
_LONGEST = 60
_STARTS = ("/", "\\", ".", "~")


def local() -> bool:
    """Whether the app listens to this machine alone."""
    address = st.get_option("server.address")
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address or "0.0.0.0").is_loopback
    except ValueError:  # a host's name
        return False


def refuse_paths(scenario: Scenario, *, own: str) -> None:
    """Refuse names of a scenario that would be read as paths, where others may write them.

    Parameters
    ----------
    own : str
        Path of the config.json that this side uploaded, which is read.

    Raises
    ------
    UsageError
        One line, which tells nothing of what is on this machine.
    """
    if local():
        return
    # Every key of a scenario that may be a path (a test looks for more of them).
    for key, name in (
        ("target.model", scenario.target.model),
        ("hardware.accelerator", scenario.hardware.accelerator),
        ("speculation.drafter", scenario.speculation.drafter),
    ):
        # One answer for what is here and what is not: else whether a file exists could be asked.
        strange = key != "hardware.accelerator" and not _is_known(str(name))
        if name and name != own and (is_path(name) or strange):
            raise UsageError(
                f"{key} {name[:_LONGEST]!r}: is not in the catalog, and the files of this server "
                "are not read from the web; give a name of the catalog or a Hugging Face id that "
                "it knows, or upload a config.json"
            )


def _is_known(name: str) -> bool:
    return canonical_id(name) is not None or name in (*model_ids(), *drafter_ids())


def is_path(name: str) -> bool:
    """Whether a name may be read as a file or folder; 'org/model' is none unless it exists here."""
    text = name.strip()
    if text.startswith(_STARTS) or text.lower().endswith(_FILES) or "\\" in text:
        return True
    if ".." in PurePosixPath(text).parts or text.count("/") > 1:
        return True
    with suppress(OSError, ValueError, RuntimeError):  # too long, a zero byte, no such user
        return Path(name).expanduser().exists()
    return False
