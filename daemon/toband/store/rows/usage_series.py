"""What attempts used over time: one row per attempt, replaced as the series grows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from toband.domain.run_model import Sample, Usage
from toband.store.sql.columns import from_micros, to_micros
from toband.store.sql.tables import process_executions, process_usage
from toband.store.sql.writer import Session


def save(usage: Mapping[str, Usage]) -> Callable[[Session], None]:
    rows = {attempt_id: _packed(found) for attempt_id, found in usage.items()}

    def operation(session: Session) -> None:
        wanted = list(rows)
        ids = process_executions.c.id
        known = session.connection.execute(select(ids).where(ids.in_(wanted))).scalars().all()
        table = process_usage
        session.connection.execute(delete(table).where(table.c.attempt_id.in_(wanted)))
        if known:
            session.connection.execute(insert(table), [{"attempt_id": one, "usage": rows[one]} for one in known])

    return operation


def read(connection: Connection, attempt_ids: Collection[str]) -> Mapping[str, Usage]:
    table = process_usage
    query = select(table.c.attempt_id, table.c.usage).where(table.c.attempt_id.in_(attempt_ids))
    return {attempt_id: _unpacked(packed) for attempt_id, packed in connection.execute(query)}


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
