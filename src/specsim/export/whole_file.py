"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from specsim.errors import InputError


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path` to write to, and rename it to `path` at the end.

    Whatever goes wrong, what stood at `path` stays as it was. A link is followed, a file keeps its
    mode, and what is no plain file (a device, a pipe) is written straight to.

    Raises
    ------
    InputError
        It cannot be written: in one line, with the reason.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            yield target
            return
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem}.", suffix=target.suffix
        )
        os.close(handle)
        try:
            yield Path(name)
            os.chmod(name, mode)
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _umask() -> int:
    # There is no way to read the mask without setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
