"""What every kind of rank can do with its collectives."""

from __future__ import annotations

from tests.problems_at_hand import on_ranks
from widemargin.comm.protocol import place_among_ranks


def test_places_follow_each_other(n_ranks):
    places = on_ranks(n_ranks, lambda comm: place_among_ranks(comm, 3 * comm.rank))
    begin = 0
    for rank, place in enumerate(places):
        assert (place.start, place.stop) == (begin, begin + 3 * rank)
        begin = place.stop
