"""Ids that are found by a part of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from toband.domain.identity import Visible


class IdKind(StrEnum):
    """What an id is the id of."""

    RUN = "run"
    PROCESS = "process"
    EVENT = "event"
    DEAD_LETTER = "dead letter"
    SCHEDULE = "schedule"


class IdStore(Protocol):
    """Ids of everything that has one."""

    async def find_ids(self, kind: IdKind, part: str, limit: int, *, visible: Visible = None) -> Sequence[str]:
        """Ids that begin with `part`, newest first; if there are none, at most `limit` of those that end with it.

        An end is compared with every id, along an index. `visible`: only those of workflows that it covers, and no
        events.
        """
        ...
