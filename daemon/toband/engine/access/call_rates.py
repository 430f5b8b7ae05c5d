"""The rate of calls of each identity."""

from __future__ import annotations

from collections import OrderedDict

from toband.engine.access.rate_limit import TokenBucket
from toband.engine.errors import RateExceededError

IDENTITIES_MOST = 10_000
"""Identities whose rate is remembered; of more, the one that called longest ago is forgotten."""


class CallRates:
    """Belongs to the event loop. Times are of a monotonic clock."""

    def __init__(self, *, rate: float, burst: float) -> None:
        """`rate` in calls per second."""
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def check(self, who: str, now: float) -> None:
        """Counts a call. Raises RateExceededError, which says when the next one is permitted."""
        bucket = self._buckets.pop(who, None) or TokenBucket(self._rate, self._burst)
        self._buckets[who] = bucket
        if len(self._buckets) > IDENTITIES_MOST:
            self._buckets.popitem(last=False)
        if not bucket.take(now):
            raise RateExceededError(self._rate, bucket.wait(now))
