"""The host: disk space, descriptors, and the files and processes that the doctor inspects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from toband.domain.attempt_model import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The space of a file system in bytes; `free` is for this user. None: the file system does not count inodes."""

    path: str
    total: int
    free: int
    inodes: int | None = None
    free_inodes: int | None = None


class Disk(Protocol):
    """The disk of the state directory, and a ballast file that is given up for the last writes."""

    def spaces(self) -> Sequence[Space]:
        """Every file system that the daemon itself writes to. Takes microseconds. Raises OSError."""
        ...

    def try_write(self) -> None:
        """Writes a file durably and removes it. Blocks as long as the disk does. Raises OSError."""
        ...

    @property
    def ballast(self) -> int:
        """The full size of the ballast; 0: there is none."""
        ...

    def ballast_held(self) -> int:
        """The bytes of it that are allocated now."""
        ...

    def shed_half(self) -> bool:
        """Frees the first half of the ballast; False if there was none. Never raises; may be called in any thread."""
        ...

    def shed_piece(self) -> bool:
        """Frees a small piece of it, in the same way."""
        ...

    def take_ballast(self) -> None:
        """Allocates it again. Raises OSError."""
        ...

    def reach_ahead(self) -> None:
        """Allocates blocks ahead of the growth of SQLite's log, so that no other process can take them.

        Takes microseconds if they are allocated. Does nothing on a file system without support. Never raises.
        """
        ...


class Descriptors(Protocol):
    def open_and_most(self) -> tuple[int, int] | None:
        """The open descriptors of this process, and their limit; None if not known."""
        ...


class AttemptSeen(StrEnum):
    """The state of an attempt by its file."""

    ABSENT = "absent"
    VOID = "void"
    LIVES = "lives"
    ENDED = "ended"
    DEAD = "dead"
    """Claimed, without a live shim and without an end record."""
    DAMAGED = "damaged"
    """Its claim or end record is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """The contents of a run's directory. `age` is in seconds, of its newest file."""

    name: str
    age: float
    logs: frozenset[str]
    """Names of attempt files, without the suffix of compression."""
    alive: frozenset[str]
    """Those among them that a live shim has locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPath:
    """A path with a wrong owner or wrong permissions. `mode`: the right ones; None: not our file."""

    path: str
    problem: str
    mode: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProcess:
    """A process with the token of an attempt of this state directory in its environment.

    `start` distinguishes it from another process with the same pid. `ours`: it descends from a process that the daemon
    started.
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
    """`jumped`: seconds by which the wall clock was set since the daemon started. `synchronised`: None if unknown."""

    jumped: float
    synchronised: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepIsolation:
    """What separates steps from the daemon here. `step_user` is that of steps that name none."""

    daemon_user: str
    step_user: str
    links_protected: bool = True
    """Whether no user can give another user's file a second name."""
    no_files: str = ""
    """Why a sandbox cannot limit files; empty if it can."""
    no_network: str = ""
    """The same for the network."""

    @property
    def shared(self) -> bool:
        """Whether steps run as the daemon's user: its files are then open to them."""
        return self.step_user == self.daemon_user


class Premises(Protocol):
    """Files and processes around the daemon, for the doctor. Every method blocks: call it in a thread."""

    def seen(self, attempt: Attempt) -> AttemptSeen:
        """Raises OSError."""
        ...

    def log_name(self, attempt: Attempt) -> str: ...

    def run_directories(self) -> Sequence[RunDirectory]:
        """Raises OSError."""
        ...

    def temporary_files(self, older: float, skip: Collection[str]) -> Sequence[str]:
        """Paths of partial files that a dead process left, at least that many seconds old, except of the runs `skip`.

        Raises OSError.
        """
        ...

    def remove_file(self, path: str) -> None:
        """Raises OSError."""
        ...

    def wrong_paths(self) -> Sequence[WrongPath]: ...

    def repair(self, wrong: WrongPath) -> None:
        """Raises OSError."""
        ...

    def step_processes(self) -> Sequence[StepProcess]: ...

    def end(self, processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
        """Ends exactly those, first gracefully; returns those that are still alive."""
        ...

    def clock(self) -> ClockReading: ...

    def spawner(self) -> int | None:
        """The spawner's pid; 0 if it has died, None if the platform needs none."""
        ...

    def cgroup(self) -> str:
        """The cgroup below which each step has its own, or why there is none; as text."""
        ...

    def step_isolation(self) -> StepIsolation: ...
