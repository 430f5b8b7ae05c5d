"""Rate limit: a token bucket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """Permits `burst` at once, and `rate` per second in the long run. Times are of a monotonic clock."""

    rate: float
    burst: float
    _left: float = -1.0
    _at: float = 0.0

    def take(self, now: float) -> bool:
        """False if nothing is left."""
        self._refill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def wait(self, now: float) -> float:
        """Seconds until there is something to take."""
        self._refill(now)
        return max(0.0, (1 - self._left) / self.rate)

    def _refill(self, now: float) -> None:
        if self._left < 0:
            self._left = self.burst
        else:
            self._left = min(self.burst, self._left + max(0.0, now - self._at) * self.rate)
        self._at = now
