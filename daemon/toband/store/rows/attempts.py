"""Attempts, the processes that were started for runs, and their resource use over time.

A run's transition writes attempts. Each attempt has one row of usage, replaced as its series grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select

from toband.domain.run_model import Attempt, Sample, Usage
from toband.store.sql import ownership
from toband.store.sql.columns import from_micros, to_micros
from toband.store.sql.open_database import OpenDatabase, reading
from toband.store.sql.row_codec import ATTEMPT_COLUMNS, attempt_from
from toband.store.sql.tables import process_executions as table
from toband.store.sql.tables import process_usage
from toband.store.sql.writer import WriteSession


class SqlAttempts(OpenDatabase):
    """`toband.ports.AttemptStore`."""

    @reading
    def list_attempts(
        self, connection: Connection, *, run_id: str = "", step: str = "", before: str = "", limit: int = 100
    ) -> Sequence[Attempt]:
        query = select(table)
        if run_id:
            query = query.where(table.c.run_id == run_id)
        if step:
            query = query.where(table.c.step == step)
        if run_id and step:
            # Otherwise SQLite may walk the steps of that name in all other runs.
            query = query.with_hint(table, "INDEXED BY ix_process_executions_run_id_id", "sqlite")
        if before:
            query = query.where(table.c.id < before)
        return _all(connection, query.order_by(table.c.id.desc()).limit(limit))

    @reading
    def run_attempts(
        self, connection: Connection, run_id: str, *, step: str = "", from_ordinal: int = 0, limit: int = 500
    ) -> Sequence[Attempt]:
        query = select(table).where(table.c.run_id == run_id, table.c.ordinal >= from_ordinal)
        if step:
            query = query.where(table.c.step == step)
        return _all(connection, query.order_by(table.c.ordinal).limit(limit))

    @reading
    def get_attempt(self, connection: Connection, attempt_id: str) -> Attempt | None:
        found = _all(connection, select(table).where(table.c.id == attempt_id))
        return found[0] if found else None

    @reading
    def abandoned_attempts(self, connection: Connection) -> frozenset[str]:
        return ownership.read_abandoned(connection)

    async def save_usage(self, found: Mapping[str, Usage]) -> None:
        rows = {attempt_id: _packed(usage) for attempt_id, usage in found.items()}
        ids = list(rows)

        def operation(session: WriteSession) -> None:
            known = session.connection.execute(select(table.c.id).where(table.c.id.in_(ids))).scalars().all()
            session.connection.execute(delete(process_usage).where(process_usage.c.attempt_id.in_(ids)))
            if known:
                values = [{"attempt_id": each, "usage": rows[each]} for each in known]
                session.connection.execute(insert(process_usage), values)

        await self._write.do(operation)

    @reading
    def usage_of(self, connection: Connection, attempt_ids: Collection[str]) -> Mapping[str, Usage]:
        query = select(process_usage.c.attempt_id, process_usage.c.usage)
        found = connection.execute(query.where(process_usage.c.attempt_id.in_(attempt_ids)))
        return {attempt_id: _unpacked(packed) for attempt_id, packed in found}


def _all(connection: Connection, query: Select[Any]) -> Sequence[Attempt]:
    return [attempt_from(dict(zip(ATTEMPT_COLUMNS, row, strict=True))) for row in connection.execute(query)]


def _packed(usage: Usage) -> dict[str, Any]:
    return {
        "peak_rss": usage.peak_rss_bytes,
        "peak_processes": usage.peak_processes,
        "samples": [
            [
                to_micros(sample.at),
                round(sample.cpu, 3),
                sample.rss_bytes,
                sample.processes,
                sample.read_bytes,
                sample.written_bytes,
            ]
            for sample in usage.samples
        ],
    }


def _unpacked(packed: Mapping[str, Any]) -> Usage:
    return Usage(
        peak_rss_bytes=packed["peak_rss"],
        peak_processes=packed["peak_processes"],
        samples=tuple(
            Sample(
                at=from_micros(at),
                cpu=cpu,
                rss_bytes=rss,
                processes=processes,
                read_bytes=read_bytes,
                written_bytes=written,
            )
            for at, cpu, rss, processes, read_bytes, written in packed["samples"]
        ),
    )
