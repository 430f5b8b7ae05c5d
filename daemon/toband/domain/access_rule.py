"""The access rule of a call: what an identity needs to make it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from toband.domain.identity import Role


class CallTarget(IntEnum):
    """What a call is about. The names and numbers are those of the contract."""

    NONE = 1
    DAEMON = 2
    WORKFLOW = 3
    RUN = 4
    PROCESS_EXECUTION = 5
    DEAD_LETTER = 6
    SCHEDULE = 7
    EVENT = 8
    DEFINITIONS = 9
    VISIBLE = 10
    HOOK = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    method: str
    """Such as `RunService/StartRun`."""
    role: Role | None
    """The least role; None: every identity."""
    target: CallTarget
    field: str = ""
    """The field of the request that names the target."""
    steps: bool = False
    """A step may call it for itself and for what it started."""
    audited: bool = False
    signed: bool = False
    """The signature of the request is its only credential: the handler checks it."""
