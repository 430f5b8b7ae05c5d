"""What the daemon stands on: its disk, its descriptors, what lies and runs around it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from toband.domain.run_model import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """How full a file system is. Bytes; `free` is what this user may still take. None: not counted there."""

    path: str
    total: int
    free: int
    inodes: int | None = None
    free_inodes: int | None = None


class Disk(Protocol):
    """Where state is kept, and a ballast on it that can be thrown off for the last writes."""

    def spaces(self) -> Sequence[Space]:
        """Of every file system that the daemon itself writes to; a matter of microseconds. Raises OSError."""
        ...

    def try_write(self) -> None:
        """Writes something durably and takes it away again. May take as long as the disk does. Raises OSError."""
        ...

    @property
    def ballast(self) -> int:
        """How large the ballast is when it is whole; 0: there is none."""
        ...

    def ballast_held(self) -> int:
        """How much of it there is."""
        ...

    def shed_half(self) -> bool:
        """Gives up the first half of the ballast; whether that freed anything. Raises nothing, in any thread."""
        ...

    def shed_piece(self) -> bool:
        """Gives up a small piece of what there is of it, in the same way."""
        ...

    def take_ballast(self) -> None:
        """Makes it whole again. Raises OSError."""
        ...

    def reach_ahead(self) -> None:
        """Gives the log of a database that is a file some blocks ahead of its growth, which nobody else can take.

        A matter of microseconds where it has them. A file system that cannot is left alone. Raises nothing.
        """
        ...


class Descriptors(Protocol):
    def open_and_most(self) -> tuple[int, int] | None:
        """Descriptors that this process has open, and how many it may; None where that is not known."""
        ...


class AttemptSeen(StrEnum):
    """What an attempt's file says."""

    ABSENT = "absent"
    VOID = "void"
    LIVES = "lives"
    ENDED = "ended"
    DEAD = "dead"
    """Claimed, with neither a living supervisor nor a record of the end."""
    DAMAGED = "damaged"
    """Its claim or its record cannot be believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """What lies in the directory of a run. `age` is in seconds, of its newest part."""

    name: str
    age: float
    logs: frozenset[str]
    """Names of attempt files, without what compression adds."""
    alive: frozenset[str]
    """Those among them that a living supervisor holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPath:
    """Something whose owner or permissions are not as they must be. `mode`: what would be right; None: not ours."""

    path: str
    problem: str
    mode: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProcess:
    """A process that carries the token of an attempt of this state directory in its environment.

    `start` tells it from another of the same pid. `ours`: it descends from what the daemon starts, and from nobody
    else.
    """

    pid: int
    start: float
    token: str
    run_id: str
    command: str
    parent: str
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """`jumped`: seconds by which the wall clock was set since the daemon began. `synchronised`: None if not known."""

    jumped: float
    synchronised: bool | None


class Premises(Protocol):
    """What lies and runs around the daemon, for the doctor. Everything here blocks: it is called in threads."""

    def seen(self, attempt: Attempt) -> AttemptSeen:
        """Raises OSError."""
        ...

    def log_name(self, attempt: Attempt) -> str: ...

    def run_directories(self) -> Sequence[RunDirectory]:
        """Raises OSError."""
        ...

    def temporary_files(self, older: float, skip: Collection[str]) -> Sequence[str]:
        """Paths of what was half made by somebody who died, at least so many seconds old, but not of the runs `skip`.

        Raises OSError.
        """
        ...

    def remove_file(self, path: str) -> None:
        """Raises OSError."""
        ...

    def wrong_paths(self) -> Sequence[WrongPath]: ...

    def mend(self, wrong: WrongPath) -> None:
        """Raises OSError."""
        ...

    def step_processes(self) -> Sequence[StepProcess]: ...

    def end(self, processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
        """Ends exactly those, first politely; answers which are still there."""
        ...

    def clock(self) -> ClockReading: ...

    def spawner(self) -> int | None:
        """Its pid; 0 if it has died, None where none is needed."""
        ...

    def cgroup(self) -> str:
        """Where steps get a cgroup each, or why they do not; in words."""
        ...
