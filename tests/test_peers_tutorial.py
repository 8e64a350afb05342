"""The tutorial on peers, as printed: each block in the shell that it names, and what is shown after it appears."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("zmq", reason="needs the gossip extra")
pytest.importorskip("nacl", reason="needs the gossip extra")
pytest.importorskip("typer", reason="needs the cli extra")

PAGE = Path(__file__).resolve().parents[1] / "docs" / "peers_tutorial.md"
BLOCK = re.compile(r"```(sh|text)\n(.*?)```", re.DOTALL)
ENDED = "this block has ended"
SECONDS = 120.0  # for what a block shows to appear

pytestmark = [
    pytest.mark.skipif(not PAGE.is_file(), reason="the pages are in a checkout, not in what is installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the tutorial is for POSIX shells"),
    pytest.mark.xdist_group("peers in processes"),
]


class Terminal:
    """A shell that is typed into, and what it has printed."""

    def __init__(self, folder, name):
        self.output, self.seen, self.n_blocks = folder / f"{name}.txt", 0, 0
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        sources = os.pathsep.join(each for each in sys.path if each)
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                ["bash"], stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, text=True, cwd=folder,
                env={**os.environ, **threads, "PATH": path, "PYTHONPATH": sources}, start_new_session=True,
            )  # fmt: skip

    def type(self, text):
        self.seen = len(self.output.read_text())
        self.n_blocks += 1
        self.process.stdin.write(f"{text}\necho {ENDED} {self.n_blocks}\n")
        self.process.stdin.flush()

    def wait_for(self, wanted, begin=None):
        """Wait until all of these lines have come, in this order, since the last block or since ``begin``."""
        deadline = time.monotonic() + SECONDS
        while True:
            printed, at = " ".join(self.output.read_text()[self.seen if begin is None else begin :].split()), 0
            for line in wanted:
                at = printed.find(line, at)
                if at < 0:
                    break
            else:
                return
            assert time.monotonic() < deadline, f"{line!r} did not come: {printed}"
            time.sleep(0.1)

    def wait_for_end(self):
        self.wait_for([f"{ENDED} {self.n_blocks}"])

    def end(self):
        """End the shell and what it has started: they are a session of their own."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait(timeout=20)


def blocks():
    """Shells with what is typed and what they show."""
    found = []
    for kind, text in BLOCK.findall(PAGE.read_text("utf8")):
        if kind == "sh":
            title, _, code = text.partition("\n")
            found.append((title.removeprefix("# "), code, []))
        else:
            parts = [part for line in text.splitlines() for part in line.split("...")]  # "..." stands for anything
            found[-1][2].extend(" ".join(part.split()) for part in parts if part.strip())
    return found


def test_three_shells_a_crash_and_a_liar(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    terminals = {}
    try:
        for name, code, shown in blocks():
            terminal = terminals.get(name) or terminals.setdefault(name, Terminal(tmp_path, name.replace(" ", "")))
            code, shown = (text.replace("5555", port) for text in (code, "\n".join(shown)))
            terminal.type(code)
            is_peer = name in ("shell 1", "shell 2", "shell 3") and "widemargin peer" in code
            of_all = "stopped: all peers" in shown  # what shells 1 to 3 show at the end
            wanted = shown.split("stopped:")[0].splitlines() if of_all else shown.splitlines()
            terminal.wait_for(wanted)
            if not is_peer and "liar.py --data" not in code:
                terminal.wait_for_end()
            if of_all:
                for each in ("shell 1", "shell 2", "shell 3"):
                    terminals[each].wait_for_end()
                    terminals[each].wait_for(shown[shown.index("stopped:") :].splitlines())
        assert "accuracy" in terminals["any shell"].output.read_text()
    finally:
        for terminal in terminals.values():
            terminal.end()
