"""Which runs go and which stay, on a real database and real directories."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from doubles.clock import Clock
from doubles.conditions import Conditions
from helpers.wait import wait_for
from toban.definition import parse
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_model import Run, RunState, StepRun, StepState
from toband.engine.retention.clock_trust import ClockTrust
from toband.engine.retention.collector import RetentionCollector
from toband.engine.retention.retention_policy import Collected, RetentionRules
from toband.ports import (
    HealthStatus,
    LogKind,
    RunChange,
    StoreError,
    StoreFullError,
    UpdateResult,
    WorkflowText,
)
from toband.store import SqlStore
from toband.supervise.files.run_files import RunFiles
from toband.supervise.host.run_archive import MARK, RunArchive
from toband.supervise.shim import frames
from toband.supervise.shim.attempt_file import AttemptFile, claim

NOW = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@dataclass
class World:
    """A database and the directories that belong to it."""

    store: SqlStore
    files: RunFiles
    archive: RunArchive
    clock: Clock
    conditions: Conditions

    def __post_init__(self) -> None:
        self._count = itertools.count(1)

    def retention(self, **rules: Any) -> RetentionCollector:
        # The runs are of days ago, by a clock that is right.
        trust = ClockTrust(Clock(self.clock.at), lambda: 0.0)
        trust.look(None)
        return RetentionCollector(
            store=self.store,
            archive=self.archive,
            clock=self.clock,
            rules=RetentionRules(**rules),
            conditions=self.conditions,
            trust=trust,
            first_pass=0,
            passes=0.01,
            log_checks=0.01,
        )

    async def workflow(self, name: str, fields: str = "", update: bool = False) -> None:
        source = f"name: {name}\ndescription: d\n{fields}\nsteps: [{{name: s, run: 'true'}}]\n"
        (document,) = parse(source).documents
        assert document.workflow is not None
        text = WorkflowText(
            name=name,
            title="",
            description="",
            labels={},
            enabled=True,
            source=source,
            parsed=document.workflow.to_dict(),
            base_dir="",
        )
        if update:
            await self.store.update_workflow(text, at=NOW)
        else:
            await self.store.create_workflow(text, at=NOW)

    async def run(
        self,
        workflow: str,
        *,
        ago: timedelta = timedelta(hours=2),
        size: int = 0,
        log: bytes = b"",
        active: bool = False,
    ) -> Run:
        """Created and ended that long ago, with a directory of about that size."""
        at = self.clock.now() - ago
        digits = f"{int(at.timestamp() * 1000):012x}"
        run_id = f"{digits[:8]}-{digits[8:]}-7000-8000-{next(self._count):012x}"
        run, _ = await self.store.create_run(
            Run(
                id=run_id,
                workflow=workflow,
                version=1,
                created_at=at,
                params={},
                total_steps=1,
                steps={"s": StepRun(id="s", index=0)},
            ),
            max_active=None,
        )
        self.files.prepare(run.id, {})
        if size:
            path = f"{self.files.work(run.id)}/data"
            Path(path).write_bytes(os.urandom(size))  # noqa: ASYNC240
        attempt = Attempt(
            id=f"a-{run_id}",
            run_id=run_id,
            step="s",
            number=1,
            ordinal=0,
            token=f"{run_id[-8:]}",
            state=AttemptState.STARTING,
            created_at=at,
        )
        step = replace(run.steps["s"], state=StepState.RUNNING, attempts=1, attempt=attempt)
        run = await self._save(
            run,
            replace(run, state=RunState.RUNNING, started_at=at, launches=1, steps={"s": step}),
        )
        if log:
            self.write_log(attempt, log)
        if active:
            return run
        attempt = replace(attempt, state=AttemptState.COMPLETED, finished_at=at, pid=1)
        step = replace(step, state=StepState.SUCCEEDED, attempt=attempt, finished_at=at)
        ended = replace(run, state=RunState.SUCCEEDED, finished_at=at, steps={"s": step})
        return await self._save(run, ended)

    async def _save(self, before: Run, after: Run) -> Run:
        after = replace(after, sequence=before.sequence + 1)
        change = RunChange(before=before, after=after, at=NOW, event="test")
        assert await self.store.save(change) is UpdateResult.UPDATED
        return after

    def write_log(self, attempt: Attempt, data: bytes) -> None:
        facts = {"format": frames.FORMAT, "seal": "s"}
        directory = self.files.attempts(attempt.run_id)
        fd = claim(directory, self.files.log_name(attempt), facts)
        assert fd is not None
        file = AttemptFile(fd)
        file.append(int(LogKind.STDOUT), data)
        file.finish({"seal": "s"})
        os.close(fd)

    async def left(self) -> set[str]:
        """Runs that are there; both sides agree on them."""
        stored = {run.id for run in await self.store.list_runs(limit=10_000)}
        assert stored == set(self.directories())
        return stored

    def directories(self) -> list[str]:
        return [name for name in os.listdir(self.files.root) if not name.startswith(".")]


@pytest.fixture
async def world(tmp_path: Path, store: SqlStore) -> AsyncIterator[World]:
    files = RunFiles(str(tmp_path / "runs"))
    os.makedirs(files.root)
    archive = RunArchive(files)
    yield World(store, files, archive, Clock(NOW), Conditions(HealthStatus.DEGRADED))
    await archive.close()


def removed(done: Collected) -> list[str]:
    return [each.run.id for each in done.runs]


def ids(*runs: Run) -> set[str]:
    return {run.id for run in runs}


async def test_what_is_too_old_goes(world: World) -> None:
    await world.workflow("a")
    await world.workflow("b")
    old = [await world.run("a", ago=days * DAY) for days in (90, 40, 31)]
    kept = [await world.run("a", ago=days * DAY) for days in (29, 1)]
    only = await world.run("b", ago=400 * DAY)
    running = await world.run("a", ago=500 * DAY, active=True)
    retention = world.retention(age=30 * 86400.0)

    would = await retention.collect(dry_run=True)
    assert removed(would) == [run.id for run in old]
    assert {each.reason for each in would.runs} == {"ended more than 30d ago"}
    assert len(await world.left()) == 7

    done = await retention.collect()
    assert removed(done) == removed(would)
    assert (done.run_count, done.bytes) == (would.run_count, would.bytes)
    assert await world.left() == ids(*kept, only, running)
    again = await retention.collect()
    assert (again.run_count, again.bytes, again.strays) == (0, 0, 0)


async def test_only_the_newest_are_kept(world: World) -> None:
    await world.workflow("a")
    await world.workflow("b")
    a = [await world.run("a") for _ in range(5)]
    b = [await world.run("b") for _ in range(2)]
    done = await world.retention(runs=3).collect()
    assert removed(done) == [run.id for run in a[:2]]
    assert {each.reason for each in done.runs} == {"more than 3 runs of its workflow"}
    assert await world.left() == ids(*a[2:], *b)
    assert (await world.run("a")).number == 6


async def test_a_workflow_says_itself_what_is_kept(world: World) -> None:
    await world.workflow("a", "retention: {runs: 1}")
    await world.workflow("b", "retention: {age: 1d}")
    await world.workflow("c")
    for name in "abc":
        for _ in range(4):
            await world.run(name, ago=2 * DAY)
    retention = world.retention(runs=3, age=100 * 86400.0)
    done = await retention.collect()
    by_workflow = {name: [e.run.number for e in done.runs if e.run.workflow == name] for name in "abc"}
    # Where it says nothing, the daemon's own settings hold.
    assert by_workflow == {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1]}
    await world.workflow("c", "retention: {runs: 2}", update=True)
    assert [each.run.number for each in (await retention.collect()).runs] == [2]


async def test_runs_of_a_deleted_workflow_go_by_the_daemons_settings(world: World) -> None:
    await world.workflow("a", "retention: {runs: 3}")
    for _ in range(3):
        await world.run("a")
    await world.store.delete_workflow("a", at=NOW)
    assert (await world.retention(runs=2).collect()).run_count == 1


async def test_bytes_of_a_workflow_and_in_all(world: World) -> None:
    await world.workflow("a")
    await world.workflow("b", "retention: {bytes: 4MiB}")
    mib = 1 << 20
    a = [await world.run("a", size=mib) for _ in range(3)]
    b = [await world.run("b", size=mib) for _ in range(6)]
    # Each has a few blocks beside its file, so that one less than the number fits.
    rules: dict[str, Any] = {"bytes": 100 * mib, "total_bytes": 5 * mib}
    would = await world.retention(**rules).collect(dry_run=True)
    done = await world.retention(**rules).collect()
    assert removed(done) == removed(would)
    assert done.bytes == would.bytes >= 5 * mib
    reasons = {each.run.id: each.reason for each in done.runs}
    assert reasons == {
        **{run.id: "the runs of its workflow take more than 4MiB" for run in b[:3]},
        **{run.id: "all runs take more than 5MiB" for run in a[:2]},
    }
    assert await world.left() == ids(a[2], *b[3:])
    stored = await world.store.stored_size()
    assert 4 * mib < stored.bytes < 5 * mib


async def test_sizes_count_before_they_are_kept_for_good(world: World) -> None:
    """Runs that ended a moment ago are not compressed and measured yet, but they take their place."""
    await world.workflow("a")
    runs = [await world.run("a", size=1 << 20, ago=timedelta(0)) for _ in range(4)]
    retention = world.retention(total_bytes=5 << 19, compress_after=3600.0)
    done = await retention.collect()
    assert removed(done) == [run.id for run in runs[:2]]
    assert await world.store.stored_size() == replace(await world.store.stored_size(), runs=2, bytes=0, log_bytes=0)
    world.clock.at += DAY
    await retention.collect()
    assert (await world.store.stored_size()).bytes > 2 << 20


async def test_runs_in_all(world: World) -> None:
    for name in "abc":
        await world.workflow(name)
    runs = [await world.run(name) for name in "abcabcabc"]
    done = await world.retention(total_runs=4).collect()
    assert {each.reason for each in done.runs} == {"more than 4 runs in all"}
    assert await world.left() == ids(*runs[5:])
    # The last of each workflow stays whatever the limit.
    await world.retention(total_runs=1).collect()
    assert await world.left() == ids(*runs[6:])


async def test_nothing_is_limited_by_none(world: World) -> None:
    await world.workflow("a")
    runs = [await world.run("a", ago=1000 * DAY, size=1000) for _ in range(5)]
    done = await world.retention().collect()
    assert (done.run_count, done.strays, done.compressed_logs) == (0, 0, 0)
    assert await world.left() == ids(*runs)


async def test_logs_are_compressed_after_a_while(world: World) -> None:
    await world.workflow("a")
    text = b"a line of a log\n" * 10_000
    early = await world.run("a", log=text, ago=timedelta(seconds=700))
    late = await world.run("a", log=text, ago=timedelta(seconds=500))
    active = await world.run("a", log=text, ago=DAY, active=True)
    retention = world.retention(compress_after=600.0)

    def logs(run: Run) -> list[str]:
        return os.listdir(world.files.attempts(run.id))

    would = await retention.collect(dry_run=True)
    assert would.compressed_logs == 1
    assert (await world.store.stored_size()).bytes == 0
    assert (await retention.collect()).compressed_logs == 1
    assert logs(early)[0].endswith(".log.gz")
    for run in (late, active):
        assert logs(run)[0].endswith(".log")
    world.clock.at += timedelta(seconds=200)
    assert (await retention.collect()).compressed_logs == 1
    assert logs(late)[0].endswith(".log.gz")
    assert logs(active)[0].endswith(".log")
    assert (await retention.collect()).compressed_logs == 0
    assert (await world.store.stored_size()).log_bytes < 50_000
    assert await world.store.unmeasured_runs() == []


async def test_a_log_that_cannot_be_compressed_is_tried_again(world: World) -> None:
    await world.workflow("a")
    first = await world.run("a", log=b"x" * 10_000)
    second = await world.run("a", log=b"x" * 10_000)
    # A directory stands in the way.
    (name,) = os.listdir(world.files.attempts(first.id))
    os.makedirs(f"{world.files.attempts(first.id)}/{name}.gz/x")
    retention = world.retention(compress_after=1.0)
    assert (await retention.collect()).compressed_logs == 1
    assert [run.id for run in await world.store.unmeasured_runs()] == [first.id]
    assert second.id not in [run.id for run in await world.store.unmeasured_runs()]
    await world.archive.remove(f"{first.id}/attempts/{name}.gz")
    assert (await retention.collect()).compressed_logs == 1


async def test_what_a_crash_left_is_collected(world: World) -> None:
    await world.workflow("a")
    run = await world.run("a", ago=10 * DAY)
    kept = await world.run("a")
    # Marked, and its rows gone: the crash came before its directory went.
    assert await world.archive.condemn([run.id]) == [run.id]
    assert await world.store.delete_runs([run.id]) == [run.id]
    # Marked only: the crash came before its rows went. It is still there, and kept.
    await world.archive.condemn([kept.id])
    would = await world.retention().collect(dry_run=True)
    assert (would.strays, would.run_count) == (1, 0)
    assert len(world.directories()) == 2
    done = await world.retention().collect()
    assert (done.strays, done.bytes) == (1, would.bytes)
    assert await world.left() == {kept.id}


async def test_directories_that_nobody_knows_go_only_when_asked_for(world: World) -> None:
    """Whoever names another database by mistake must not lose his logs within a minute."""
    await world.workflow("a")
    kept = await world.run("a")
    unknown = "0192f3a4-5b6c-7d8e-9f01-23456789abcd"
    young = "0192f3a4-5b6c-7d8e-9f01-23456789abce"
    for name in (unknown, young, "not-a-run"):
        os.makedirs(f"{world.files.root}/{name}/work")
    long_ago = (NOW - DAY).timestamp()
    soon = NOW.timestamp()
    os.utime(f"{world.files.root}/{unknown}", (long_ago, long_ago))
    os.utime(f"{world.files.root}/{young}", (soon, soon))
    retention = world.retention()
    task = asyncio.ensure_future(retention.run())
    await wait_for(lambda: retention._passed > 2, "no passes")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(world.directories()) == 4
    assert (await retention.collect()).strays == 1
    assert set(world.directories()) == {kept.id, young, "not-a-run"}


async def test_a_directory_that_will_not_go_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.workflow("a")
    runs = [await world.run("a", ago=9 * DAY) for _ in range(3)]
    remove = world.archive.remove

    async def stubborn(run_id: str) -> None:
        if run_id == runs[0].id:
            raise PermissionError(13, "not yours")
        await remove(run_id)

    monkeypatch.setattr(world.archive, "remove", stubborn)
    retention = world.retention(age=86400.0)
    done = await retention.collect()
    assert (done.run_count, done.strays) == (2, 0)
    assert set(world.directories()) == ids(runs[0], runs[2])
    assert MARK in os.listdir(world.files.run(runs[0].id))
    monkeypatch.undo()
    done = await retention.collect()
    assert (done.run_count, done.strays) == (0, 1)
    assert await world.left() == ids(runs[2])


async def test_a_run_that_cannot_be_marked_stays_and_does_not_hold_up_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.workflow("a")
    runs = [await world.run("a", ago=9 * DAY) for _ in range(4)]
    condemn = world.archive.condemn

    async def picky(run_ids: Any) -> Any:
        return await condemn([each for each in run_ids if each != runs[1].id])

    monkeypatch.setattr(world.archive, "condemn", picky)
    done = await world.retention(age=86400.0).collect()
    assert removed(done) == [runs[0].id, runs[2].id]
    assert await world.left() == ids(runs[1], runs[3])


class FullStore:
    """A database that has no space to write until something was removed below a directory."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = Path(world.files.root)
        self._before = set(self._root.iterdir())
        for name in ("delete_runs", "save_sizes"):
            monkeypatch.setattr(world.store, name, self._full_at_first(getattr(world.store, name)))

    def _full_at_first(self, call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
        async def tried(given: Any) -> Any:
            if self._before <= set(self._root.iterdir()):
                raise StoreFullError("database or disk is full")
            return await call(given)

        return tried


async def test_a_run_can_be_removed_when_its_deletion_finds_no_space(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.workflow("a")
    run, active = await world.run("a"), await world.run("a", active=True)
    FullStore(world, monkeypatch)
    retention = world.retention()
    with pytest.raises(StoreFullError):
        await retention.remove(active.id)
    assert Path(world.files.run(active.id)).exists()  # noqa: ASYNC240
    assert await retention.remove(run.id)
    assert await world.left() == ids(active)


async def test_sizes_that_cannot_be_kept_still_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.workflow("a")
    runs = [await world.run("a", size=1 << 20) for _ in range(3)]
    FullStore(world, monkeypatch)
    done = await world.retention(total_bytes=1 << 20).collect()
    assert [each.run.id for each in done.runs] == [run.id for run in runs[:2]]
    assert await world.left() == ids(runs[2])


async def test_a_directory_that_cannot_be_marked_for_want_of_space_goes_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.workflow("a")
    run = await world.run("a")

    def full(path: str, *given: Any, **named: Any) -> int:
        if path.endswith(MARK):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, *given, **named)

    opened = os.open
    monkeypatch.setattr("toband.supervise.host.run_archive.os.open", full)
    assert await world.retention().remove(run.id)
    assert await world.left() == ids()


async def test_many_runs_go_in_small_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.workflow("a")
    for _ in range(30):
        await world.run("a")
    monkeypatch.setattr("toband.engine.retention.collector.PLANNED", 12)
    monkeypatch.setattr("toband.engine.retention.removal_plan.ROWS_AT_ONCE", 40)
    monkeypatch.setattr("toband.engine.retention.removal_plan.PAGE", 5)
    monkeypatch.setattr("toband.engine.retention.retention_policy.LISTED", 10)
    batches = []
    delete = world.store.delete_runs

    async def counted(run_ids: Any) -> Any:
        batches.append(len(run_ids))
        return await delete(run_ids)

    monkeypatch.setattr(world.store, "delete_runs", counted)
    would = await world.retention(runs=2).collect(dry_run=True)
    assert (would.run_count, len(would.runs), batches) == (28, 10, [])
    done = await world.retention(runs=2).collect()
    assert (done.run_count, len(done.runs)) == (28, 10)
    assert removed(done) == removed(would)
    assert max(batches) <= 40 // 7
    assert len(await world.left()) == 2


async def test_passes_come_by_themselves_and_trouble_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.workflow("a")
    runs = [await world.run("a", ago=9 * DAY) for _ in range(2)]

    async def failing() -> Any:
        raise StoreError("cannot read the database: it is broken")

    monkeypatch.setattr(world.store, "run_spans", failing)
    retention = world.retention(age=86400.0)
    task = asyncio.ensure_future(retention.run())
    await wait_for(lambda: "it is broken" in world.conditions.now.get("retention", ""), "not told")
    monkeypatch.undo()
    await wait_for(lambda: not world.conditions.now, "not well again")
    await wait_for(lambda: set(world.directories()) == ids(runs[1]), "not removed")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_one_pass_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.workflow("a")
    for _ in range(20):
        await world.run("a")
    at_once: list[int] = []
    inside = 0
    remove = world.archive.remove

    async def watched(run_id: str) -> None:
        nonlocal inside
        inside += 1
        at_once.append(inside)
        await remove(run_id)
        inside -= 1

    monkeypatch.setattr(world.archive, "remove", watched)
    retention = world.retention(runs=1)
    first, second, third = await asyncio.gather(
        retention.collect(), retention.collect(dry_run=True), retention.collect()
    )
    assert first.run_count == 19
    assert (second.run_count, third.run_count) == (0, 0)
    assert set(at_once) == {1}


async def test_a_pass_goes_on_when_whoever_asked_has_gone(world: World) -> None:
    await world.workflow("a")
    for _ in range(10):
        await world.run("a")
    retention = world.retention(runs=1)
    task = asyncio.ensure_future(retention.collect())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await wait_for(lambda: len(world.directories()) == 1, "not finished")


def full(world: World) -> Callable[[], bool]:
    return lambda: os.path.exists(world.files.logs_full)


async def test_all_logs_together_have_a_limit(world: World) -> None:
    await world.workflow("a")
    old = await world.run("a", log=b"x" * 300_000, ago=DAY)
    await world.retention().collect()  # measured for good
    await world.run("a", log=b"x" * 300_000, ago=timedelta(0))
    active = await world.run("a", ago=timedelta(0), active=True)
    # What steps write into their own directories is no log.
    Path(f"{world.files.work(active.id)}/data").write_bytes(b"x" * 5_000_000)  # noqa: ASYNC240
    retention = world.retention(total_logs=700_000, compress_after=3600.0)
    task = asyncio.ensure_future(retention.run())
    limit = retention._log_limit
    assert limit is not None
    await wait_for(lambda: limit.full is False, "never checked")
    assert not full(world)()
    attempt = (await world.store.run_attempts(active.id))[0]
    world.write_log(attempt, b"x" * 200_000)
    await wait_for(full(world), "not full")
    await wait_for(lambda: "limits.total_logs" in world.conditions.now.get("logs", ""), "not told")
    await world.store.delete_runs([old.id])
    await wait_for(lambda: not full(world)(), "still full")
    await wait_for(lambda: not world.conditions.now, "not well again")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_without_a_limit_nothing_is_held_back(world: World) -> None:
    await world.archive.hold_output(True)
    task = asyncio.ensure_future(world.retention().run())
    await wait_for(lambda: not full(world)(), "still full")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
