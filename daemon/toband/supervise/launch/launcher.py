"""The daemon's side of the launch protocol: hands attempts to the spawner and learns of their ends through pidfds."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX launcher needs a spawner")

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from toband import failpoints
from toband.domain.attempt_model import Attempt, Orphans, TreeCause
from toband.domain.fair_queue import FairQueue
from toband.domain.run_events import AttemptLost, AttemptVoided, Event, not_started
from toband.ports import Clock, Conditions, HealthStatus, Launch, Report
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch import step_limits, unresponsive_shims
from toband.supervise.launch.attempt_probe import LOOK_AGAIN, AttemptProbe
from toband.supervise.launch.bootstrap import message_of
from toband.supervise.launch.claim_names import ClaimNames
from toband.supervise.launch.end_record import EndRecord
from toband.supervise.launch.live_attempt import LiveAttempt, corrected, duty_of, known_orphans
from toband.supervise.launch.posix_host import PosixHost, PosixShim
from toband.supervise.launch.sandbox_plan import sandbox_plan
from toband.supervise.launch.secret_directories import SecretDirectories
from toband.supervise.launch.shim_pool import PAUSE, ShimPool
from toband.supervise.launch.survivors import Survivors
from toband.supervise.launch.unresponsive_shims import Duty, ShimWatch
from toband.supervise.shim import cgroups, process_tree
from toband.supervise.shim.cgroups import Cgroups
from toband.supervise.shim.shim import START_PATIENCE

STARTED_AFTER = 0.1
"""Seconds. A shorter attempt is only reported as ended, which saves a commit."""
ORPHANS_WITHIN = 10.0
"""Seconds that the spawner may take to end the orphans of a killed shim."""
SWEEP_EVERY = 60.0
SPAWNER = "spawner"
MOST_STARTING = max(8, 4 * (os.cpu_count() or 1))
"""Attempts that may have a shim and no claim yet. More of them would start no sooner, and the last one much later."""

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS, errno.ENOMEM, errno.ENOBUFS)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimPatience:
    """Seconds that a shim keeps trying to end a KILLed tree, and to write its end record."""

    kill: float = 30.0
    record: float = 600.0


class ProcessLauncher:
    """Implements `ports.Launcher` with a spawner and one shim per attempt."""

    def __init__(
        self,
        files: RunFiles,
        clock: Clock,
        spawner_log: str,
        *,
        conditions: Conditions,
        cgroups: Cgroups | None = None,
        patience: ShimPatience | None = None,
    ) -> None:
        self._files = files
        self._clock = clock
        self._conditions = conditions
        self._cgroups = cgroups or Cgroups(reason="switched off")
        self._patience = patience or ShimPatience()
        self._can = step_limits.of_this_process(self._cgroups)
        self._boot_id = process_tree.boot_id()
        self._pool = ShimPool(self, spawner_log)
        self._live: dict[str, LiveAttempt] = {}
        self._waiting: FairQueue[LiveAttempt] = FairQueue()
        self._starting: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._shims_missing = False
        host = PosixHost(self._boot_id, self._cgroups)
        self._probe: AttemptProbe[PosixShim] = AttemptProbe(files, host, clock, conditions, spawner_log)
        self._names = ClaimNames(files)
        self._secrets = SecretDirectories(files)
        self._shim_watch = ShimWatch(self._cgroups, self._shims)
        self._survivors = Survivors(conditions)

    async def open(self, report: Report) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._names.open()
        self._secrets.open()
        self._pool.open()
        self._spawn(self._shim_watch.run())
        if self._cgroups.attempts:
            self._spawn(self._sweep())

    async def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._survivors.close()
        self._names.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()
        for live in self._live.values():
            self._let_go(live)
        self._live.clear()
        self._waiting.clear()
        self._starting.clear()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    @property
    def spawner_pid(self) -> int:
        return self._pool.spawner_pid

    @property
    def cgroups(self) -> Cgroups:
        """Where attempts get cgroups of their own, or why they get none."""
        return self._cgroups

    async def prepare(self, run_id: str, params: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> None:
        await asyncio.to_thread(self._files.prepare, run_id, params, event)

    def any_alive(self, pids: Collection[int]) -> bool:
        return any((seen := process_tree.stat_of(pid)) is not None and seen[2] not in "ZX" for pid in pids)

    def running(self) -> int:
        return len(self._live)

    def waiting(self) -> int:
        """How many attempts have no shim yet."""
        return len(self._waiting)

    def live_shims(self) -> Mapping[str, int]:
        """The pid of the shim of every attempt that has one, by the attempt's id."""
        return {live.attempt.id: live.pid for live in self._live.values() if live.pid and not live.exited}

    def _shims(self) -> list[LiveAttempt]:
        return [live for live in self._live.values() if live.pidfd >= 0 and not live.exited]

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        try:
            message = message_of(launch, self._files, self._secrets)
        except OSError as error:
            reason = f"cannot start it: cannot prepare its secret files: {error.strerror or error}"
            self._report(attempt.run_id, not_started(attempt, reason, self._clock.now()))
            return
        message["kill_patience"] = self._patience.kill
        message["record_patience"] = self._patience.record
        if launch.confined:
            try:
                planned = self._planned(launch)
            except step_limits.LimitError as error:
                self._report(attempt.run_id, not_started(attempt, str(error), self._clock.now()))
                return
            if planned is not None:
                message["limits"] = planned.message()
                message["reach"] = self._files.reach(attempt.run_id)
        if self._cgroups.attempts:
            message["cgroup"] = {
                "path": self._cgroups.of(attempt.token),
                "home": self._cgroups.home,
                "namespace": self._cgroups.namespace,
            }
        live = LiveAttempt(
            attempt,
            message=json.dumps(message),
            timeout=launch.timeout,
            cause=launch.timeout_cause,
            duty=Duty(launch.kill_grace + self._patience.kill + unresponsive_shims.SLACK),
        )
        if launch.timeout is not None and launch.timeout_cause is not TreeCause.TIMEOUT:
            live.deadline = self._loop.time() + launch.timeout
        self._live[attempt.token] = live
        self._waiting.push(attempt, live)
        self._hand_over()

    def _planned(self, launch: Launch) -> step_limits.Limits | None:
        """Raises LimitError."""
        return step_limits.plan(
            self._can,
            launch.resources,
            launch.user,
            setuid_programs=launch.setuid_programs,
            no_new_privileges=launch.no_new_privileges,
            apart=launch.apart,
            sandbox=sandbox_plan(launch, self._files) if launch.sandbox is not None else None,
        )

    def stop(self, attempt: Attempt) -> None:
        live = self._live.get(attempt.token)
        if live is None:
            return
        if live.message is not None:
            # No shim has the attempt: it has not started and never will.
            self._waiting.remove(attempt.token)
            self._finish(live, AttemptVoided(step=attempt.step, token=attempt.token))
            return
        if live.pidfd >= 0 and not live.exited:
            live.duty.stops(self._loop.time())
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(live.pidfd, signal.SIGTERM)
                # A shim that was stopped by its step would not get the signal.
                signal.pidfd_send_signal(live.pidfd, signal.SIGCONT)

    async def recover(self, attempt: Attempt) -> Event | None:
        """Probes the attempt: a living shim, an end record, not started, or lost.

        Takes seconds at most, plus the time of the disk. Raises OSError; the caller may repeat it.
        """
        found = await self._probe.once(attempt)
        if isinstance(found, PosixShim):
            duty = duty_of(found.claim)
            live = LiveAttempt(attempt, pid=found.pid, pidfd=found.pidfd, ours=False, claimed=True, duty=duty)
            self._watch(live)
            return None
        return self._event_of(attempt, found)

    async def recorded_end(self, attempt: Attempt) -> Event | None:
        record = await asyncio.to_thread(self._probe.record, attempt)
        return None if record is None else self._probe.event_of(attempt, record)

    def settle(self, token: str) -> None:
        self._names.settle(token)
        self._secrets.settle(token)

    def settle_others(self, active: Collection[str]) -> None:
        self._names.settle_others(active)
        self._secrets.settle_others(active)

    # -- shims

    def _hand_over(self) -> None:
        """Gives waiting attempts to parked shims, and asks for those that are missing."""
        handed_over = False
        while (
            len(self._starting) < MOST_STARTING
            and (live := self._waiting.first()) is not None
            and (parked := self._pool.take())
        ):
            try:
                bootstrap = live.bootstrap_file(self._loop.time())
            except OSError as error:
                self._pool.give_back(parked)
                self._try_again(f"cannot create its bootstrap message: {error.strerror}")
                break
            failpoints.hit("launch.before_send")
            try:
                socket.send_fds(parked.sock, [b"bootstrap"], [bootstrap])
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._pool.give_back(parked)
                    self._try_again(f"cannot pass its bootstrap message: {error.strerror}")
                    break
                # It was ended while it was parked, and has read nothing.
                parked.discard()
                continue
            finally:
                os.close(bootstrap)
            failpoints.hit("launch.after_send")
            self._waiting.pop()
            self._starting.add(live.attempt.token)
            live.message = None
            handed_over = True
            live.pid, live.pidfd, live.sock = parked.pid, parked.pidfd, parked.sock
            live.ours = True
            live.duty.begins(self._loop.time() + START_PATIENCE, live.time_left(self._loop.time()), live.cause)
            # By their numbers: for an object that it does not know the loop first asks the system for its addresses.
            self._loop.add_reader(live.sock.fileno(), self._hear, live)
            self._watch(live)
        if handed_over:
            self._shims_are_there()
        self._pool.want(min(len(self._waiting), MOST_STARTING))

    def _starts_no_more(self, live: LiveAttempt) -> None:
        """It has its claim, or has ended: the next one may start."""
        token = live.attempt.token
        if token in self._starting:
            self._starting.remove(token)
            if self._waiting and self._again is None:
                self._hand_over()

    def _try_again(self, reason: str) -> None:
        self.no_shim(reason)
        if self._again is None:
            self._again = self._loop.call_later(PAUSE, self._hand_over_again)

    def _hand_over_again(self) -> None:
        self._again = None
        if not self._waiting:
            self._shims_are_there()
        self._hand_over()

    def shim_parked(self) -> None:
        if self._again is None:
            self._hand_over()
            self._shims_are_there()

    def _shims_are_there(self) -> None:
        if self._shims_missing and self._again is None and not self._pool.short:
            self._shims_missing = False
            self._conditions.well(SPAWNER)

    def shim_gone(self, pid: int, orphans: int, left: int) -> None:
        """The spawner reaped a shim that failed, and ended what it left."""
        for live in list(self._live.values()):
            if live.ours and live.pid == pid:
                if not live.exited:
                    self._exited(live)
                if live.attempt.token in self._live:
                    known = Orphans.ENDED if orphans else Orphans.NONE
                    self._lost(live, Orphans.LEFT if left else known)

    def no_shim(self, reason: str) -> None:
        """Waiting attempts have certainly not started, and go on waiting."""
        self._shims_missing = True
        count = len(self._waiting)
        waiting = f"{count} attempt{'s wait' if count != 1 else ' waits'} for one"
        detail = f"cannot start steps' supervisors, trying again: {reason}; {waiting}"
        self._conditions.trouble(SPAWNER, HealthStatus.DEGRADED, detail)

    def spawner_died(self) -> None:
        """Attempts with a shim go on without the spawner; others wait for the next spawner."""
        for live in list(self._live.values()):
            live.ours = False
            if live.exited:
                self._lost(live, Orphans.UNKNOWN)

    # -- one attempt

    def _watch(self, live: LiveAttempt) -> None:
        self._live[live.attempt.token] = live
        self._loop.add_reader(live.pidfd, self._exited, live)
        live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)

    def _tell_started(self, live: LiveAttempt) -> None:
        live.timer = None
        started = self._probe.started(live.attempt)
        if started is None:
            live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)
            return
        live.claimed = True
        if live.ours and not live.duty.forced and live.duty.cause is live.cause:
            live.duty.begins(self._loop.time(), live.time_left(self._loop.time()), live.cause)
        self._report(live.attempt.run_id, started)

    def _hear(self, live: LiveAttempt) -> None:
        """The shim reported its claim, or closed its socket.

        A closed socket means that the record is on disk, or that the shim is dying, which its pidfd reports.
        """
        if self._open_still(live):
            if live.claimed:
                self._starts_no_more(live)
            return
        assert live.sock is not None
        self._loop.remove_reader(live.sock.fileno())
        with contextlib.suppress(OSError):
            self._take_record(live)

    def _open_still(self, live: LiveAttempt) -> bool:
        """Takes what the shim sent. False: it sends nothing more."""
        assert live.sock is not None
        try:
            told = live.sock.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        live.claimed = live.claimed or bool(told)
        return bool(told)

    def _take_record(self, live: LiveAttempt) -> bool:
        """Whether there is one. Raises OSError if that cannot be known now."""
        record = self._probe.record(live.attempt)
        if record is None:
            return False
        self._finish(live, corrected(live.duty, self._event_of(live.attempt, record)))
        return True

    def _exited(self, live: LiveAttempt) -> None:
        try:
            self._take_up_exit(live)
        except Exception as error:
            self._broken(live, error)

    def _broken(self, live: LiveAttempt, error: Exception) -> None:
        """An unexpected error after the exit of a shim: reports the attempt as lost, so that its run does not hang."""
        attempt = live.attempt
        message = f"cannot process the end of {attempt.step} of run {attempt.run_id}"
        self._loop.call_exception_handler({"message": message, "exception": error})
        reason = f"its end could not be processed: {type(error).__name__}: {error}"
        lost = AttemptLost(step=attempt.step, token=attempt.token, error=reason, orphans=Orphans.UNKNOWN)
        self._finish(live, lost)

    def _take_up_exit(self, live: LiveAttempt) -> None:
        self._loop.remove_reader(live.pidfd)
        live.exited = True
        if live.sock is not None:
            self._open_still(live)
        try:
            if self._take_record(live):
                return
        except OSError:
            # No descriptor is left, or the disk does not answer: that passes.
            if live.timer is not None:
                live.timer.cancel()
            live.timer = self._loop.call_later(LOOK_AGAIN, self._exited, live)
            return
        if live.ours and self._pool.alive:
            # The spawner first ends what the shim left, and then says so.
            if live.timer is not None:
                live.timer.cancel()
            live.timer = self._loop.call_later(ORPHANS_WITHIN, self._lost, live, Orphans.UNKNOWN)
        else:
            self._lost(live, Orphans.UNKNOWN)

    def _lost(self, live: LiveAttempt, orphans: Orphans) -> None:
        """A shim exited without a record. If it never took its claim, the step certainly did not run."""
        self._spawn(self._lost_or_void(live, orphans))

    async def _lost_or_void(self, live: LiveAttempt, orphans: Orphans) -> None:
        try:
            found = await self._probe.after_shim(live.attempt, claimed=live.claimed)
        except Exception as error:
            self._broken(live, error)
            return
        if isinstance(found, PosixShim):
            os.close(found.pidfd)
            return
        if isinstance(found, AttemptLost):
            found = replace(found, orphans=known_orphans(found.orphans, orphans))
            if live.duty.forced:
                found = replace(found, error="its supervisor did not respond and was killed with the step")
        self._finish(live, corrected(live.duty, self._event_of(live.attempt, found)))

    def _event_of(self, attempt: Attempt, found: EndRecord | Event) -> Event:
        if isinstance(found, EndRecord):
            self._survivors.take(attempt, found)
        return self._probe.event_of(attempt, found)

    def _finish(self, live: LiveAttempt, event: Event) -> None:
        if self._live.pop(live.attempt.token, None) is not None:
            self._let_go(live)
            if not isinstance(event, AttemptVoided):
                self._probe.forget(live.attempt)
            self._report(live.attempt.run_id, event)
            self._starts_no_more(live)

    def _let_go(self, live: LiveAttempt) -> None:
        if live.timer is not None:
            live.timer.cancel()
        if live.sock is not None:
            self._loop.remove_reader(live.sock.fileno())
            live.sock.close()
            live.sock = None
        if live.pidfd >= 0:
            self._loop.remove_reader(live.pidfd)
            os.close(live.pidfd)
            live.pidfd = -1

    async def _sweep(self) -> None:
        """Ends leftovers of dead shims in their cgroups, also of attempts that are no longer active."""
        while True:
            gone, left = await asyncio.to_thread(cgroups.sweep, self._cgroups.attempts)
            if gone or left:
                log.warning("ended cgroups without an owner", action="swept", gone=gone, left=left)
            await asyncio.sleep(SWEEP_EVERY)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "a task of the launcher failed"
            self._loop.call_exception_handler({"message": message, "exception": error})
