"""What happened to a peer, in words: lines of its log as the command prints them and as the page of a network has them.

Names and reasons were written by other members, and a log may have been changed by anyone: every value is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MAX_LENGTH = 80  # of a reason
_MAX_NAME = 24
ROUTINE = {"status"}  # events that only repeat figures
STOPPED = {
    "gap": "all have certified the gap",
    "precision": "rounding keeps the gap open",
    "max_time": "time limit",
    "max_ticks": "limit of ticks",
    "interrupted": "interrupted",
    "revoked": "revoked by the list of members",
    "accused": "accused by records of its own",
}


def plain(value: Any, most: int = _MAX_LENGTH) -> str:
    """Text of others in one line of printable characters, cut if it is longer."""
    text = " ".join(str(value)[: 4 * most].split())
    text = "".join(each if each.isprintable() else "\ufffd" for each in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def whole(value: Any) -> int | None:
    """A count or number of a log, or None."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def finite(value: Any) -> float | None:
    """A finite number of a log, or None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        return float(value) if is_number and math.isfinite(value) else None
    except OverflowError:  # of an integer with hundreds of digits
        return None


def named(member: Any, names: Mapping[int, str]) -> str:
    """The number of a member, and its name if there is one."""
    if (number := whole(member)) is None:
        return "?" if member is None else plain(member, _MAX_NAME)
    name = names.get(number)
    return f"{number} ({plain(name, _MAX_NAME)})" if name else str(number)


def learn_name(event: Mapping[str, Any], names: dict[int, str]) -> None:
    """Keep the name that an event tells: of the peer that starts, else of the member or neighbour that it is about."""
    about = event.get("member", event.get("neighbour"))
    whose = whole(event.get("peer") if event.get("event") == "start" else about)
    name = event.get("name")
    if whose is not None and isinstance(name, str) and name.strip():
        names[whose] = plain(name, _MAX_NAME)


def in_words(event: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """What happened, without when and to whom."""
    kind, about = event.get("event"), named(event.get("member"), names)
    why = f": {plain(event['why'])}" if event.get("why") else ""
    match kind:
        case "start":
            return f"started with {_amount(event.get('rows'))} rows"
        case "neighbour came" | "neighbour gone":
            return f"neighbour {named(event.get('neighbour'), names)} {str(kind).split()[1]}"
        case "members":
            members = event.get("members")  # or how many they are
            n, gap = len(members) if isinstance(members, list) else whole(members), finite(event.get("gap"))
            who = "1 member" if n == 1 else f"{_amount(n)} members"
            words = f"certificate for {who}, {_amount(event.get('rows'))} rows"
            return words if gap is None else f"{words}, gap {gap:.1e}"
        case "refused":
            return f"messages or connections refused so far: {_amount(event.get('total'))}"
        case "excluded" | "cut off" | "revoked":
            return f"{kind}: {about}{why}" if "member" in event else f"{kind}{why}"
        case "members list":
            return f"list of members no. {_amount(event.get('number'))}, {_amount(event.get('count'))} members"
        case "stop":
            reason = event.get("reason")
            return f"stopped: {STOPPED.get(reason, plain(reason)) if isinstance(reason, str) else '?'}"
    return f"{plain(kind, _MAX_NAME)}{'' if event.get('member') is None else f': {about}'}{why}"


def elapsed(seconds: float) -> str:
    """A time in its two largest units."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _amount(value: Any) -> str:
    number = finite(value)
    return "?" if number is None else f"{number:,.0f}"
