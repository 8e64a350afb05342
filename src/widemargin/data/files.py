"""Files that are written completely or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to; it replaces ``path`` only when it is complete, whatever happens in between."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file and cannot be replaced.")
    path = path.resolve()  # a link stays, its target is replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")  # with the permissions of any new file
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely, or leave it as it was."""
    with written_whole(path) as file:
        file.write(content)
