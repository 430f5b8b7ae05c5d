"""The doctor: checks the database, the files, the processes and the machine, and repairs what is safe to repair.

It never touches an active run or history. Slow checks run in threads or beside the writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

import structlog

from toban.quantity_text import counted, size_text
from toband.domain.attempt_model import Attempt, AttemptState
from toband.engine.access.audit_log import TAIL, AuditLog
from toband.engine.health.admission import inode_reserve_of, reserve_of
from toband.engine.health.host_monitor import DESCRIPTORS_SHARE
from toband.ports import (
    AttemptSeen,
    Clock,
    Descriptors,
    Disk,
    Premises,
    RunDirectory,
    StepProcess,
    Store,
    StoreError,
)

OLD = 3600.0
"""Seconds. Unknown files are left alone until they are this old; they may be about to be used."""
SETTLED = 10.0
"""Seconds. A younger attempt may still be starting."""
LOOK_AGAIN = 2.0
"""Seconds before a finding that may be a change in progress is checked again."""
RUNS_LOOKED_AT = 200
SWEEPS = 10
AHEAD_MOST = 64 * 1024 * 1024
CLOCK_MOST = 2.0
FUTURE_MOST = 5.0
_NAMED = 3
_Item = TypeVar("_Item")

log = structlog.get_logger()


class FindingStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check; `hint` says what to do about it."""

    check: str
    status: FindingStatus
    detail: str
    hint: str = ""


STRAY_DIRECTORIES = "if the configured `database` is the right one, remove them with `toban system gc`"
REPAIR = "repair it with `toban system doctor --repair`"


