"""The whole store, and its errors."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from toband.ports.access import AccessStore
from toband.ports.attempts import AttemptStore
from toband.ports.audit import AuditStore
from toband.ports.dead_letters import DeadLetterStore
from toband.ports.definitions import DefinitionStore
from toband.ports.events import EventStore, TriggerStore
from toband.ports.hooks import HookStore
from toband.ports.ids import IdStore
from toband.ports.locks import LockLeftoverStore
from toband.ports.records import Counts, Inspection
from toband.ports.retention import RetentionStore
from toband.ports.run_statistics import RunStatisticsStore
from toband.ports.runs import RunStore
from toband.ports.schedules import FireLedger, ScheduleStore
from toband.ports.secrets import SecretStore
from toband.ports.summaries import SummaryStore


class DatabaseChecks(Protocol):
    """The database as a whole: its owner, its files, its integrity."""

    async def check_owner(self) -> None:
        """Raises StoreTakenOverError if another daemon has claimed the database since it was opened."""
        ...

    def check_files(self) -> None:
        """Raises StoreGoneError if the files of the database were deleted or replaced. Does not block."""
        ...

    async def try_write(self) -> None:
        """Durably commits an empty change. Raises StoreError if the database accepts no writes."""
        ...

    async def inspect(self) -> Inspection:
        """Checks the whole database for damage. Takes long, but blocks no other call. Raises StoreError."""
        ...

    async def checkpoint(self) -> None:
        """Moves the write-ahead log into the database, unless readers still need it. Raises StoreError."""
        ...


class Store(
    DefinitionStore,
    RunStore,
    AttemptStore,
    DeadLetterStore,
    IdStore,
    LockLeftoverStore,
    ScheduleStore,
    FireLedger,
    EventStore,
    TriggerStore,
    RetentionStore,
    SummaryStore,
    AccessStore,
    AuditStore,
    SecretStore,
    HookStore,
    RunStatisticsStore,
    DatabaseChecks,
    Protocol,
):
    """Durable truth: the result of a call survives any crash.

    Every method may be called from the event loop at any time. Writers are serialised and share commits; readers run
    beside them. Methods return values, never rows.
    """

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        ...

    async def open(self) -> None:
        """Connects, migrates the schema, and claims the database.

        Raises StoreError with a reason for people; StoreHeldError if another daemon owns the database.
        """
        ...

    async def close(self) -> None:
        """Releases the claim: another installation may claim the database then."""
        ...

    async def counts(self) -> Counts: ...

    async def forget_requests(self, before: datetime) -> int:
        """Removes requests made before then; returns their number."""
        ...


class StoreError(Exception):
    """A call to the database failed; the text says why.

    Nothing of the call was stored, unless the commit itself was interrupted (a lost connection, a failing disk): then
    only reading again shows whether it was.
    """


class StoreFullError(StoreError):
    """The disk is full; nothing of the call was stored."""


class StoreBusyError(StoreError):
    """Another process kept the database locked for too long; nothing of the call was stored."""


class StoreHeldError(StoreError):
    """Another daemon owns the database; the text says which one, and what to do about it."""


class StoreGoneError(StoreError):
    """The database was deleted or replaced. If that happened while it was in use, the call may have been stored in the
    deleted file.
    """


class StoreTakenOverError(StoreError):
    """Another daemon has claimed the database: nothing of the call was stored, and no later call will be."""


class StoreWatcher(Protocol):
    """Observes reads and writes, and can free disk space for them."""

    def make_room(self) -> bool:
        """Frees some disk space after a write found none; False if there is nothing left to free. Called in any thread.

        It frees a little each time, because the process that fills the disk takes all that is left over.
        """
        ...

    def failed(self, error: StoreError) -> None:
        """A write or a read failed. Called in the event loop."""
        ...

    def worked(self) -> None:
        """A write was committed after one had failed. Called in the event loop."""
        ...
