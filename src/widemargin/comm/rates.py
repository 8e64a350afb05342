"""Limits on what one member may send: more is an attack or a fault, and would keep the others from their work."""

from __future__ import annotations

MESSAGES_PER_SECOND, BYTES_PER_SECOND = 2_000, 1 << 26
REQUESTS_PER_SECOND = 10  # of these messages: an address may have to be looked up, a list has many signatures
_BURST_SECONDS = 10.0  # worth of these may come at once
_CONNECTIONS_PER_SECOND, _CONNECTIONS_AT_ONCE = 1.0, 60


class Allowance:
    """An allowance that grows at a rate up to a maximum, and is spent."""

    def __init__(self, rate: float, most: float, now: float) -> None:
        self._rate, self._most, self._left, self._at = rate, most, most, now

    def spend(self, amount: float, now: float) -> bool:
        """Spend an amount if enough is left; return whether it was."""
        self._left, self._at = min(self._most, self._left + self._rate * (now - self._at)), now
        is_enough = self._left >= amount
        self._left -= amount if is_enough else 0
        return is_enough


class Rates:
    """What each member has sent lately; two messages of the ``longest`` length are always allowed at once."""

    def __init__(self, longest: int) -> None:
        self._most_bytes = max(_BURST_SECONDS * BYTES_PER_SECOND, 2 * longest)
        self._messages: dict[int, Allowance] = {}
        self._requests: dict[int, Allowance] = {}
        self._bytes: dict[int, Allowance] = {}
        self._connections: dict[str, Allowance] = {}

    def excess(self, member: int, n_bytes: int, now: float, *, is_request: bool = False) -> str | None:
        """The limit that a member exceeds with one more message of this length; None if it exceeds none."""
        if member not in self._messages:
            most = _BURST_SECONDS * MESSAGES_PER_SECOND
            self._messages[member] = Allowance(MESSAGES_PER_SECOND, most, now)
            self._requests[member] = Allowance(REQUESTS_PER_SECOND, _BURST_SECONDS * REQUESTS_PER_SECOND, now)
            self._bytes[member] = Allowance(BYTES_PER_SECOND, self._most_bytes, now)
        if not self._messages[member].spend(1, now):
            return f"more than {MESSAGES_PER_SECOND:,} messages a second"
        if is_request and not self._requests[member].spend(1, now):
            return f"more than {REQUESTS_PER_SECOND} requests a second"
        if not self._bytes[member].spend(n_bytes, now):
            return f"more than {BYTES_PER_SECOND >> 20} MiB a second"
        return None

    def may_connect(self, name: str, now: float) -> bool:
        """Whether a member may open one more connection."""
        if name not in self._connections:
            self._connections[name] = Allowance(_CONNECTIONS_PER_SECOND, _CONNECTIONS_AT_ONCE, now)
        return self._connections[name].spend(1, now)
