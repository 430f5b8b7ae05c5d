"""Keeping house: logs of ended runs are compressed, and runs that are no longer kept are removed.

A pass runs now and then, and when it is asked for. It never touches a run that is active, nor the last run of a
workflow. What it removes goes in this order: a mark in the run's directory, its rows, the directory; so that whatever a
crash leaves is known for what it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from toban.definition import Retention as OwnRules
from toban.definition import Workflow, format_duration, format_size
from toband import failpoints
from toband.ports import (
    Archive,
    Clock,
    Conditions,
    EndedRun,
    HealthStatus,
    RunSize,
    Store,
    StoreError,
)

FIRST_PASS = 60.0
PASSES = 300.0
LOG_CHECKS = 10.0
WHOLE_LOOKS = 12
"""Every so many passes all runs are looked through for what was not measured, not only the younger ones."""
TROUBLE_AFTER = 3
"""Passes that fail one after the other before it is told."""
STRAY_AGE = timedelta(hours=1)
LISTED = 1000
PLANNED = 500
"""Runs that are chosen before they are removed and others are chosen."""
ROWS_AT_ONCE = 2000
"""Rows of the database that are removed in one transaction, unless a single run has more."""
MOST = 100_000
"""Runs that a look without removing goes through."""
PAGE = 500

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is kept. Ages are in seconds; None: no limit. The first three are per workflow, which may have its own."""

    age: float | None = None
    runs: int | None = None
    bytes: int | None = None
    total_runs: int | None = None
    total_bytes: int | None = None
    compress_after: float | None = None
    total_logs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A run that went, or would go, and why."""

    run: EndedRun
    bytes: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Collected:
    """What a pass did, or would do. `runs` are the first of all that are counted."""

    runs: list[Removed] = field(default_factory=list)
    run_count: int = 0
    bytes: int = 0
    strays: int = 0
    compressed_logs: int = 0

    def add(self, removed: Removed) -> None:
        self.run_count += 1
        self.bytes += removed.bytes
        if len(self.runs) < LISTED:
            self.runs.append(removed)


class Retention:
    def __init__(
        self,
        *,
        store: Store,
        archive: Archive,
        clock: Clock,
        rules: Rules,
        conditions: Conditions | None = None,
        first_pass: float = FIRST_PASS,
        passes: float = PASSES,
        log_checks: float = LOG_CHECKS,
    ) -> None:
        self._store = store
        self._archive = archive
        self._clock = clock
        self._rules = rules
        self._conditions = conditions
        self._first_pass = first_pass
        self._passes = passes
        self._log_checks = log_checks
        self._busy = asyncio.Lock()
        self._asked: set[asyncio.Task[Collected]] = set()
        self._failed = 0
        self._passed = 0
        # What runs take that have ended and are not measured for good yet.
        self._fresh: dict[str, tuple[EndedRun, RunSize]] = {}
        # All ended runs with an id below this one are measured.
        self._measured_to = ""
        self._log_bytes: dict[str, int] = {}
        self._own: dict[str, tuple[int, OwnRules | None]] = {}
        self._full: bool | None = None
        self._checking = asyncio.Lock()

    # -- life

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_now_and_then())
                if self._rules.total_logs is not None:
                    group.create_task(self._check_logs_now_and_then())
                else:
                    # One that was set before may have left it on.
                    with contextlib.suppress(OSError):
                        await self._archive.hold_output(False)
        finally:
            for task in self._asked:
                task.cancel()
            await asyncio.gather(*self._asked, return_exceptions=True)

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """A pass now, behind one that is under way. Raises StoreError, OSError.

        It goes on when whoever asked has gone.
        """
        task = asyncio.get_running_loop().create_task(self._pass(dry_run=dry_run, unknown_too=True))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return await asyncio.shield(task)

    async def _pass_now_and_then(self) -> None:
        await asyncio.sleep(self._first_pass)
        while True:
            try:
                await self._pass()
            except Exception as error:
                self._failed += 1
                told = {} if isinstance(error, (StoreError, OSError)) else {"exc_info": error}
                log.error("cannot keep house", action="retention_failed", error=str(error), **told)
                if self._failed >= TROUBLE_AFTER and self._conditions is not None:
                    detail = f"cannot remove what is no longer kept: {error}"
                    self._conditions.trouble("retention", HealthStatus.DEGRADED, detail)
            else:
                self._failed = 0
                if self._conditions is not None:
                    self._conditions.well("retention")
            await asyncio.sleep(self._passes)

    async def _check_logs_now_and_then(self) -> None:
        while True:
            try:
                await self._check_logs()
            except (StoreError, OSError) as error:
                log.error("cannot add up the logs", action="log_check_failed", error=str(error))
            await asyncio.sleep(self._log_checks)

    # -- one pass

    async def _pass(self, *, dry_run: bool = False, unknown_too: bool = False) -> Collected:
        done = Collected()
        async with self._busy:
            if self._passed % WHOLE_LOOKS == 0:
                self._measured_to = ""
            if dry_run:
                await self._look_through(done)
            else:
                self._passed += 1
                # What goes by age or number is not compressed first; what goes by size is measured first.
                await self._remove(done, by_size=False)
                await self._settle(done)
                await self._remove(done, by_size=True)
            await self._collect_strays(done, dry_run=dry_run, unknown_too=unknown_too)
        if not dry_run and self._rules.total_logs is not None:
            await self._check_logs()
        if not dry_run and (done.run_count or done.strays or done.compressed_logs):
            log.info(
                "kept house",
                action="retention",
                runs=done.run_count,
                bytes=done.bytes,
                strays=done.strays,
                compressed_logs=done.compressed_logs,
            )
        return done

    async def _look_through(self, done: Collected) -> None:
        due = []
        async for run in self._unmeasured():
            if self._due(run):
                due.append(run.id)
            await self._weigh(run)
        plan = _Plan(limit=MOST)
        await self._choose(plan, by_size=True)
        for removed in sorted(plan.chosen.values(), key=lambda each: each.run.id):
            done.add(removed)
        if self._rules.compress_after is not None:
            for run_id in due:
                if run_id not in plan.chosen:
                    done.compressed_logs += await self._archive.compressible(run_id)

    # -- choosing

    async def _choose(self, plan: _Plan, *, by_size: bool) -> None:
        """Oldest first, until the plan is full."""
        now = self._clock.now()
        own = await self._own_rules()
        for name in await self._store.run_workflows():
            rules = _effective(self._rules, own.get(name))
            if rules.age is not None:
                reason = f"ended more than {format_duration(rules.age)} ago"
                before = now - timedelta(seconds=rules.age)
                async for run in self._removable(plan, workflow=name, finished_before=before):
                    plan.add(run, self._bytes(run), reason)
            if rules.runs is not None:
                number = await self._store.kept_number(name, rules.runs)
                reason = f"more than {rules.runs} runs of its workflow"
                if number > 1:
                    async for run in self._removable(plan, workflow=name, number_below=number):
                        plan.add(run, self._bytes(run), reason)
            if rules.bytes is not None and by_size:
                reason = f"the runs of its workflow take more than {format_size(rules.bytes)}"
                stored = (await self._store.stored_size(name)).bytes
                fresh = sum(s.bytes for run, s in self._fresh.values() if run.workflow == name)
                excess = stored + fresh - plan.bytes_of(name) - rules.bytes
                await self._choose_bytes(plan, excess, reason, workflow=name)
            if plan.full:
                return
        rules = self._rules
        if rules.total_runs is not None:
            reason = f"more than {rules.total_runs} runs in all"
            excess = (await self._store.stored_size()).runs - len(plan.chosen) - rules.total_runs
            if excess > 0:
                async for run in self._removable(plan):
                    plan.add(run, self._bytes(run), reason)
                    excess -= 1
                    if excess <= 0:
                        break
        if rules.total_bytes is not None and by_size:
            reason = f"all runs take more than {format_size(rules.total_bytes)}"
            fresh = sum(size.bytes for _, size in self._fresh.values())
            stored = (await self._store.stored_size()).bytes
            excess = stored + fresh - plan.bytes_of() - rules.total_bytes
            await self._choose_bytes(plan, excess, reason)

    async def _choose_bytes(
        self, plan: _Plan, excess: int, reason: str, *, workflow: str = ""
    ) -> None:
        if excess <= 0:
            return
        async for run in self._removable(plan, workflow=workflow):
            size = self._bytes(run)
            if size > 0:
                plan.add(run, size, reason)
                excess -= size
            if excess <= 0:
                return

    async def _removable(self, plan: _Plan, **which: object) -> AsyncIterator[EndedRun]:
        """Those that are not in the plan yet, oldest first, while there is room in it."""
        after = ""
        while not plan.full:
            page = await self._store.removable_runs(after=after, limit=PAGE, **which)  # type: ignore[arg-type]
            for run in page:
                if run.id not in plan.chosen and run.id not in plan.left_out:
                    yield run
                if plan.full:
                    return
            if len(page) < PAGE:
                return
            after = page[-1].id

    async def _own_rules(self) -> dict[str, OwnRules | None]:
        """What workflows say themselves, by name, as they are now."""
        found: dict[str, tuple[int, OwnRules | None]] = {}
        after = ""
        while page := await self._store.list_workflows(after=after, limit=PAGE):
            for workflow in page:
                known = self._own.get(workflow.name)
                if known is None or known[0] != workflow.version:
                    version = await self._store.get_version(workflow.name, workflow.version)
                    parsed = Workflow.from_dict(dict(version.parsed)) if version else None
                    known = (workflow.version, parsed.retention if parsed else None)
                found[workflow.name] = known
            after = page[-1].name
        self._own = found
        return {name: rules for name, (_, rules) in found.items()}

    def _bytes(self, run: EndedRun) -> int:
        if run.size is not None:
            return run.size.bytes
        fresh = self._fresh.get(run.id)
        return fresh[1].bytes if fresh is not None else 0

    # -- removing

    async def remove(self, run_id: str) -> bool:
        """One ended run, because somebody asks for it; whether it went: not what is in use, nor a workflow's last."""
        return run_id in await self._remove_runs([run_id])

    async def _remove(self, done: Collected, *, by_size: bool) -> None:
        left_out: set[str] = set()
        while True:
            plan = _Plan(limit=PLANNED, left_out=left_out)
            await self._choose(plan, by_size=by_size)
            if not plan.chosen:
                return
            for some in _batches(plan.chosen.values()):
                some = [await self._weighed(each) for each in some]
                gone = await self._remove_runs([each.run.id for each in some])
                for each in some:
                    if each.run.id in gone:
                        done.add(each)
                    else:
                        left_out.add(each.run.id)

    async def _weighed(self, removed: Removed) -> Removed:
        """With its size, if that was not needed to choose it."""
        if removed.run.size is not None or removed.run.id in self._fresh:
            return removed
        return replace(removed, bytes=(await self._archive.measure(removed.run.id)).bytes)

    async def _remove_runs(self, run_ids: Sequence[str]) -> Collection[str]:
        marked = await self._archive.condemn(run_ids)
        failpoints.hit("retention.marked")
        gone = await self._store.delete_runs(marked)
        failpoints.hit("retention.deleted")
        for run_id in gone:
            self._fresh.pop(run_id, None)
            await self._remove_directory(run_id)
        return gone

    async def _remove_directory(self, run_id: str) -> bool:
        try:
            await self._archive.remove(run_id)
        except OSError as error:
            # What is left bears its mark: the next pass tries again.
            log.warning(
                "cannot remove the files of a run",
                action="remove_failed",
                run=run_id,
                error=str(error),
            )
            return False
        return True

    async def _collect_strays(self, done: Collected, *, dry_run: bool, unknown_too: bool) -> None:
        """Directories of no run: those that a crash left, and with `unknown_too` those that nobody knows."""
        before = self._clock.now() - STRAY_AGE
        found = {
            each.run_id: each
            for each in await self._archive.directories()
            if each.condemned or each.changed_at < before
        }
        known = await self._store.known_runs(list(found))
        unknown = 0
        for run_id, stray in found.items():
            if run_id in known:
                continue
            if not stray.condemned and not unknown_too:
                unknown += 1
                continue
            size = (await self._archive.measure(run_id)).bytes
            if dry_run or await self._remove_directory(run_id):
                done.strays += 1
                done.bytes += size
        if unknown:
            log.warning(
                "the database does not know some directories of runs; is it the right one?",
                action="unknown_directories",
                count=unknown,
            )

    # -- sizes and compression

    async def _settle(self, done: Collected) -> None:
        """Compresses and measures what has ended long enough ago, and keeps the sizes."""
        measured: dict[str, RunSize] = {}
        waiting = []
        # Asked for first: what ends from now on is one of these, or has an id above them.
        newest = [run.id for run in await self._store.list_runs(limit=1)]
        active = await self._store.active_run_ids()
        async for run in self._unmeasured():
            size = await self._settle_run(run, done) if self._due(run) else None
            if size is None:
                waiting.append(run.id)
                await self._weigh(run)
                continue
            measured[run.id] = size
            if len(measured) >= PAGE:
                await self._keep_sizes(measured)
        await self._keep_sizes(measured)
        self._fresh = {key: self._fresh[key] for key in waiting if key in self._fresh}
        self._measured_to = min([*newest, *active, *waiting], default="")

    async def _settle_run(self, run: EndedRun, done: Collected) -> RunSize | None:
        try:
            if self._rules.compress_after is not None:
                done.compressed_logs += await self._compress(run.id)
            done.strays += await self._archive.tidy(run.id)
        except OSError as error:
            log.warning(
                "cannot compress the logs of a run, trying again later",
                action="compress_failed",
                run=run.id,
                error=str(error),
            )
            return None
        return await self._archive.measure(run.id)

    async def _compress(self, run_id: str) -> int:
        count = ordinal = 0
        while await self._archive.compressible(run_id):
            attempts = await self._store.run_attempts(run_id, from_ordinal=ordinal, limit=PAGE)
            count += await self._archive.compress(attempts)
            if len(attempts) < PAGE:
                break
            ordinal = attempts[-1].ordinal + 1
        return count

    async def _keep_sizes(self, measured: dict[str, RunSize]) -> None:
        if measured:
            await self._store.save_sizes(measured)
            for run_id in measured:
                self._fresh.pop(run_id, None)
            measured.clear()

    async def _unmeasured(self) -> AsyncIterator[EndedRun]:
        start = self._measured_to
        while True:
            page = await self._store.unmeasured_runs(start=start, limit=PAGE)
            for run in page:
                yield run
            if len(page) < PAGE:
                return
            start = page[-1].id + "0"

    async def _weigh(self, run: EndedRun) -> None:
        if run.id not in self._fresh:
            self._fresh[run.id] = (run, await self._archive.measure(run.id))

    def _due(self, run: EndedRun) -> bool:
        after = self._rules.compress_after
        return after is None or run.finished_at <= self._clock.now() - timedelta(seconds=after)

    # -- all logs together

    async def _check_logs(self) -> None:
        """Tells the shims to drop output while all logs together are over the limit."""
        async with self._checking:
            await self._add_up_logs()

    async def _add_up_logs(self) -> None:
        limit = self._rules.total_logs
        assert limit is not None
        active = await self._store.active_run_ids()
        total = (await self._store.stored_size()).log_bytes
        ended: dict[str, int] = {}
        async for run in self._unmeasured():
            known = self._log_bytes.get(run.id)
            ended[run.id] = await self._archive.log_bytes([run.id]) if known is None else known
        self._log_bytes = ended
        total += sum(ended.values()) + await self._archive.log_bytes(active)
        # Not on and off with every line.
        full = total > limit if not self._full else total > limit * 0.9
        if full != self._full:
            await self._archive.hold_output(full)
            if full:
                log.error("all logs together are at their limit", action="logs_full", bytes=total)
            elif self._full:
                log.info("there is room for logs again", action="logs_have_room", bytes=total)
            self._full = full
        if self._conditions is not None:
            if full:
                detail = (
                    f"what steps print is dropped: all logs together take more than "
                    f"limits.total_logs = {format_size(limit)}; `toban system gc` may help"
                )
                self._conditions.trouble("logs", HealthStatus.DEGRADED, detail)
            else:
                self._conditions.well("logs")


