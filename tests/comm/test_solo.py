from __future__ import annotations

import numpy as np

from widemargin.comm.solo import Solo


def test_every_collective_of_one_rank_is_the_identity_and_costs_nothing():
    comm, values = Solo(), np.array([1.0, -2.0])
    assert (comm.rank, comm.size) == (0, 1)
    for op in ("sum", "min", "max"):
        np.testing.assert_array_equal(comm.allreduce(values, op), values)
    np.testing.assert_array_equal(comm.broadcast(values), values)
    (gathered,) = comm.gather(values)
    np.testing.assert_array_equal(gathered, values)
    assert (comm.ledger.messages, comm.ledger.scalars, comm.ledger.bytes) == (0, 0, 0)


def test_ledgers_are_not_shared():
    first, second = Solo(), Solo()
    first.ledger.messages += 1
    assert second.ledger.messages == 0
