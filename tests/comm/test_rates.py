"""How much one member may send."""

from __future__ import annotations

from widemargin.comm.rates import BYTES_PER_SECOND, MESSAGES_PER_SECOND, REQUESTS_PER_SECOND, Rates


def test_a_member_at_the_rate_is_never_stopped_and_one_above_is():
    rates = Rates(1000)
    for k in range(20 * MESSAGES_PER_SECOND):
        assert rates.excess(1, 100, k / MESSAGES_PER_SECOND) is None
    found = [rates.excess(2, 100, k / (2 * MESSAGES_PER_SECOND)) for k in range(40 * MESSAGES_PER_SECOND)]
    assert "messages a second" in next(filter(None, found))
    assert rates.excess(1, 100, 20.0) is None  # the other member did not spend of this one's


def test_bytes_are_limited_but_two_long_messages_pass():
    longest = 20 * BYTES_PER_SECOND
    rates = Rates(longest)
    assert rates.excess(1, longest, 0.0) is None
    assert rates.excess(1, longest, 0.0) is None
    assert "MiB a second" in rates.excess(1, longest, 0.0)


def test_requests_are_fewer_than_messages():
    rates = Rates(1000)
    for k in range(20 * REQUESTS_PER_SECOND):
        assert rates.excess(1, 100, k / REQUESTS_PER_SECOND, is_request=True) is None
    found = [rates.excess(2, 100, 0.0, is_request=True) for _ in range(20 * REQUESTS_PER_SECOND)]
    assert "requests a second" in next(filter(None, found))
    assert rates.excess(2, 100, 0.0) is None  # which is no request


def test_connections_are_limited_for_each_member():
    rates = Rates(1000)
    allowed = sum(rates.may_connect("1", 0.0) for _ in range(500))
    assert 10 <= allowed < 100
    assert rates.may_connect("2", 0.0)
    assert rates.may_connect("1", 60.0)
