"""The highest tick that a network can have reached: a member that names a far later one is not believed.

Peers continue from the latest tick that they hear of, so one member could otherwise drive all of them to the last
possible number. A tick is possible if the fastest network could have reached it by now. If most of the others name
impossible ticks, the own clock stood still, as on a machine that slept, and the peer believes them.
"""

from statistics import median_low

LEAST_PACE = 0.005  # seconds between the ticks of an honest peer
_TICKS_PER_SECOND = 1.5 / LEAST_PACE
_SPARE_TICKS = 1_000
_FEWEST = 3  # members of whom most can be believed


class TickLimit:
    """The highest possible tick, from one that the network had reached at some time, in seconds."""

    def __init__(self, tick: int, now: float) -> None:
        self._tick, self._at = tick, now
        self._said: dict[int, int] = {}  # the latest tick of each member

    def highest(self, now: float) -> int:
        """The highest tick that the network can have reached by now."""
        return self._tick + int(_TICKS_PER_SECOND * (now - self._at)) + _SPARE_TICKS

    def note(self, member: int, tick: int, now: float) -> None:
        """Note the tick that a member names; if most name impossible ticks, the clock here is wrong."""
        self._said[member] = tick
        if len(self._said) >= _FEWEST and (most := median_low(self._said.values())) > self.highest(now):
            self._tick, self._at = most, now

    def can_judge(self) -> bool:
        """Whether enough members were heard to tell a wrong member from a wrong clock."""
        return len(self._said) >= _FEWEST

    def forget(self, member: int) -> None:
        self._said.pop(member, None)
