"""Servicers that tests call without a server have a caller all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from toband.domain.identity import Role, user_identity
from toband.engine.access import call_identity


@pytest.fixture(autouse=True)
def caller() -> Iterator[str]:
    """The name of the caller of every servicer."""
    identity = user_identity(1000, "aiko", Role.ADMIN)
    token = call_identity._IDENTITY.set(identity)
    yield identity.name
    call_identity._IDENTITY.reset(token)
