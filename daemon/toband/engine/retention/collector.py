"""Garbage collection: compresses the logs of ended runs, and removes runs by the retention policy.

A pass runs periodically and on request. It never touches an active run or the last run of a workflow. It removes a run
in this order: a mark in the run's directory, its rows, the directory. So the next pass recognises what a crash left
behind. On a disk without a free block the directory goes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import structlog

from toband import failpoints
from toband.engine.retention.clock_trust import ClockTrust
from toband.engine.retention.removal_plan import RemovalPlan, RemovalPlanner
from toband.engine.retention.retention_policy import Collected, Removed, RetentionRules
from toband.engine.retention.run_sizes import RunSizes
from toband.engine.retention.total_log_limit import TotalLogLimit
from toband.ports import (
    Archive,
    Clock,
    Conditions,
    HealthStatus,
    Store,
    StoreError,
    StoreFullError,
)

FIRST_PASS = 60.0
PASSES = 300.0
LOG_CHECKS = 10.0
WHOLE_LOOKS = 12
"""Every this many passes, all runs are searched for unmeasured ones, not only the younger ones."""
TROUBLE_AFTER = 3
"""Failed passes in a row before health reports it."""
STRAY_AGE = timedelta(hours=1)
PLANNED = 500
"""Runs chosen and removed per round."""
MOST = 100_000
"""Runs that a dry run lists at most."""

log = structlog.get_logger()


class RetentionCollector:
    def __init__(
        self,
        *,
        store: Store,
        archive: Archive,
        clock: Clock,
        rules: RetentionRules,
        conditions: Conditions | None = None,
        remove_audit: Callable[[], Awaitable[int]] | None = None,
        trust: ClockTrust | None = None,
        first_pass: float = FIRST_PASS,
        passes: float = PASSES,
        log_checks: float = LOG_CHECKS,
    ) -> None:
        """`remove_audit` removes old entries of the audit log. While there is no `trust`, a pass without a request
        removes nothing by its age.
        """
        self._trust = trust or ClockTrust(clock)
        self._store = store
        self._remove_audit = remove_audit
        self._archive = archive
        self._clock = clock
        self._compresses = rules.compress_after is not None
        self._conditions = conditions
        self._first_pass = first_pass
        self._passes = passes
        self._log_checks = log_checks
        self._busy = asyncio.Lock()
        self._asked: set[asyncio.Task[Collected]] = set()
        self._failed = 0
        self._passed = 0
        self._sizes = RunSizes(store=store, archive=archive, clock=clock, rules=rules)
        self._planner = RemovalPlanner(store=store, clock=clock, rules=rules, sizes=self._sizes)
        self._log_limit = TotalLogLimit(
            rules.total_logs, store=store, archive=archive, sizes=self._sizes, conditions=conditions
        )

    def use(self, rules: RetentionRules) -> None:
        """Replaces the rules, for the next passes and checks."""
        self._compresses = rules.compress_after is not None
        self._sizes.use(rules)
        self._planner.use(rules)
        self._log_limit.use(rules.total_logs)

    # -- life

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_now_and_then())
                group.create_task(self._check_logs_now_and_then())
        finally:
            for task in self._asked:
                task.cancel()
            await asyncio.gather(*self._asked, return_exceptions=True)

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Runs a pass now, after one that is in progress. Raises StoreError, OSError.

        It continues if the caller goes away.
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
                log.error("garbage collection failed", action="retention_failed", error=str(error), **told)
                if self._failed >= TROUBLE_AFTER and self._conditions is not None:
                    detail = f"cannot remove runs by the retention policy: {error}"
                    self._conditions.trouble("retention", HealthStatus.DEGRADED, detail)
            else:
                self._failed = 0
                if self._conditions is not None:
                    self._conditions.well("retention")
            await asyncio.sleep(self._passes)

    async def _check_logs_now_and_then(self) -> None:
        while True:
            try:
                await self._log_limit.check()
            except (StoreError, OSError) as error:
                log.error("cannot measure the logs", action="log_check_failed", error=str(error))
            await asyncio.sleep(self._log_checks)

    # -- one pass

    async def _pass(self, *, dry_run: bool = False, unknown_too: bool = False) -> Collected:
        done = Collected()
        async with self._busy:
            if self._passed % WHOLE_LOOKS == 0:
                self._sizes.look_at_all()
            if dry_run:
                await self._look_through(done)
            else:
                self._passed += 1
                by_age = unknown_too or await self._clock_is_trusted()
                # Runs removed by age or number need no compression; removal by size needs measured runs.
                await self._remove(done, by_size=False, by_age=by_age)
                await self._sizes.settle(done)
                await self._remove(done, by_size=True, by_age=by_age)
                if self._remove_audit is not None and by_age:
                    await self._remove_audit()
            await self._collect_strays(done, dry_run=dry_run, unknown_too=unknown_too)
        if not dry_run:
            await self._log_limit.check()
        if not dry_run and (done.run_count or done.strays or done.compressed_logs):
            log.info(
                "garbage collected",
                action="retention",
                runs=done.run_count,
                bytes=done.bytes,
                strays=done.strays,
                compressed_logs=done.compressed_logs,
            )
        return done

    async def _look_through(self, done: Collected) -> None:
        due = []
        async for run in self._sizes.unmeasured():
            if self._sizes.due(run):
                due.append(run.id)
            await self._sizes.weigh(run)
        plan = RemovalPlan(limit=MOST)
        await self._planner.choose(plan, by_size=True)
        for removed in sorted(plan.chosen.values(), key=lambda each: each.run.id):
            done.add(removed)
        if self._compresses:
            for run_id in due:
                if run_id not in plan.chosen:
                    done.compressed_logs += await self._archive.compressible(run_id)

    # -- removing

    async def remove(self, run_id: str) -> bool:
        """Removes one ended run on request. False if an active run needs it."""
        return run_id in await self._remove_runs([run_id])

    async def _clock_is_trusted(self) -> bool:
        newest = [run.created_at for run in await self._store.list_runs(limit=1)]
        return self._trust.look(newest[0] if newest else None)

    async def _remove(self, done: Collected, *, by_size: bool, by_age: bool) -> None:
        left_out: set[str] = set()
        while True:
            plan = RemovalPlan(limit=PLANNED, left_out=left_out)
            await self._planner.choose(plan, by_size=by_size, by_age=by_age)
            if not plan.chosen:
                return
            for some in plan.batches():
                some = [await self._weighed(each) for each in some]
                gone = await self._remove_runs([each.run.id for each in some])
                for each in some:
                    if each.run.id in gone:
                        done.add(each)
                    else:
                        left_out.add(each.run.id)

    async def _weighed(self, removed: Removed) -> Removed:
        """Adds the size of a run that was chosen without measuring it."""
        if self._sizes.known(removed.run):
            return removed
        return replace(removed, bytes=(await self._archive.measure(removed.run.id)).bytes)

    async def _remove_runs(self, run_ids: Sequence[str]) -> Collection[str]:
        marked = await self._archive.condemn(run_ids)
        failpoints.hit("retention.marked")
        try:
            gone = await self._store.delete_runs(marked)
        except StoreFullError:
            gone = await self._delete_after_files(marked)
        failpoints.hit("retention.deleted")
        for run_id in gone:
            self._sizes.forget(run_id)
            await self._remove_directory(run_id)
        return gone

    async def _delete_after_files(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Removes files before rows: on a disk without a free block, even of ballast, that makes room."""
        going = await self._store.deletable_runs(run_ids)
        for run_id in going:
            await self._remove_directory(run_id)
        return await self._store.delete_runs(going)

    async def _remove_directory(self, run_id: str) -> bool:
        try:
            await self._archive.remove(run_id)
        except OSError as error:
            # The rest keeps its mark: the next pass tries again.
            log.warning(
                "cannot remove the files of a run",
                action="remove_failed",
                run=run_id,
                error=str(error),
            )
            return False
        return True

    async def _collect_strays(self, done: Collected, *, dry_run: bool, unknown_too: bool) -> None:
        """Removes directories without a run: leftovers of a crash, and with `unknown_too` also unmarked ones."""
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
                "some run directories have no run in the database; is the right database configured?",
                action="unknown_directories",
                count=unknown,
            )
