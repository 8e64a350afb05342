"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write so that the file is whole or as it was before, whatever happens and whoever else is writing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "posix":
                os.fchmod(file.fileno(), _usual_mode(path))  # temporary files are for their owner alone
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _usual_mode(path: Path) -> int:
    """The rights of the file that is replaced, or those that a new one would have."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
