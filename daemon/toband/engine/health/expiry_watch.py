"""Warns of certificates and tokens of the configuration that expire soon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from toband.domain.credential_rules import ConfiguredToken, ExpiringCertificate
from toband.ports import Clock, Conditions, HealthStatus

LOOK_EVERY = 3600.0
SOON = timedelta(days=30)
CONDITION = "expiry"
_SHOWN = 5


class ExpiryWatch:
    """Belongs to the event loop. `certificates` reads the files of TLS, and may block."""

    def __init__(
        self,
        *,
        certificates: Callable[[], Sequence[ExpiringCertificate]],
        tokens: Sequence[ConfiguredToken],
        clock: Clock,
        conditions: Conditions,
    ) -> None:
        self._certificates = certificates
        self._tokens = tokens
        self._clock = clock
        self._conditions = conditions
        self._now = asyncio.Event()

    def use(self, tokens: Sequence[ConfiguredToken]) -> None:
        """Replaces the tokens."""
        self._tokens = tokens
        self._now.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._now.clear()
            await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._now.wait()

    async def look(self) -> None:
        now = self._clock.now()
        ends = [(each.expires_at, each.described) for each in await asyncio.to_thread(self._certificates)]
        ends += [
            (each.expires_at, f"access.tokens.{each.name}") for each in self._tokens if each.expires_at is not None
        ]
        soon = sorted(each for each in ends if each[0] <= now + SOON)
        if not soon:
            self._conditions.well(CONDITION)
            return
        shown = [_text(what, at, now) for at, what in soon[:_SHOWN]]
        if len(soon) > _SHOWN:
            shown.append(f"{len(soon) - _SHOWN} more")
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, f"{'; '.join(shown)}: renew what expires")


def _text(what: str, at: datetime, now: datetime) -> str:
    on = f"{at:%Y-%m-%d %H:%M} UTC"
    if at <= now:
        return f"{what} expired on {on}"
    days = (at - now) // timedelta(days=1)
    return f"{what} expires on {on}, in {days} days" if days != 1 else f"{what} expires on {on}, in 1 day"
