"""Ownership of the database: one daemon may write at a time.

A claim increments the epoch. Every transaction of the writer compares it, so that a daemon whose database was taken
over writes nothing more, however late it resumes.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import (
    Connection,
    exists,
    false,
    func,
    insert,
    inspect,
    not_,
    select,
    text,
    update,
)

from toband.ports import DatabaseClaim, DatabaseOwner, StoreHeldError, StoreTakenOverError
from toband.store.sql.tables import (
    ACTIVE_RUNS,
    LIVE_ATTEMPTS,
    abandoned_attempts,
    among,
    ownership,
    process_executions,
    runs,
)

_LOCK = 0x746F62616E03
# The previous owner may have a transaction under way; the server ends an idle one: see WriteSession.
_LOCK_WAIT = "60s"
_TAKE_OVER = (
    "if that daemon will not come back, start this one with --take-over: "
    "steps that it left running are then reported as LOST"
)
# Child runs are attempts without a process.
_LIVE = (
    select(process_executions.c.id, process_executions.c.token)
    .select_from(runs.join(process_executions, process_executions.c.run_id == runs.c.id))
    .where(
        among(runs.c.state, ACTIVE_RUNS),
        among(process_executions.c.state, LIVE_ATTEMPTS),
        process_executions.c.child == false(),
    )
)
_KNOWN = exists().where(
    abandoned_attempts.c.attempt_id == process_executions.c.id,
    abandoned_attempts.c.token == process_executions.c.token,
)
_LIVE_COUNT = select(func.count()).select_from(_LIVE.subquery())


class _Held(NamedTuple):
    epoch: int
    owner: DatabaseOwner
    released_at: datetime | None


def examine(connection: Connection, owner: DatabaseOwner) -> None:
    """Raises StoreHeldError if another daemon owns the database. Writes nothing; works with any schema."""
    if inspect(connection).has_table(ownership.name):
        _check(connection, _read(connection), owner)


def claim(connection: Connection, owner: DatabaseOwner, *, take_over: bool) -> DatabaseClaim:
    """Makes the daemon the owner. `connection` is in autocommit mode. Raises StoreHeldError."""
    sqlite = connection.dialect.name == "sqlite"
    connection.execute(text("BEGIN IMMEDIATE" if sqlite else "BEGIN"))
    try:
        if not sqlite:
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        held = _read(connection, lock=True)
        if not take_over:
            _check(connection, held, owner)
        made = _write(connection, held, owner)
        connection.execute(text("COMMIT"))
    except BaseException:
        if not connection.invalidated:
            connection.execute(text("ROLLBACK"))
        raise
    return made


def release(connection: Connection, epoch: int, at: datetime) -> None:
    """Records a clean stop: another installation may claim the database, unless attempts still run."""
    mine = ownership.c.epoch == epoch
    connection.execute(update(ownership).where(mine).values(released_at=at))


def check(connection: Connection, epoch: int) -> None:
    """Raises StoreTakenOverError if another daemon has claimed the database since."""
    held = _read(connection)
    if held is None or held.epoch != epoch:
        raise taken_over(held.owner if held is not None else None)


def current(connection: Connection) -> DatabaseOwner | None:
    held = _read(connection)
    return None if held is None else held.owner


def read_abandoned(connection: Connection) -> frozenset[str]:
    """Tokens of live attempts of an earlier installation."""
    return frozenset(token for _, token in connection.execute(_LIVE.where(_KNOWN)))


def taken_over(by: DatabaseOwner | None) -> StoreTakenOverError:
    whom = f"another toband took it over ({by.described})" if by is not None else "it has no owner"
    return StoreTakenOverError(f"cannot write to the database: {whom}; nothing more is written")


def _read(connection: Connection, *, lock: bool = False) -> _Held | None:
    query = select(ownership)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        return None
    owner = DatabaseOwner(
        installation=row.installation,
        machine=row.machine,
        host=row.host,
        pid=row.pid,
        state_dir=row.state_dir,
        since=row.since,
    )
    return _Held(row.epoch, owner, row.released_at)


def _check(connection: Connection, held: _Held | None, owner: DatabaseOwner) -> None:
    """Allows the same state directory: this daemon has its lock, so the one before is dead. Raises StoreHeldError."""
    if held is None or _same(held.owner, owner):
        return
    if held.released_at is None:
        raise StoreHeldError(
            f"cannot use the database: another toband owns it ({held.owner.described}); "
            f"stop that one first, or, {_TAKE_OVER}"
        )
    live = connection.execute(_LIVE_COUNT).scalar_one()
    if live:
        raise StoreHeldError(
            f"cannot use the database: another toband ({held.owner.described}) was stopped while "
            f"{live} of its steps went on running; start that one again, or, {_TAKE_OVER}"
        )


def _same(before: DatabaseOwner, now: DatabaseOwner) -> bool:
    return (before.installation, before.machine) == (now.installation, now.machine)


def _write(connection: Connection, held: _Held | None, owner: DatabaseOwner) -> DatabaseClaim:
    epoch = held.epoch + 1 if held is not None else 1
    values = {
        "epoch": epoch,
        "installation": owner.installation,
        "machine": owner.machine,
        "host": owner.host,
        "pid": owner.pid,
        "state_dir": owner.state_dir,
        "since": owner.since,
        "released_at": None,
    }
    if held is None:
        connection.execute(insert(ownership).values(id=1, **values))
        return DatabaseClaim(epoch=epoch)
    connection.execute(update(ownership).values(values))
    abandoned = 0
    if held.owner.installation != owner.installation:
        abandoned = abandon(connection)
    return DatabaseClaim(epoch=epoch, previous=held.owner, abandoned=abandoned)


def abandon(connection: Connection) -> int:
    """Marks live attempts, whose files are in the state directory of the previous owner; returns their number."""
    new = _LIVE.where(not_(_KNOWN))
    connection.execute(insert(abandoned_attempts).from_select(["attempt_id", "token"], new))
    return connection.execute(_LIVE_COUNT).scalar_one()
