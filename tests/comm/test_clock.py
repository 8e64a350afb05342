"""A clock that jumps, and the seconds that count."""

from __future__ import annotations

from widemargin.comm.clock import SteadyClock


def test_steps_back_count_as_nothing_and_steps_ahead_in_full():
    readings = iter([100.0, 101.0, 40.0, 42.0, 3642.0, 3642.5])
    clock = SteadyClock(lambda: next(readings))
    assert [clock() for _ in range(5)] == [1.0, 1.0, 3.0, 3603.0, 3603.5]
