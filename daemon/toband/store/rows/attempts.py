"""Attempts, the processes that were started for runs, and their resource use over time.

A run's transition writes attempts. Each attempt has one row of usage, replaced as its series grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, literal_column, select, text

from toband.domain.attempt_model import Attempt, AttemptState, Sample, Usage
from toband.domain.identity import Visible
from toband.store.sql import ownership
from toband.store.sql.attempt_codec import ATTEMPT_COLUMNS, attempt_from
from toband.store.sql.columns import from_micros, to_micros
from toband.store.sql.keyset_paging import unindexed
from toband.store.sql.open_database import OpenDatabase, reading
from toband.store.sql.tables import ACTIVE_RUNS, BAD_ATTEMPTS, LIVE_ATTEMPTS, NOT_WELL, among, process_usage, runs
from toband.store.sql.tables import process_executions as table
from toband.store.sql.visible_rows import few_names, only_visible
from toband.store.sql.writer import WriteSession


class SqlAttempts(OpenDatabase):
    """`toband.ports.AttemptStore`."""

    @reading
    def list_attempts(
        self,
        connection: Connection,
        *,
        run_id: str = "",
        step: str = "",
        workflow: str = "",
        job: str = "",
        states: Sequence[AttemptState] = (),
        after: str = "",
        before: str = "",
        limit: int = 100,
        visible: Visible = None,
    ) -> Sequence[Attempt]:
        given = {"run_id": run_id, "job": job, "workflow": workflow, "step": step}
        wanted = {name: value for name, value in given.items() if value}
        query = only_visible(select(table), connection, table.c.workflow, visible)
        if after:
            query = query.where(table.c.id > after)
        if before:
            query = query.where(table.c.id < before)
        names = None if wanted else few_names(connection, visible)
        each_of = [wanted] if names is None else [{"workflow": name} for name in names]
        pages = [_page(query, of, state) for of in each_of for state in dict.fromkeys(states) or [None]]
        found = [
            attempt for page in pages for attempt in _all(connection, page.order_by(table.c.id.desc()).limit(limit))
        ]
        return sorted(found, key=attrgetter("id"), reverse=True)[:limit]

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


def _page(query: Select[Any], wanted: Mapping[str, str], state: AttemptState | None) -> Select[Any]:
    """Those with these values, and in that state. The first value, which few attempts have, chooses the index."""
    first = next(iter(wanted), "")
    if state in LIVE_ATTEMPTS and first != "run_id":
        # Few, and all of them in active runs.
        query = query.where(table.c.run_id.in_(select(runs.c.id).where(among(runs.c.state, ACTIVE_RUNS))))
    bad = state in BAD_ATTEMPTS and first != "run_id"
    if bad:
        query = query.where(text(NOT_WELL))
    if first == "job":
        query = query.where(table.c.job != literal_column("''"))
    by_state_alone = bad and first == "step"
    for name, value in wanted.items():
        column = table.c[name]
        query = query.where((column if name == first and not by_state_alone else unindexed(column)) == value)
    if state is not None:
        query = query.where(table.c.state == state if bad else unindexed(table.c.state) == state.value)
    return query


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
