"""What ``widemargin reproduce`` runs for each paper, in which order, and how long each part takes.

A part is a section of a program in ``benchmarks/``. The paper's own tables and figures come first, then what these
programs measure beyond the paper. Sections that a program has and this list does not are added at the end of that
program's. Minutes are of a full run on two cores, where nothing else has been recorded; most are estimates.

The state of each part is kept in ``benchmarks/results/FOLDER/reproduce.jobs.jsonl``, a line whenever one ends.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple


class Part(NamedTuple):
    """One section of a program, or a program without sections."""

    program: str
    section: str | None
    minutes: float | None  # of a full run; None where nobody has said
    options: tuple[str, ...] = ()  # of a full run
    quick_options: tuple[str, ...] | None = ()  # of a quick one; None: it has none
    kept: str | None = None  # the name of its files of jobs, where it is not that of the section

    @property
    def name(self) -> str:
        return f"{self.program} {self.section}" if self.section else self.program


def _parts(program: str, **minutes: float) -> tuple[Part, ...]:
    return tuple(Part(program, section, each) for section, each in minutes.items())


def _full_only(program: str, **minutes: float) -> tuple[Part, ...]:
    return tuple(Part(program, section, each, (), None) for section, each in minutes.items())


_FOREST = ("--features", "raw", "--gamma", "1e-4", "-C", "1e4")
PARTS: dict[str, tuple[Part, ...]] = {
    "saddle": (
        *_parts("saddle_paper", table_1=2, table_2=6, table_3=10, table_4=15, theorem_7=5, figure_3=15, figure_4=15,
                figure_6=10, figure_1=60, figure_2=60),
        *_parts("saddle_communication", sets=15, growth=40, lower_bound=1),
    ),
    "sbp": (
        Part("kernel_forest", "fit", 25, ("--minutes", "20", *_FOREST), ("--minutes", "0.2", *_FOREST),
             kept="forest_batch_perceptron"),
        *_parts("kernel_paper", table_2=45, figure_2=420, table_1=1, figure_3=60),
    ),
    "sodm": (
        *_parts("margin_distribution", table_1=1, theorems=5, tuning=10, tables_2_4=140, table_3=12, figure_2=35,
                figure_4=10),
        *_full_only("margin_distribution", accuracy=240, speed=30, memory=30),  # beyond the paper
    ),
    "gadget": (
        *_parts("gossip_paper", table_2=1, table_3=75, table_5=3, figure_4=40, theorem_1=8),
        *_parts("gossip", accuracy=30, curves=15, ticks=10),
        *_full_only("gossip", faults=15, rho=20, topologies=60, processes=2, scale=150),  # beyond the paper
    ),
    "l1svm": (
        *_parts("debiased", figure_1=20, figure_2=30, table_1=5, truth=2, machines=5, tuning=60, times=60),
        *_full_only("debiased", figure_1_5000=90, figure_2_5000=300),
        *_parts("debiased", rates=1),  # of what figure_2 and figure_2_5000 have left
        *_full_only("debiased", coverage=40, false_discoveries=30, inverse=50),  # beyond the paper
    ),
}  # fmt: skip
FOLDERS = {"kernel_paper": "kernel", "kernel_forest": "kernel"}  # under results/; of others the name of the program
_OF_PART = ("choose",)  # sections that only prepare others, and are asked for by name
_SIZE = {False: "", True: "-quick"}
_KEPT = ("jobs", "repetitions")  # kinds of files in which programs keep what has ended
RECORD = "reproduce.jobs.jsonl"


class State(NamedTuple):
    """How far a part is."""

    part: Part
    ended: str | None  # when a run of it ended well, since results were last dropped
    expected: float | None  # seconds of a whole run
    is_measured: bool  # expected is of an earlier run
    n_jobs: int  # that interrupted runs have kept
    spent: float  # seconds of these jobs

    @property
    def left(self) -> float:
        """Seconds, as far as is known."""
        return 0.0 if self.ended or self.expected is None else max(self.expected - self.spent, 0.1 * self.expected)


def parts_of(paper: str, root: Path) -> list[Part]:
    """The parts of a paper, with all sections that its programs have in this checkout."""
    listed = PARTS[paper]
    found: list[Part] = []
    for program in dict.fromkeys(part.program for part in listed):
        here = [part for part in listed if part.program == program]
        sections = _sections(root / "benchmarks" / f"{program}.py")
        if sections is not None:
            here = [part for part in here if part.section is None or part.section in sections]
            known = {part.section for part in here} | set(_OF_PART)
            here += [Part(program, section, None) for section in sections if section not in known]
        found += here
    return found


def _sections(path: Path) -> list[str] | None:
    """Names of the sections of a program, from its source: to import it would take seconds."""
    for node in ast.parse(path.read_text(encoding="utf8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and any(isinstance(at, ast.Name) and at.id == "SECTIONS" for at in targets):
            return [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return None


def command_of(part: Part, root: Path, *, quick: bool, fresh: bool) -> list[str]:
    """Arguments of Python that run a part."""
    options = part.quick_options or () if quick else part.options
    source = (root / "benchmarks" / f"{part.program}.py").read_text(encoding="utf8")
    has_fresh = "harness.FRESH" in source or '"--fresh"' in source
    return [
        "-m",
        f"benchmarks.{part.program}",
        *(["--only", part.section] if part.section and _takes_only(source) else []),
        *(["--quick"] if quick else []),
        *(["--fresh"] if (fresh or quick) and has_fresh else []),
        *options,
    ]


def _takes_only(source: str) -> bool:
    return "--only" in source or "SECTIONS" in source


def folder_of(part: Part, root: Path, *, quick: bool) -> Path:
    return root / "benchmarks" / "results" / (FOLDERS.get(part.program, part.program) + _SIZE[quick])


def state_of(part: Part, root: Path, *, quick: bool) -> State:
    """How far a part is, by its record and by the jobs that its runs have kept."""
    folder = folder_of(part, root, quick=quick)
    lines = [line for line in _lines(folder / RECORD) if line.get("job") == part.name]
    runs = [line for line in lines if line.get("ended")]
    jobs = [line for path in _files_of_jobs(part, folder) for line in _lines(path)]
    expected = runs[-1]["seconds"] if runs else None if part.minutes is None else 60 * part.minutes
    if quick and not runs:
        expected = None
    ended = lines[-1].get("ended") if lines else None
    return State(part, ended, expected, bool(runs), len(jobs), sum(map(_seconds_of, jobs)))


def _files_of_jobs(part: Part, folder: Path) -> list[Path]:
    return [folder / f"{part.kept or part.section}.{kind}.jsonl" for kind in _KEPT]


def _seconds_of(job: dict[str, Any]) -> float:
    """Of a run: jobs that several workers do side by side say how many workers there are."""
    seconds, workers = job.get("seconds", 0.0), job.get("workers", 1)
    return float(seconds) / workers if isinstance(seconds, (int, float)) else 0.0


def note_end(part: Part, root: Path, seconds: float, *, quick: bool) -> None:
    """Keep that a part has ended well, and how long it took with all that was kept before."""
    whole = max(seconds, state_of(part, root, quick=quick).spent)
    _append(part, root, {"seconds": round(whole, 1), "ended": datetime.now(UTC).isoformat(timespec="minutes")}, quick)


def note_fresh(part: Part, root: Path, *, quick: bool) -> None:
    """Drop the jobs that a part has kept, and keep that it has not ended; earlier durations still count."""
    for path in _files_of_jobs(part, folder_of(part, root, quick=quick)):
        path.unlink(missing_ok=True)
    _append(part, root, {"ended": None}, quick)


def _append(part: Part, root: Path, line: dict[str, Any], quick: bool) -> None:
    from widemargin.data.files import write_whole

    path = folder_of(part, root, quick=quick) / RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.is_file() else b""
    write_whole(path, before + json.dumps({"job": part.name, **line}).encode() + b"\n")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """What a file of JSON lines has; the last may have been cut off."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf8").splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict):
            yield found
