"""Files are written whole or not at all, with the mode of what they replace."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from widemargin.data.files import check_writable, write_whole, written_whole

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_whole(path, b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", mode)
    assert os.listdir(tmp_path) == ["file"]


def test_a_new_file_has_the_mode_that_the_process_gives_to_files(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o640


def test_a_draft_is_never_more_open_than_the_file_it_replaces(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with written_whole(path) as file:
        file.write(b"secret")
        (draft,) = set(tmp_path.iterdir()) - {path}
        assert mode_of(draft) == 0o600


@pytest.mark.skipif(not AS_ROOT, reason="only root may give files away")
def test_owner_and_group_stay(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 1234, 4321)
    path.chmod(0o640)
    write_whole(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (1234, 4321, 0o640)


def test_links_stay_and_their_targets_are_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, second = tmp_path / "there" / "target", tmp_path / "link", tmp_path / "second"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    second.symlink_to("link")
    write_whole(second, b"new")
    assert second.is_symlink()
    assert link.is_symlink()
    assert (target.read_bytes(), mode_of(target)) == (b"new", 0o600)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "there" / "later")
    write_whole(dangling, b"made")
    assert dangling.is_symlink()
    assert (tmp_path / "there" / "later").read_bytes() == b"made"


def test_a_link_to_itself_is_an_error_and_stays(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").is_symlink()


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ValueError, match="not a regular file"):
            write_whole(tmp_path / name, b"new")
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_write_protected_file_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o444)
    if AS_ROOT:  # who may write everything
        monkeypatch.setattr(os, "access", lambda *asked: False)
    with pytest.raises(PermissionError):
        write_whole(path, b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


def test_names_as_long_as_a_folder_allows(tmp_path):
    for name in ("n" * 255, "ä" * 127):
        write_whole(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"


def test_missing_folders_are_made(tmp_path):
    write_whole(tmp_path / "one" / "two" / "file", b"new")
    assert (tmp_path / "one" / "two" / "file").read_bytes() == b"new"


def test_what_the_writer_raises_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half(error):
        with written_whole(path) as file:
            file.write(b"half of the n")
            raise error

    for error in (RuntimeError, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(error):
            write_half(error)
        assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


def test_the_file_is_synced_before_it_is_renamed_and_the_folder_afterwards(tmp_path, monkeypatch):
    path, seen = tmp_path / "file", []
    path.write_bytes(b"old")
    fsync, replace = os.fsync, os.replace

    def noted_sync(descriptor):
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def noted_rename(*names):
        seen.append("rename")
        replace(*names)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_rename)
    write_whole(path, b"new")
    draft, *rest = seen
    assert draft.startswith(f"{path}.")
    assert rest == ["rename", str(tmp_path)]


def test_a_file_system_that_cannot_sync_folders_is_no_error(tmp_path, monkeypatch):
    fsync = os.fsync

    def refuse_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_folder_is_tried_without_a_trace(tmp_path):
    check_writable(tmp_path / "new" / "file")
    assert os.listdir(tmp_path / "new") == []
    (tmp_path / "file").write_bytes(b"old")
    check_writable(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old"
    with pytest.raises(NotADirectoryError):
        check_writable(tmp_path / "file" / "within")
    assert sorted(os.listdir(tmp_path)) == ["file", "new"]


def test_a_folder_that_cannot_be_written_is_found(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        check_writable(tmp_path / "file")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("limit", [0, 1, 4096, 99_999])
def test_a_full_disk_as_the_kernel_reports_it(tmp_path, limit):
    """A limit on the size of files makes the kernel itself refuse a write, in the middle."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    program = (
        "import resource, sys; from pathlib import Path; from widemargin.data.files import write_whole\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "write_whole(Path(sys.argv[1]), bytes(100_000))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert "File too large" in ended.stderr
    assert (path.read_bytes(), mode_of(path), os.listdir(tmp_path)) == (b"old", 0o640, ["file"])


WRITER = """
import sys
from pathlib import Path
from widemargin.data.files import written_whole
size, k = 3_000_000, 0
while True:
    k = (k + 1) % 256
    with written_whole(Path(sys.argv[1])) as file:
        for _ in range(30):
            file.write(bytes([k]) * (size // 30))
    print(k, flush=True)
"""


def test_a_killed_process_leaves_a_whole_file(tmp_path):
    """Killed with SIGKILL at moments that spread over the writing of a file."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    for kill in range(12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline()
            time.sleep(0.004 * kill)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=20)
            process.stdout.close()
        content = path.read_bytes()
        assert len(content) == 3_000_000
        assert len(set(content)) == 1
        assert mode_of(path) == 0o600
        # At most one draft for each kill, under a name that says so.
        drafts = [each for each in os.listdir(tmp_path) if each != "file"]
        assert all(each.startswith("file.") and each.endswith(".part") for each in drafts)
        assert len(drafts) <= kill + 1
    assert drafts  # some kills came in the middle of a file


def test_two_writers_at_once_leave_one_of_their_files(tmp_path):
    path = Path(tmp_path / "file")
    with written_whole(path) as one, written_whole(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]
