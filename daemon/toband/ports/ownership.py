"""The daemon that owns a database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOwner:
    """`installation` identifies the state directory, `machine` the host that it is on."""

    installation: str
    machine: str
    host: str
    pid: int
    state_dir: str
    since: datetime

    @property
    def described(self) -> str:
        return (
            f"host {self.host}, pid {self.pid}, since {self.since:%Y-%m-%d %H:%M:%S} UTC, "
            f"state directory {self.state_dir}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseClaim:
    """A claim that succeeded. `abandoned` counts the attempts that `previous` left behind, out of reach."""

    epoch: int
    previous: DatabaseOwner | None = None
    abandoned: int = 0
