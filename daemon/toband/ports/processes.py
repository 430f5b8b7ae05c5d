"""Processes: starting and ending them, and looking at what they use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from toban.definition import Resources
from toband.domain.run_events import Event
from toband.domain.run_model import Attempt, TreeCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process to be started, at most once for its token."""

    attempt: Attempt
    argv: Sequence[str]
    env: Mapping[str, str]
    workspace: str
    timeout: float | None
    timeout_cause: TreeCause
    kill_grace: float
    user: str = ""
    resources: Resources | None = None
    stdin: str | None = None
    """What the step reads as its standard input, then its end. None: it is empty."""
    log_limit: int | None = None
    """Bytes of output that are kept; what is beyond is counted and dropped."""


class Report(Protocol):
    """How a launcher tells what happened to an attempt of a run. Called in the event loop."""

    def __call__(self, run_id: str, event: Event) -> None: ...


class Launcher(Protocol):
    """Starts processes, ends them, and reports what became of them; what it started outlives it."""

    async def open(self, report: Report) -> None: ...

    async def close(self) -> None:
        """Lets go of everything; processes go on."""
        ...

    async def prepare(self, run_id: str, params: Mapping[str, Any]) -> None:
        """Makes what a run's attempts need on disk. Repeating it is harmless. Raises OSError."""
        ...

    def launch(self, launch: Launch) -> None:
        """Hands it over and returns at once; AttemptStarted (if it lasts) and the end come as reports."""
        ...

    def stop(self, attempt: Attempt) -> None:
        """Asks for the end of a live attempt; repeating it, or asking for one that is gone, is harmless."""
        ...

    async def recover(self, attempt: Attempt) -> Event | None:
        """After a restart: None when the attempt lives and is watched again, else what became of it."""
        ...

    def settle(self, token: str) -> None:
        """The end of the attempt with that token is in the database: less need be kept to prove it."""
        ...

    def settle_others(self, active: Collection[str]) -> None:
        """Once after a restart: the same for all earlier attempts, but those with these tokens."""
        ...

    def running(self) -> int:
        """Attempts that live."""
        ...


class MeterReading(NamedTuple):
    """What a process tree uses now. Times and bytes are since its start; None where the system does not say."""

    cpu_time: float
    rss_bytes: int
    processes: int
    read_bytes: int | None
    written_bytes: int | None


class Meter(Protocol):
    """Looks at live attempts from outside, by attempt id."""

    def live(self) -> Collection[str]: ...

    async def read(self, attempt_ids: Collection[str]) -> Mapping[str, MeterReading]:
        """Of those that still live."""
        ...
