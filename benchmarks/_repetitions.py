"""How is a simulation repeated? In processes of their own, each part of each repetition kept as it ends.

A part is one setting of a repetition, as one number of machines. Parts are lines of ``NAME.repetitions.jsonl``, found
again by their settings: a run that was interrupted goes on where it stood, and one with more repetitions adds to those
it finds.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _harness as harness
from benchmarks._harness import Report

Job = Callable[[dict[str, Any], int, Any], Any]  # settings, repetition, part
Outcomes = list[dict[str, Any]]  # of whole repetitions, by part


def file_of_repetitions(report: Report, name: str) -> Path:
    return report.folder / f"{name}.repetitions.jsonl"


def repeated(
    report: Report,
    name: str,
    settings: dict[str, Any],
    parts: Sequence[Any],
    job: Job,
    n_repetitions: int,
    n_workers: int,
    *,
    meanwhile: Callable[[Outcomes], None] | None = None,
) -> Outcomes:
    """What ``job(settings, repetition, part)`` gives for all parts of every repetition, kept or made now.

    ``meanwhile`` sees all whole repetitions whenever another one is.
    """
    kept = file_of_repetitions(report, name)
    found = dict(earlier(kept, settings))
    wanted = [(number, part) for number in range(n_repetitions) for part in parts]
    missing = [key for key in wanted if key not in found]
    print(f"{name}: {settings}: {len(wanted) - len(missing)} parts at hand, {len(missing)} to do", flush=True)
    if missing:
        n_workers = min(n_workers, len(missing))
        with multiprocessing.get_context("spawn").Pool(n_workers) as pool, kept.open("a", encoding="utf8") as file:
            tasks = [(job, settings, *key) for key in missing]
            for done, (number, part, outcome, seconds) in enumerate(pool.imap_unordered(one_part, tasks), 1):
                line = {"settings": settings, "repetition": number, "part": part}
                taken = {"seconds": seconds, "workers": n_workers}
                text = json.dumps({**line, **taken, "outcome": outcome}, default=harness._plain)
                file.write(text + "\n")
                file.flush()
                found[number, part] = json.loads(text)["outcome"]
                print(f"  {done} of {len(missing)}: repetition {number}, {part}: {seconds:.1f} s", flush=True)
                if meanwhile is not None and all((number, each) in found for each in parts):
                    meanwhile(whole(found, parts, n_repetitions))
    return whole(found, parts, n_repetitions)


def whole(found: dict[tuple[int, Any], Any], parts: Sequence[Any], n_repetitions: int) -> Outcomes:
    """Repetitions of which all parts are there."""
    numbers = [n for n in range(n_repetitions) if all((n, part) in found for part in parts)]
    return [{str(part): found[n, part] for part in parts} for n in numbers]


def earlier(path: Path, settings: dict[str, Any]) -> Iterator[tuple[tuple[int, Any], Any]]:
    """Parts with the same settings that a file has; its last line may have been cut off."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf8").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if line["settings"] == json.loads(json.dumps(settings)) and "part" in line:
            yield (line["repetition"], line["part"]), line["outcome"]


def one_part(task: tuple[Job, dict[str, Any], int, Any]) -> tuple[int, Any, Any, float]:
    """Worker."""
    job, settings, number, part = task
    begin = time.perf_counter()
    with harness.quietly():
        outcome = job(settings, number, part)
    return number, part, outcome, time.perf_counter() - begin
