"""Try many damaged and hostile model files: ``python -m tests.io.fuzz --count 10000 --seed 0``.

Prints how many were refused and how many loaded and were used. A wrong error ends it with the file's number, and the
file is kept; a hang ends it with a traceback of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from tests.io.models_at_hand import MODELS, fitted
from tests.io.mutations import mutated, outcome_of
from widemargin.io.archive import to_bytes

_HANG = 60  # seconds for one file


def tried(count: int, seed: int, path: Path) -> Counter[str]:
    """Outcomes of that many files, by kind of change; the file of an unforeseen error stays at ``path``."""
    files = [to_bytes(fitted(name)) for name in MODELS]
    outcomes: Counter[str] = Counter()
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        one, other = (files[k] for k in rng.integers(len(files), size=2))
        kind, content = mutated(rng, one, other)
        faulthandler.dump_traceback_later(_HANG, exit=True)
        try:
            outcomes[f"{kind}: {outcome_of(content, path)}"] += 1
        except Exception as error:
            raise AssertionError(f"file {number} of seed {seed} ({kind}) is kept at {path}: {error!r}") from error
        finally:
            faulthandler.cancel_dump_traceback_later()
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    faulthandler.enable()
    where = Path(tempfile.mkdtemp(prefix="widemargin-fuzz-")) / "hostile.wm"
    json.dump(dict(sorted(tried(given.count, given.seed, where).items())), sys.stdout)
