"""The one thread that writes, and group commit.

An operation is a function that gets a Session and answers a value. Operations that queued up while a commit ran share
the next one: each stands in a savepoint of its own, so that one that fails or is refused takes back only itself, and
no answer is given before the commit that holds it. When nothing is queued an operation is begun at once.
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
from toband.ports import StoreError, StoreFullError, StoreTakenOverError, StoreWatcher
from toband.store.sql import ownership
from toband.store.sql.database import Database
from toband.store.sql.errors import failure, outward
from toband.store.sql.statements import Statement

T = TypeVar("T")

MAX_BATCH = 256
# A daemon that was stopped in the middle of a transaction must not keep others from taking the database over.
_IDLE_WITHIN = "15s"
_EPOCH = "SELECT epoch FROM ownership"
_CREATION_LOCK = 0x746F62616E02

Row = Mapping[str, Any]


class Job(NamedTuple):
    operation: Callable[[Session], Any]
    future: asyncio.Future[Any]


class Outcome(NamedTuple):
    future: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None
    kept: bool = False


class Undo(Exception):  # noqa: N818 - an answer, not an error
    """Raised by an operation: takes back what it wrote and gives this answer."""

    def __init__(self, answer: object) -> None:
        super().__init__(answer)
        self.answer = answer


class Session:
    """The writer's connection, as operations see it. Its transactions are begun and ended by the writer alone.

    `connection` is for statements of SQLAlchemy. `run`, `run_many` and `fetch` hand text and raw values straight to the
    driver, which is several times faster.

    With an `epoch`, every transaction makes sure that the claim of that epoch is still the last one; until it ends,
    no other daemon can claim the database.
    """

    def __init__(self, database: Database, epoch: int | None = None) -> None:
        self._sqlite = database.kind == "sqlite"
        self._epoch = epoch
        self.connection: Connection = database.writer.connect()
        driver = self.connection.connection.driver_connection
        assert driver is not None
        self._cursor = driver.cursor()
        self._begin = "BEGIN IMMEDIATE" if self._sqlite else "BEGIN"
        if not self._sqlite and epoch is not None:
            # In one message. The lock on the row makes a claim wait for the end of the transaction.
            self._begin += f"; {_EPOCH} FOR SHARE"
        if not self._sqlite:
            self._cursor.execute(f"SET idle_in_transaction_session_timeout TO '{_IDLE_WITHIN}'")

    def run(self, statement: Statement, row: Row) -> int:
        """How many rows it concerned."""
        self._cursor.execute(statement.sql, statement.bind(row))
        return cast(int, self._cursor.rowcount)

    def run_many(self, statement: Statement, rows: Sequence[Row]) -> int:
        """How many rows it concerned in all."""
        if len(rows) == 1:
            return self.run(statement, rows[0])
        self._cursor.executemany(statement.sql, list(map(statement.bind, rows)))
        return cast(int, self._cursor.rowcount)

    def fetch(self, statement: Statement, row: Row) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement.sql, statement.bind(row))
        return cast("list[tuple[Any, ...]]", self._cursor.fetchall())

    def lock_creation(self) -> None:
        """From here to the end of the transaction nobody else decides on what exists and then creates.

        In SQLite a transaction that writes is alone anyway.
        """
        if not self._sqlite:
            self._cursor.execute(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")

    def begin(self) -> None:
        """Raises StoreTakenOverError; no transaction is open then."""
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
            # PostgreSQL answers the COMMIT of a transaction that has failed with a friendly ROLLBACK.
            raise StoreError("the transaction was rolled back")

    def close(self) -> None:
        """Ends the connection, whatever state it is in; what was not committed is gone."""
        if self._sqlite:
            # Closed with a transaction or a statement open, it would live on unseen and keep its lock.
            with suppress(sqlite3.Error):
                self._cursor.execute("ROLLBACK")
            with suppress(sqlite3.Error):
                self._cursor.close()
        with suppress(exc.SQLAlchemyError):
            self.connection.invalidate()
            self.connection.close()


class Writer:
    """Owns the thread. `start` and `close` once each, from the event loop that calls `do`."""

    def __init__(self, database: Database, watcher: StoreWatcher | None = None, epoch: int | None = None) -> None:
        self._database = database
        self._watcher = watcher
        self._epoch = epoch
        self._failing = False
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._session: Session | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def do(self, operation: Callable[[Session], T]) -> T:
        """What the operation answered, once it is on disk. Raises what it raised, or StoreError.

        Giving up on the answer does not take the operation back.
        """
        if self._closed:
            raise StoreError("cannot write to the database: it is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(Job(operation, future))
        return await future

    def close(self) -> None:
        """Takes nothing new. What is queued is still done; `join` waits for that."""
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

    def _commit_at_last(self, jobs: Sequence[Job]) -> list[Outcome]:
        """A full disk is not the end: there is room in the log, or ballast to throw off, and the same is tried again.

        It is tried here and at once, before whoever filled the disk takes that room too.
        """
        outcomes = self._commit(jobs)
        # The disk of a server is its own.
        if self._watcher is None or self._database.kind != "sqlite":
            return outcomes
        room = True
        while room and any(map(_found_no_space, outcomes)):
            outcomes = self._after_checkpoint(jobs, outcomes)
            room = not any(map(_found_no_space, outcomes)) or self._watcher.make_room()
        return outcomes

    def _after_checkpoint(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """What is in its place already need not be kept twice: the log is written from its beginning again."""
        with suppress(Exception):
            self._database.checkpoint()
        # Those that got through are on disk; only the others are done again.
        places = [index for index, outcome in enumerate(outcomes) if _found_no_space(outcome)]
        again = self._commit([jobs[index] for index in places])
        done = list(outcomes)
        for index, outcome in zip(places, again, strict=True):
            done[index] = outcome
        return done

    def _commit(self, jobs: Sequence[Job]) -> list[Outcome]:
        shared = len(jobs) > 1
        try:
            session = self._begin()
            outcomes = [self._run(session, job, shared) for job in jobs]
            if any(outcome.kept for outcome in outcomes):
                failpoints.hit("store.before_commit")
                session.commit()
                # No answer for what went to a file that is not there any more.
                self._database.check_files()
                failpoints.hit("store.after_commit")
            elif shared:
                session.rollback()
        except Exception as error:
            self._drop()
            failed = failure("cannot write to the database", error)
            return [Outcome(job.future, error=type(failed)(str(failed))) for job in jobs]
        return outcomes

    def _begin(self) -> Session:
        self._database.check_files()
        if self._session is not None:
            try:
                self._session.begin()
            except StoreTakenOverError:
                raise
            except Exception:
                # The server may have dropped an idle connection. Nothing was written yet: a new one may do it.
                self._drop()
            else:
                return self._session
        self._session = Session(self._database, self._epoch)
        self._session.begin()
        return self._session

    def _run(self, session: Session, job: Job, shared: bool) -> Outcome:
        """Raises when the transaction as a whole is lost."""
        if shared:
            session.savepoint()
        try:
            answer = job.operation(session)
        except Exception as error:
            try:
                if shared:
                    session.rollback_to_savepoint()
                else:
                    session.rollback()
            except Exception:
                raise error from None
            if isinstance(error, Undo):
                return Outcome(job.future, error.answer)
            doing = "cannot write to the database"
            return Outcome(job.future, error=outward(doing, error, self._database.error))
        if shared:
            session.release()
        return Outcome(job.future, answer, kept=True)

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve, outcomes)

    def _resolve(self, outcomes: Sequence[Outcome]) -> None:
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


def _found_no_space(outcome: Outcome) -> bool:
    return isinstance(outcome.error, StoreFullError)


def _resolve(outcomes: Sequence[Outcome]) -> None:
    for future, answer, error, _ in outcomes:
        if future.done():
            continue  # whoever asked has gone
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)