class Doctor:
    def __init__(
        self,
        *,
        store: Store,
        premises: Premises,
        disk: Disk,
        descriptors: Descriptors,
        clock: Clock,
        reserve: int | None,
        audit: AuditLog,
    ) -> None:
        self._audit = audit
        self._store = store
        self._premises = premises
        self._disk = disk
        self._descriptors = descriptors
        self._clock = clock
        self.reserve = reserve
        self._one_at_a_time = asyncio.Lock()

    async def examine(self, *, repair: bool) -> Sequence[Finding]:
        """The results of all checks, in a fixed order. A check that fails is a finding too."""
        checks: Sequence[tuple[str, Callable[[bool], AsyncIterator[Finding]]]] = (
            ("database", self._database),
            ("audit", self._audit_log),
            ("attempts", self._attempts),
            ("run directories", self._directories),
            ("temporary files", self._temporary_files),
            ("permissions", self._permissions),
            ("clock", self._clocks),
            ("space", self._space),
            ("state directory", self._state_directory),
            ("stray processes", self._strays),
            ("spawner", self._spawner),
            ("descriptors", self._open_descriptors),
            ("cgroup", self._cgroup),
            ("step user", self._step_isolation),
        )
        findings: list[Finding] = []
        async with self._one_at_a_time:
            for name, check in checks:
                try:
                    findings += [finding async for finding in check(repair)]
                except (StoreError, OSError) as error:
                    findings.append(_failed(name, f"cannot check: {error}"))
        for finding in findings:
            if finding.status is FindingStatus.REPAIRED:
                log.info("repaired", action="repaired", check=finding.check, detail=finding.detail)
        return findings

    # -- the database

    async def _database(self, repair: bool) -> AsyncIterator[Finding]:
        found = await self._store.inspect()
        if found.problems:
            yield _failed(
                "database",
                f"{counted(len(found.problems), 'problem')}: {_some(found.problems)}",
                "stop the daemon, keep a copy of the database, and restore a backup",
            )
        else:
            yield _ok("database", f"intact: {', '.join(found.facts)}")
        if found.problems:
            pass  # a damaged database cannot be trusted about its version
        elif found.schema == found.expected_schema:
            yield _ok("schema", f"version {found.schema}")
        else:
            yield _failed(
                "schema",
                f"version {found.schema or 'unknown'}, this release needs {found.expected_schema}",
                "start the toband release that created it",
            )
        try:
            await self._store.try_write()
        except StoreError as error:
            yield _failed("database writes", str(error))
        else:
            yield _ok("database writes", "a test commit succeeded")
        if repair and found.ahead_bytes:
            await self._store.checkpoint()
        if found.ahead_bytes > AHEAD_MOST:
            detail = f"{size_text(found.ahead_bytes)} in the write-ahead log"
            if repair:
                yield _repaired("database log", f"{detail}, now in the database")
            else:
                yield _warning("database log", detail, REPAIR)

    async def _audit_log(self, repair: bool) -> AsyncIterator[Finding]:
        broken = await self._audit.verify_tail()
        if broken is None:
            yield _ok("audit", f"the newest entries (at most {TAIL:,}) are as they were written")
        else:
            yield _failed(
                "audit",
                f"entry {broken.sequence} of the audit log: {broken.reason}",
                "someone changed the database; keep a copy of it, and see `toban audit verify`",
            )

    # -- the state directory and the database

    async def _attempts(self, repair: bool) -> AsyncIterator[Finding]:
        wrong = await self._wrong_attempts(await self._live_attempts())
        if wrong:
            # The attempt may have ended between the two checks.
            await asyncio.sleep(LOOK_AGAIN)
            again = [await self._store.get_attempt(attempt.id) for attempt, _ in wrong]
            wrong = await self._wrong_attempts([each for each in again if each is not None])
        if not wrong:
            yield _ok("attempts", "every active attempt has its supervisor")
            return
        named = [f"{await self._name(attempt.run_id)} {attempt.step}: {why}" for attempt, why in wrong]
        yield _failed(
            "attempts",
            f"{counted(len(wrong), 'active attempt')} not as in the database: {_some(named)}",
            "restart the daemon: it recovers them",
        )

    async def _name(self, run_id: str) -> str:
        run = await self._store.get_run(run_id)
        return run.name if run is not None else run_id

    async def _live_attempts(self) -> list[Attempt]:
        found = []
        for run_id in await self._store.active_run_ids():
            run = await self._store.get_run(run_id)
            steps = run.steps.values() if run is not None else ()
            # A child run has no process.
            attempts = [step.attempt for step in steps if step.attempt is not None]
            found += [attempt for attempt in attempts if not attempt.child]
        return found

    async def _wrong_attempts(self, attempts: Sequence[Attempt]) -> list[tuple[Attempt, str]]:
        settled = self._clock.now() - timedelta(seconds=SETTLED)
        wrong = []
        for attempt in attempts:
            if attempt.state.terminal or attempt.created_at > settled:
                continue
            seen = await asyncio.to_thread(self._premises.seen, attempt)
            # An attempt that waits for a slot has no file yet.
            waits = seen is AttemptSeen.ABSENT and attempt.state is AttemptState.STARTING
            if seen is not AttemptSeen.LIVES and not waits:
                wrong.append((attempt, _SEEN[seen]))
        return wrong

    async def _directories(self, repair: bool) -> AsyncIterator[Finding]:
        directories = await asyncio.to_thread(self._premises.run_directories)
        known = await self._store.known_runs([each.name for each in directories])
        strays = [each.name for each in directories if each.name not in known and each.age > OLD]
        if strays:
            # Never removed by a repair: with the wrong database configured, every directory would look like a stray.
            detail = f"{counted(len(strays), 'directory')} without a run: {_some(strays)}"
            yield _warning("run directories", detail, STRAY_DIRECTORIES)
        else:
            yield _ok("run directories", f"{counted(len(directories), 'directory')}, each of a run")
        held = {each.name for each in directories if each.alive and each.name in known and known[each.name].terminal}
        async for finding in self._held(held):
            yield finding
        async for finding in self._missing_logs(directories):
            yield finding

    async def _held(self, runs: Collection[str]) -> AsyncIterator[Finding]:
        """Supervisors that outlive their run."""
        if runs:
            # A supervisor reports its end a moment before it exits.
            await asyncio.sleep(LOOK_AGAIN)
            again = await asyncio.to_thread(self._premises.run_directories)
            runs = [each.name for each in again if each.name in runs and each.alive]
        if runs:
            named = [await self._name(run_id) for run_id in sorted(runs)]
            yield _failed(
                "supervisors",
                f"{counted(len(runs), 'ended run')} with a live supervisor: {_some(named)}",
                "it exits with the last process of its step; see stray processes",
            )
        else:
            yield _ok("supervisors", "none outlives its run")

    async def _missing_logs(self, directories: Sequence[RunDirectory]) -> AsyncIterator[Finding]:
        logs = {each.name: each.logs for each in directories}
        ended = [run for run in await self._store.list_runs(limit=RUNS_LOOKED_AT) if run.state.terminal]
        missing, damaged = [], []
        for run in ended:
            for attempt in await self._store.run_attempts(run.id):
                name = self._premises.log_name(attempt)
                if attempt.pid is not None and name not in logs.get(run.id, ()):
                    missing.append(f"{run.id}/{name}")
                elif attempt.state is AttemptState.LOST:
                    seen = await asyncio.to_thread(self._premises.seen, attempt)
                    damaged += [f"{run.id}/{name}"] if seen is AttemptSeen.DAMAGED else []
        if damaged:
            detail = f"{counted(len(damaged), 'damaged attempt file')}: {_some(damaged)}"
            hint = "find out what writes there: a step that runs as the daemon's user, or a failing disk"
            yield _warning("attempt files", detail, hint)
        if missing:
            detail = f"{counted(len(missing), 'missing log')} of ended attempts: {_some(missing)}"
            yield _warning("logs", detail, "they were removed from outside and cannot be restored")
        else:
            yield _ok("logs", f"complete for the last {counted(len(ended), 'ended run')}")

    async def _temporary_files(self, repair: bool) -> AsyncIterator[Finding]:
        active = set(await self._store.active_run_ids())
        found = await asyncio.to_thread(self._premises.temporary_files, OLD, active)
        if not found:
            yield _ok("temporary files", "none left behind")
            return
        if not repair:
            detail = f"{counted(len(found), 'unfinished file')}: {_some(found)}"
            yield _warning("temporary files", detail, REPAIR)
            return
        failed = await self._each(found, self._premises.remove_file)
        if len(failed) < len(found):
            done = counted(len(found) - len(failed), "unfinished file")
            yield _repaired("temporary files", f"removed {done}")
        if failed:
            yield _warning("temporary files", f"cannot remove {_some(failed)}")

    async def _permissions(self, repair: bool) -> AsyncIterator[Finding]:
        wrong = await asyncio.to_thread(self._premises.wrong_paths)
        if not wrong:
            yield _ok("permissions", "files belong to the daemon and are closed to other users")
            return
        ours = [each for each in wrong if each.mode is not None]
        failed = await self._each(ours, self._premises.repair) if repair else []
        if repair and ours and not failed:
            yield _repaired("permissions", f"closed to other users: {_some([each.path for each in ours])}")
        left = [each for each in wrong if not repair or each.mode is None]
        for each in left[:_NAMED]:
            hint = REPAIR if each.mode is not None else "give it to the daemon's user with chown"
            yield _failed("permissions", f"{each.path} {each.problem}", hint)
        if len(left) > _NAMED:
            yield _failed("permissions", f"and {len(left) - _NAMED} more")
        for why in failed:
            yield _failed("permissions", f"cannot repair: {why}")

    # -- the machine

    async def _clocks(self, repair: bool) -> AsyncIterator[Finding]:
        reading = self._premises.clock()
        if abs(reading.jumped) > CLOCK_MOST:
            yield _warning(
                "clock",
                f"it was changed by {reading.jumped:+.0f} seconds since the daemon started",
                "times in the history before and after it cannot be compared",
            )
        future = self._clock.now() + timedelta(seconds=FUTURE_MOST)
        newest = await self._store.list_runs(limit=1)
        if any(max(run.created_at, run.finished_at or run.created_at) > future for run in newest):
            yield _warning(
                "clock",
                f"run {newest[0].id} is in the future: the clock was ahead then, or is behind now",
                "set the clock",
            )
        if reading.synchronised is False:
            yield _warning("clock", "not synchronised by a time service", "start chrony or another time service")
        elif abs(reading.jumped) <= CLOCK_MOST:
            kept = ", synchronised by a time service" if reading.synchronised else ""
            yield _ok("clock", f"not changed since the daemon started{kept}")

    async def _space(self, repair: bool) -> AsyncIterator[Finding]:
        roomy = True
        missing = self._disk.ballast - self._disk.ballast_held()
        for space in self._disk.spaces():
            reserve, inodes = (
                reserve_of(space, self.reserve),
                inode_reserve_of(space, self.reserve),
            )
            text = f"{space.path}: {size_text(space.free)} of {size_text(space.total)} free"
            if space.free < reserve:
                yield _failed("space", f"{text}, the reserve is {size_text(reserve)}", "free some space")
            else:
                yield _ok("space", text)
            roomy = roomy and space.free - missing >= reserve and space.free > 2 * missing
            if space.free_inodes is None:
                continue
            text = f"{space.path}: {space.free_inodes} of {space.inodes} inodes free"
            if space.free_inodes < inodes:
                yield _failed("inodes", f"{text}, the reserve is {inodes}", "remove some files")
            else:
                yield _ok("inodes", text)
        if not missing:
            yield _ok("ballast", f"{size_text(self._disk.ballast)} reserved for the last writes on a full disk")
        elif repair and roomy:
            await asyncio.to_thread(self._disk.take_ballast)
            yield _repaired("ballast", f"{size_text(self._disk.ballast)} reserved for the last writes on a full disk")
        else:
            hint = REPAIR if roomy else "it is restored when there is space"
            yield _warning("ballast", f"{size_text(missing)} missing", hint)

    async def _state_directory(self, repair: bool) -> AsyncIterator[Finding]:
        try:
            await asyncio.to_thread(self._disk.try_write)
        except OSError as error:
            yield _failed("state directory", f"cannot write: {error}")
        else:
            yield _ok("state directory", "writable")

    async def _strays(self, repair: bool) -> AsyncIterator[Finding]:
        """Processes of ended attempts whose supervisor was killed, or which escaped it."""
        strays = await self._stray_processes()
        if not strays:
            yield _ok("stray processes", "none")
        ended: list[str] = []
        for _ in range(SWEEPS if repair else 0):
            # A process may have started another one while it was being ended: repeat until none is left.
            ours = [process for process in strays if process.ours]
            if not ours:
                break
            left = await asyncio.to_thread(self._premises.end, ours)
            ended += [str(process.pid) for process in ours if process not in left]
            strays = await self._stray_processes()
        if ended:
            detail = f"ended {counted(len(ended), 'process')} of ended attempts: {_some(ended)}"
            yield _repaired("stray processes", detail)
        ours = [process for process in strays if process.ours]
        if ours:
            named = [f"{process.pid} ({process.command})" for process in ours]
            detail = f"{counted(len(ours), 'process')} of ended attempts: {_some(named)}"
            yield _failed("stray processes", detail, "" if repair else REPAIR)
        for process in [process for process in strays if not process.ours][:_NAMED]:
            yield _warning(
                "stray processes",
                f"{process.pid} ({process.command}) carries the token of an ended attempt, but was started by "
                f"{process.parent or 'another process'}",
                "it is left alone, because it may be meant to go on",
            )

    async def _stray_processes(self) -> list[StepProcess]:
        # In this order: an attempt that starts in between is active in the second list.
        found = await asyncio.to_thread(self._premises.step_processes)
        live = await self._live_attempts()
        active = {attempt.token for attempt in live if not attempt.state.terminal}
        return [process for process in found if process.token not in active]

    async def _spawner(self, repair: bool) -> AsyncIterator[Finding]:
        pid = await asyncio.to_thread(self._premises.spawner)
        if pid:
            yield _ok("spawner", f"pid {pid}")
        elif pid == 0:
            yield _failed("spawner", "not running", "the daemon restarts it; if not, see the daemon's log")

    async def _open_descriptors(self, repair: bool) -> AsyncIterator[Finding]:
        found = await asyncio.to_thread(self._descriptors.open_and_most)
        if found is None:
            return
        number, most = found
        if number < most * DESCRIPTORS_SHARE:
            yield _ok("descriptors", f"{number} of {most} open")
        else:
            yield _warning("descriptors", f"{number} of {most} open", "raise the limit of open files")

    async def _cgroup(self, repair: bool) -> AsyncIterator[Finding]:
        yield _ok("cgroup", self._premises.cgroup())

    async def _step_isolation(self, repair: bool) -> AsyncIterator[Finding]:
        found = await asyncio.to_thread(self._premises.step_isolation)
        if found.shared:
            yield _warning(
                "step user",
                f"steps run as {found.daemon_user}, like the daemon: roles and secrets are no boundary against "
                "users who define workflows",
                "set `step_user` in the configuration, as the systemd unit does",
            )
        else:
            yield _ok("step user", f"steps run as {found.step_user}, the daemon as {found.daemon_user}")
        if not found.links_protected and not found.shared:
            detail = "any user can give another user's file a second name in a directory of their own"
            yield _warning("hard links", detail, "set the sysctl fs.protected_hardlinks to 1")
        parts = (("files", found.no_files), ("network: none", found.no_network))
        yield _ok("sandbox", "; ".join(f"{what}: not available: {why}" if why else what for what, why in parts))

    async def _each(self, items: Sequence[_Item], do: Callable[[_Item], None]) -> list[str]:
        """The errors of those items for which `do` failed."""

        def work() -> list[str]:
            failed = []
            for item in items:
                try:
                    do(item)
                except OSError as error:
                    failed.append(str(error))
            return failed

        return await asyncio.to_thread(work)


_SEEN = {
    AttemptSeen.ABSENT: "its attempt file is missing",
    AttemptSeen.VOID: "it never started",
    AttemptSeen.ENDED: "it has ended",
    AttemptSeen.DEAD: "its supervisor is gone and left no end record",
    AttemptSeen.DAMAGED: "its attempt file is damaged",
}


def _ok(check: str, detail: str) -> Finding:
    return Finding(check=check, status=FindingStatus.OK, detail=detail)


def _warning(check: str, detail: str, hint: str = "") -> Finding:
    return Finding(check=check, status=FindingStatus.WARNING, detail=detail, hint=hint)


def _failed(check: str, detail: str, hint: str = "") -> Finding:
    return Finding(check=check, status=FindingStatus.FAILED, detail=detail, hint=hint)


def _repaired(check: str, detail: str) -> Finding:
    return Finding(check=check, status=FindingStatus.REPAIRED, detail=detail)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
