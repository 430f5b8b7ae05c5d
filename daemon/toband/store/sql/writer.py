"""The writer: one thread that runs all transactions, with group commit.

An operation is a function that takes a WriteSession and returns a value. Operations that were queued during a commit
share the next one. Each runs in its own savepoint, so that one that fails or is refused undoes only itself, and none
is answered before its commit. An operation that finds an empty queue starts at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import Connection, exc

from toband import failpoints
from toband.domain.audit_chain import AuditEntry, AuditRecord
from toband.ports import AuditedCall, StoreError, StoreFullError, StoreTakenOverError, StoreWatcher, audited_call
from toband.store.sql import ownership
from toband.store.sql.audit_rows import AuditRows
from toband.store.sql.database import Database
from toband.store.sql.errors import failure, outward
from toband.store.sql.statements import Statement

T = TypeVar("T")

MAX_BATCH = 256
# A daemon that was suspended inside a transaction must not prevent another from claiming the database.
_IDLE_WITHIN = "15s"
_EPOCH = "SELECT epoch FROM ownership"
_CREATION_LOCK = 0x746F62616E02

Row = Mapping[str, Any]


class QueuedWrite(NamedTuple):
    """`call` is the call that asks for the operation, if the audit log records its changes."""

    operation: Callable[[WriteSession], Any]
    future: asyncio.Future[Any]
    call: AuditedCall | None = None


class WriteOutcome(NamedTuple):
    future: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None
    kept: bool = False


class Undo(Exception):  # noqa: N818 - an answer, not an error
    """Raised by an operation: undoes its writes and returns this answer."""

    def __init__(self, answer: object) -> None:
        super().__init__(answer)
        self.answer = answer


class WriteSession:
    """The writer's connection, as operations use it. Only the writer begins and ends its transactions.

    `connection` is for SQLAlchemy statements. `run`, `run_many` and `fetch` pass text and raw values to the driver,
    which is several times faster.

    With an `epoch`, every transaction checks that the claim of that epoch is still the last one; until it ends, no
    other daemon can claim the database.
    """

    def __init__(self, database: Database, epoch: int | None = None) -> None:
        self._sqlite = database.kind == "sqlite"
        self._epoch = epoch
        self._position: int | None = None
        self._audit_rows = AuditRows(database.writer.dialect)
        self._call: AuditedCall | None = None
        self._audited: list[tuple[AuditedCall, AuditRecord]] = []
        self.connection: Connection = database.writer.connect()
        driver = self.connection.connection.driver_connection
        assert driver is not None
        self._cursor = driver.cursor()
        self._begin = "BEGIN IMMEDIATE" if self._sqlite else "BEGIN"
        if not self._sqlite and epoch is not None:
            # One round trip for both. The lock on the row makes a claim wait for the end of the transaction.
            self._begin += f"; {_EPOCH} FOR SHARE"
        if not self._sqlite:
            self._cursor.execute(f"SET idle_in_transaction_session_timeout TO '{_IDLE_WITHIN}'")

    def run(self, statement: Statement, row: Row) -> int:
        """The number of affected rows."""
        self._cursor.execute(statement.sql, statement.bind(row))
        return cast(int, self._cursor.rowcount)

    def run_many(self, statement: Statement, rows: Sequence[Row]) -> int:
        """The number of affected rows of all statements."""
        if len(rows) == 1:
            return self.run(statement, rows[0])
        self._cursor.executemany(statement.sql, list(map(statement.bind, rows)))
        return cast(int, self._cursor.rowcount)

    def fetch(self, statement: Statement, row: Row) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement.sql, statement.bind(row))
        return cast("list[tuple[Any, ...]]", self._cursor.fetchall())

    def next_position(self, last: Statement) -> int:
        """The position of a change of a run, behind all earlier ones; `last` reads the last one.

        Positions are in the order of commits: the owner of the database has one writing transaction at a time.
        """
        if self._position is None:
            self._position = max(found or 0 for found in self.fetch(last, {})[0])
        self._position += 1
        return self._position

    @property
    def audits(self) -> bool:
        """Whether a change of this operation is recorded in the audit log."""
        return self._call is not None and self._call.records

    def audit(self, detail: str = "", target: str = "") -> None:
        """Records that the call which asked for this operation made its change; see `AuditedCall.record`."""
        if self._call is not None and self._call.records:
            self._audited.append((self._call, self._call.record(detail, target)))

    def repeats_recorded_call(self) -> None:
        """The call which asked for this operation repeats an earlier one, whose change is recorded."""
        if self._call is not None:
            self._call.recorded = True

    def append_audit(self, records: Sequence[AuditRecord]) -> Sequence[AuditEntry]:
        return self._audit_rows.append(self.fetch, self.run_many, records)

    def enter_call(self, call: AuditedCall | None) -> int:
        """The operations up to the next call of this are those of `call`; returns the number of records so far."""
        self._call = call
        return len(self._audited)

    def drop_audited(self, kept: int) -> None:
        """Forgets the records of an operation that was undone: all but the first `kept`."""
        del self._audited[kept:]

    def store_audited(self) -> None:
        """The last part of a transaction, so that its records are beside each other."""
        self._call = None
        if self._audited:
            self.append_audit([record for _, record in self._audited])

    def lock_creation(self) -> None:
        """Until the transaction ends, no other can check what exists and then create something.

        SQLite needs no lock: it has one writing transaction at a time.
        """
        if not self._sqlite:
            self._cursor.execute(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")

    def begin(self) -> None:
        """Raises StoreTakenOverError; no transaction is open then."""
        self._position = None
        self._audited.clear()
        if self._sqlite:
            self._cursor.execute(self._begin)
            if self._epoch is not None:
                self._cursor.execute(_EPOCH)
        else:
            self._cursor.execute(self._begin, prepare=False)
            self._cursor.nextset()
        if self._epoch is not None and self._cursor.fetchone() != (self._epoch,):
            owner = ownership.current(self.connection)
            self.rollback()
            raise ownership.taken_over(owner)

    def savepoint(self) -> None:
        self._cursor.execute("SAVEPOINT operation")

    def release(self) -> None:
        self._cursor.execute("RELEASE SAVEPOINT operation")

    def rollback_to_savepoint(self) -> None:
        self._cursor.execute("ROLLBACK TO SAVEPOINT operation")
        self.release()

    def rollback(self) -> None:
        self._cursor.execute("ROLLBACK")

    def commit(self) -> None:
        self._cursor.execute("COMMIT")
        if not self._sqlite and self._cursor.statusmessage != "COMMIT":
            # PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and no error.
            raise StoreError("the transaction was rolled back")

    def close(self) -> None:
        """Ends the connection in any state; uncommitted writes are lost."""
        if self._sqlite:
            # Closed with an open transaction or statement, SQLite would keep the connection and its lock.
            with suppress(sqlite3.Error):
                self._cursor.execute("ROLLBACK")
            with suppress(sqlite3.Error):
                self._cursor.close()
        with suppress(exc.SQLAlchemyError):
            self.connection.invalidate()
            self.connection.close()


class Writer:
    """Owns the thread. Call `start` and `close` once each, from the event loop that calls `do`."""

    def __init__(self, database: Database, watcher: StoreWatcher | None = None, epoch: int | None = None) -> None:
        self._database = database
        self._watcher = watcher
        self._epoch = epoch
        self._failing = False
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[QueuedWrite | None] = SimpleQueue()
        self._session: WriteSession | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def do(self, operation: Callable[[WriteSession], T]) -> T:
        """The result of the operation, once it is on disk. Raises the operation's exception, or StoreError.

        Cancelling the call does not cancel the operation.
        """
        if self._closed:
            raise StoreError("cannot write to the database: it is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(QueuedWrite(operation, future, audited_call()))
        return await future

    def close(self) -> None:
        """Accepts no more operations. Those in the queue still run; `join` waits for them."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)

    def join(self) -> None:
        self._thread.join()

    # the thread

    def _work(self) -> None:
        more = True
        while more:
            batch = [self._queue.get()]
            try:
                while len(batch) < MAX_BATCH:
                    batch.append(self._queue.get_nowait())
            except Empty:
                pass
            jobs = [job for job in batch if job is not None]
            more = len(jobs) == len(batch)
            if jobs:
                self._deliver(self._commit_at_last(jobs))
        self._drop()

    def _commit_at_last(self, jobs: Sequence[QueuedWrite]) -> list[WriteOutcome]:
        """Commits; on a full disk, frees space by a checkpoint or from the ballast and tries again.

        It tries again here and at once, before the process that filled the disk takes that space too.
        """
        outcomes = self._commit(jobs)
        # The server manages its own disk.
        if self._watcher is None or self._database.kind != "sqlite":
            return outcomes
        room = True
        while room and any(map(_found_no_space, outcomes)):
            outcomes = self._after_checkpoint(jobs, outcomes)
            room = not any(map(_found_no_space, outcomes)) or self._watcher.make_room()
        return outcomes

    def _after_checkpoint(self, jobs: Sequence[QueuedWrite], outcomes: Sequence[WriteOutcome]) -> list[WriteOutcome]:
        """Tries again after a checkpoint, which lets SQLite write the log from its start."""
        with suppress(Exception):
            self._database.checkpoint()
        # Only those that failed: the others are on disk.
        places = [index for index, outcome in enumerate(outcomes) if _found_no_space(outcome)]
        again = self._commit([jobs[index] for index in places])
        done = list(outcomes)
        for index, outcome in zip(places, again, strict=True):
            done[index] = outcome
        return done

    def _commit(self, jobs: Sequence[QueuedWrite]) -> list[WriteOutcome]:
        shared = len(jobs) > 1
        try:
            session = self._begin()
            outcomes = [self._run(session, job, shared) for job in jobs]
            if any(outcome.kept for outcome in outcomes):
                session.store_audited()
                failpoints.hit("store.before_commit")
                session.commit()
                # Writes to a deleted file must not be acknowledged.
                self._database.check_files()
                failpoints.hit("store.after_commit")
            elif shared:
                session.rollback()
        except Exception as error:
            self._drop()
            for job in jobs:
                if job.call is not None:
                    job.call.recorded = False
            failed = failure("cannot write to the database", error)
            return [WriteOutcome(job.future, error=type(failed)(str(failed))) for job in jobs]
        return outcomes

    def _begin(self) -> WriteSession:
        self._database.check_files()
        if self._session is not None:
            try:
                self._session.begin()
            except StoreTakenOverError:
                raise
            except Exception:
                # The server may have closed an idle connection. Nothing was written yet, so a new one can take over.
                self._drop()
            else:
                return self._session
        self._session = WriteSession(self._database, self._epoch)
        self._session.begin()
        return self._session

    def _run(self, session: WriteSession, job: QueuedWrite, shared: bool) -> WriteOutcome:
        """Raises if the transaction as a whole is lost."""
        if shared:
            session.savepoint()
        audited = session.enter_call(job.call)
        try:
            answer = job.operation(session)
        except Exception as error:
            session.drop_audited(audited)
            try:
                if shared:
                    session.rollback_to_savepoint()
                else:
                    session.rollback()
            except Exception:
                raise error from None
            if isinstance(error, Undo):
                return WriteOutcome(job.future, error.answer)
            doing = "cannot write to the database"
            return WriteOutcome(job.future, error=outward(doing, error, self._database.error))
        if shared:
            session.release()
        if job.call is not None and session.enter_call(None) > audited:
            job.call.recorded = True
        return WriteOutcome(job.future, answer, kept=True)

    def _deliver(self, outcomes: Sequence[WriteOutcome]) -> None:
        # A closed event loop has no callers left.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve, outcomes)

    def _resolve(self, outcomes: Sequence[WriteOutcome]) -> None:
        """In the event loop."""
        _resolve(outcomes)
        if self._watcher is None:
            return
        failed = next((each.error for each in outcomes if isinstance(each.error, StoreError)), None)
        if failed is not None:
            self._failing = True
            self._watcher.failed(failed)
        elif self._failing and any(outcome.kept for outcome in outcomes):
            self._failing = False
            self._watcher.worked()

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _found_no_space(outcome: WriteOutcome) -> bool:
    return isinstance(outcome.error, StoreFullError)


def _resolve(outcomes: Sequence[WriteOutcome]) -> None:
    for future, answer, error, _ in outcomes:
        if future.done():
            continue  # the caller was cancelled
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)