@dataclass(slots=True, kw_only=True)
class _Plan:
    """Runs that are to go. `left_out` could not be removed in this pass."""

    limit: int
    left_out: Collection[str] = ()
    chosen: dict[str, Removed] = field(default_factory=dict)
    _bytes: dict[str, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.chosen) >= self.limit

    def add(self, run: EndedRun, size: int, reason: str) -> None:
        self.chosen[run.id] = Removed(run=run, bytes=size, reason=reason)
        self._bytes[run.workflow] = self._bytes.get(run.workflow, 0) + size

    def bytes_of(self, workflow: str = "") -> int:
        return self._bytes.get(workflow, 0) if workflow else sum(self._bytes.values())


def _effective(rules: Rules, own: OwnRules | None) -> Rules:
    if own is None:
        return rules
    return Rules(
        age=rules.age if own.age is None else own.age,
        runs=rules.runs if own.runs is None else own.runs,
        bytes=rules.bytes if own.bytes is None else own.bytes,
    )


def _batches(chosen: Collection[Removed]) -> list[list[Removed]]:
    """So many at once that nobody has to wait long for the database."""
    batches: list[list[Removed]] = []
    rows = ROWS_AT_ONCE
    for each in sorted(chosen, key=lambda each: each.run.id):
        rows += each.run.rows
        if rows > ROWS_AT_ONCE:
            batches.append([])
            rows = each.run.rows
        batches[-1].append(each)
    return batches
