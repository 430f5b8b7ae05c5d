"""Login tokens: short-lived proof of a local user, which the credential socket hands out. In memory only."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from toban.token_text import TokenText, new_token_text
from toband.domain.identity import Identity, user_identity
from toband.engine.access.door import Door
from toband.engine.errors import CredentialReason, InvalidCredentialError
from toband.ports import Clock

VALID_FOR = timedelta(minutes=10)
MOST_OF_USER = 1000
"""Tokens of one user at once. Beyond, the oldest ends: each command of a shell fetches its own."""
MOST_USERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    digest: str
    identity: Identity
    address: str
    expires_at: datetime


class LoginTokens:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By user, the user who fetched last at the end; of each user oldest first.
        self._users: OrderedDict[int, OrderedDict[str, _Login]] = OrderedDict()
        self._owner: dict[str, int] = {}

    def create(self, door: Door, uid: int, user: str) -> tuple[TokenText, datetime]:
        """A token of that user with the role of the door, and when it expires."""
        text, now = new_token_text(), self._clock.now()
        own = self._users.setdefault(uid, OrderedDict())
        self._users.move_to_end(uid)
        for token_id in [each for each, login in own.items() if login.expires_at <= now]:
            self._remove(uid, token_id)
        if len(own) >= MOST_OF_USER:
            self._remove(uid, next(iter(own)))
        if len(self._users) > MOST_USERS:
            oldest = next(iter(self._users))
            for token_id in list(self._users[oldest]):
                self._remove(oldest, token_id)
            self._users.pop(oldest, None)
        own[text.id] = _Login(
            digest=text.digest,
            identity=user_identity(uid, user, door.role),
            address=door.address,
            expires_at=now + VALID_FOR,
        )
        self._owner[text.id] = uid
        return text, now + VALID_FOR

    def identify(self, door: Door, text: TokenText) -> Identity | None:
        """None if it is no login token of this door. Raises InvalidCredentialError for one that has expired."""
        uid = self._owner.get(text.id)
        if uid is None:
            return None
        login = self._users[uid][text.id]
        if login.address != door.address or not hmac.compare_digest(login.digest, text.digest):
            return None
        if login.expires_at <= self._clock.now():
            self._remove(uid, text.id)
            raise InvalidCredentialError("the credential has expired", CredentialReason.EXPIRED)
        return login.identity

    def _remove(self, uid: int, token_id: str) -> None:
        del self._users[uid][token_id]
        del self._owner[token_id]
