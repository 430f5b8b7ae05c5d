"""Failed logins and rates: growing waits of a source, bounded memory, others unharmed."""

from __future__ import annotations

import pytest

from toband.engine.access.call_rates import IDENTITIES_MOST, CallRates
from toband.engine.access.failed_logins import FORGOTTEN_AFTER, LONGEST_WAIT, SOURCES_MOST, FailedLogins, source_of
from toband.engine.errors import RateExceededError, TooManyFailuresError


def waits(logins: FailedLogins, source: str, now: float) -> float:
    try:
        logins.check(source, now)
    except TooManyFailuresError as error:
        return error.wait
    return 0.0


def test_waits_grow_up_to_a_limit() -> None:
    logins = FailedLogins(free=3)
    found = []
    now = 0.0
    for _ in range(12):
        logins.failed("10.0.0.7", now)
        found.append(waits(logins, "10.0.0.7", now))
        now += found[-1]
        assert not waits(logins, "10.0.0.7", now)
    assert found == [0, 0, 0, 1, 2, 4, 8, 16, 32, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert not waits(logins, "10.0.0.8", now - 1)


def test_a_pause_begins_anew() -> None:
    logins = FailedLogins(free=1)
    for _ in range(5):
        logins.failed("a", 0.0)
    assert waits(logins, "a", 0.0)
    logins.failed("a", FORGOTTEN_AFTER + 1)
    assert not waits(logins, "a", FORGOTTEN_AFTER + 1)


def test_memory_is_bounded() -> None:
    logins = FailedLogins(free=0)
    logins.failed("first", 0.0)
    for number in range(SOURCES_MOST + 5):
        logins.failed(str(number), 0.0)
    assert len(logins._sources) == SOURCES_MOST
    assert not waits(logins, "first", 0.0)
    rates = CallRates(rate=1, burst=1)
    for number in range(IDENTITIES_MOST + 5):
        rates.check(str(number), 0.0)
    assert len(rates._buckets) == IDENTITIES_MOST


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv6:%5B2001:db8::7%5D:4711", "2001:db8::/64"),
        ("ipv6:[2001:db8:0:0:ffff::1]:1", "2001:db8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:4711", "10.0.0.7"),
        ("ipv6:nonsense:1", "nonsense"),
        ("unix:", ""),
        ("unix:@", ""),
    ],
)
def test_sources(peer: str, source: str) -> None:
    assert source_of(peer) == source


def test_rates() -> None:
    rates = CallRates(rate=10, burst=20)
    for _ in range(20):
        rates.check("a", 5.0)
    with pytest.raises(RateExceededError) as caught:
        rates.check("a", 5.0)
    assert caught.value.wait == pytest.approx(0.1)
    rates.check("b", 5.0)
    rates.check("a", 5.11)
    with pytest.raises(RateExceededError):
        rates.check("a", 5.11)
    for _ in range(20):
        rates.check("a", 500.0)
    with pytest.raises(RateExceededError):
        rates.check("a", 500.0)
