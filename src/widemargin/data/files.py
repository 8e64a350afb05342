"""Files that are written completely or not at all; everything that the library writes goes through here.

A file is written beside the one that it replaces, synced, and renamed over it; then the folder is synced. Whichever
step fails, ``path`` has its old content or the new one, whole. A process that is killed (SIGKILL, power) may leave its
draft, ``NAME.<16 digits>.part``, which nothing reads.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_MAX_STEM = 40  # characters of a name that its draft repeats: a folder may allow 255 bytes
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}  # of a folder, on some network file systems


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to; it replaces ``path`` only when it is complete, whatever happens in between.

    A symbolic link stays, and its target is replaced. The new file has the mode of the old one and, where permitted,
    its owner and group. A write-protected file, or one that is not regular, is not replaced. Missing folders are made.
    If only the last step fails, the sync of the folder, OSError is raised although ``path`` has its new content.
    """
    path = Path(os.path.realpath(path))
    before = _replaceable(path)
    _make_folder(path.parent)
    draft = path.with_name(f"{path.name[:_MAX_STEM]}.{secrets.token_hex(8)}.part")
    try:
        # Nobody else may read the draft of a file that is to have the mode of another.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if before is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if before is not None and os.name == "posix":
                _give_mode(descriptor, before)
            os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):  # the error that brought us here says more
            os.unlink(draft)
        raise
    _sync_folder(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely, or leave it as it was."""
    with written_whole(path) as file:
        file.write(content)


def check_writable(path: Path) -> None:
    """Raise OSError or ValueError unless ``path`` can be written: a small file is, in its folder, which is made."""
    path = Path(os.path.realpath(path))
    _replaceable(path)
    trial = path.with_name(f"{secrets.token_hex(8)}.trial")
    try:
        write_whole(trial, b"trial")  # some bytes, since a full disk may take an empty file
    finally:
        with suppress(OSError):
            os.unlink(trial)


def _replaceable(path: Path) -> os.stat_result | None:
    """The state of a file that may be replaced, None if there is none; ValueError or OSError if it must stay."""
    try:
        before = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(before.st_mode):  # `realpath` leaves only links that lead to themselves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if not stat.S_ISREG(before.st_mode):
        raise ValueError(f"{path} is not a regular file and cannot be replaced.")
    if not os.access(path, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return before


def _give_mode(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, before.st_uid, before.st_gid)
    if stat.S_IMODE(now.st_mode) != stat.S_IMODE(before.st_mode):
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Let the names of a folder survive a loss of power."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # a folder may be written and not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
