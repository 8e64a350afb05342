"""What goes wrong on a simulated wire, and what is no fault at all."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.comm.faults import Faults, FaultyWire


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"drop": 1.0}, "drop=1.0"),
        ({"drop": -0.1}, "[0, 1)"),
        ({"duplicate": 2}, "duplicate"),
        ({"reorder": 1.5}, "reorder"),
        ({"idle": 1}, "idle"),
        ({"delay": -1}, "delay=-1"),
        ({"delay": (3, 1)}, "delay"),
        ({"delay": (1, 2, 3)}, "delay"),
        ({"delay": 0.5}, "delay"),
        ({"crash": {1: 0}}, "from 1"),
        ({"rejoin": {2: 9}}, "peer 2 must have crashed"),
        ({"crash": {2: 9}, "rejoin": {2: 9}}, "peer 2 must have crashed"),
        ({"partition": [(5, 4, [0])]}, "partition"),
        ({"partition": [(0, 4, [0])]}, "at least 1"),
        ({"partition": [(1, 4, [])]}, "some peers"),
    ],
)
def test_errors_name_the_value(wrong, says):
    with pytest.raises(ValueError, match=says.replace("[", r"\[").replace(")", r"\)")):
        Faults(**wrong)


def arrivals(faults, n=4000, seed=0):
    """Numbers of messages sent one a tick, and the tick at which they came."""
    wire, came = FaultyWire(faults, np.random.default_rng(seed)), []
    for tick in range(n):
        wire.send(0, 1, tick)
        came += [(message, wire.now) for _, message in wire.arrivals()]
    for _ in range(20):
        came += [(message, wire.now) for _, message in wire.arrivals()]
    return came


def test_a_sound_wire_delivers_everything_once_in_the_next_tick():
    assert arrivals(Faults(), n=50) == [(k, k + 1) for k in range(50)]


def test_the_same_seed_is_the_same_wire_and_another_is_not():
    faults = Faults(drop=0.2, delay=(0, 3), duplicate=0.1, reorder=0.1)
    assert arrivals(faults) == arrivals(faults)
    assert arrivals(faults) != arrivals(faults, seed=1)


def test_shares_are_as_stated(seed):
    """Four standard errors of 4,000 draws."""
    near = lambda share: pytest.approx(4000 * share, abs=4 * np.sqrt(4000 * share * (1 - share)))  # noqa: E731
    assert 4000 - len(arrivals(Faults(drop=0.3), seed=seed)) == near(0.3)
    assert len(arrivals(Faults(duplicate=0.2), seed=seed)) - 4000 == near(0.2)
    late = [at - number - 1 for number, at in arrivals(Faults(delay=(1, 4)), seed=seed)]
    assert [late.count(ticks) for ticks in range(6)] == [0, *[near(0.25)] * 4, 0]
    held = [at - number - 1 for number, at in arrivals(Faults(reorder=0.1), seed=seed)]
    assert sum(ticks > 0 for ticks in held) == near(0.1)
    assert set(held) == {0, 1, 2, 3, 4, 5}


def test_delay_of_one_number_is_exact():
    assert arrivals(Faults(delay=2), n=10) == [(k, k + 3) for k in range(10)]


def test_a_partition_keeps_two_sides_apart_from_its_first_to_its_last_tick():
    wire = FaultyWire(Faults(partition=[(3, 5, [0, 1])]), np.random.default_rng(0))
    cut = []
    for _ in range(8):
        wire.arrivals()
        assert not wire.is_cut(0, 1)
        assert not wire.is_cut(2, 3)
        assert wire.is_cut(0, 2) == wire.is_cut(2, 0)
        cut.append(wire.is_cut(1, 2))
    assert cut == [False, False, True, True, True, False, False, False]


def test_what_is_under_way_when_a_partition_begins_still_arrives():
    wire = FaultyWire(Faults(delay=3, partition=[(2, 9, [0])]), np.random.default_rng(0))
    wire.arrivals()
    wire.send(0, 1, "before")
    wire.arrivals()
    wire.send(0, 1, "within")
    assert [message for _ in range(12) for _, message in wire.arrivals()] == ["before"]


def test_faults_are_over_after_the_last_of_them():
    assert Faults(drop=0.5).are_over_at(0)
    faults = Faults(crash={1: 10}, rejoin={1: 30}, partition=[(5, 20, [2])])
    assert [faults.are_over_at(tick) for tick in (9, 20, 29, 30)] == [False, False, False, True]
    assert [Faults(partition=[(5, 20, [2])]).are_over_at(tick) for tick in (4, 20, 21)] == [False, False, True]
