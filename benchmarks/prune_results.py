"""Which results does git keep? Drops curves, which pictures show, from the JSON files in benchmarks/results.

Run ``python -m benchmarks.prune_results`` before committing results.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks._harness import RESULTS

MAX_ENTRIES = 40  # a longer list is a curve
WHOLE = {"bars"}  # lists that are kept at any length
QUOTED = {"gossip/scale.json"}  # pages quote points of their curves


def is_curve(name: str, value: Any) -> bool:
    return isinstance(value, list) and len(value) > MAX_ENTRIES and name not in WHOLE


def pruned(value: Any) -> Any:
    """The same without curves, and without what held only curves."""
    if isinstance(value, dict):
        kept = {name: pruned(each) for name, each in value.items() if not is_curve(name, each)}
        return {name: each for name, each in kept.items() if each != {} or value[name] == {}}
    return [pruned(each) for each in value if not is_curve("", each)] if isinstance(value, list) else value


if __name__ == "__main__":
    for path in sorted(RESULTS.glob("*/*.json")):
        content = json.loads(path.read_text(encoding="utf8"))
        kept = pruned(content)
        if kept != content and path.relative_to(RESULTS).as_posix() not in QUOTED:
            path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf8")
            print(path.relative_to(RESULTS))
