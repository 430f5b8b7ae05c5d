"""Ownership of a database by one daemon."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOwner:
    """A daemon. `installation` identifies its state directory, `machine` the host."""

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
    """A successful claim. `abandoned` counts the attempts of `previous` that this daemon cannot reach."""

    epoch: int
    previous: DatabaseOwner | None = None
    abandoned: int = 0
