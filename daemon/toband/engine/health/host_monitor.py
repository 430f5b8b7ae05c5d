"""Monitors disk space, the state directory, the database and descriptors, and reports to health.

On a full disk it gives up ballast, so that ends of attempts can still be stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable

import structlog

from toban.quantity_text import size_text
from toband.engine.health.admission import DATABASE, Admission
from toband.engine.health.health_conditions import Health
from toband.ports import (
    DatabaseChecks,
    Descriptors,
    Disk,
    HealthStatus,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreTakenOverError,
)

LOOK_EVERY = 1.0
PROBE_EVERY = 10.0
PROBE_AGAIN = 2.0
"""Seconds between probes while they fail."""
PROBE_WITHIN = 15.0
"""Seconds after which a probe of a few bytes counts as failed."""
NEARLY_NOTHING = 256 * 1024
"""Less than this is too little for the claim of an attempt and the commit of its end."""
DESCRIPTORS_SHARE = 0.9
OWNER_EVERY = 2.0
STATE_DIR = "state_dir"
DESCRIPTORS = "descriptors"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

log = structlog.get_logger()


class HostMonitor:
    """Implements `ports.StoreWatcher`. Belongs to the event loop, apart from `make_room`."""

    def __init__(
        self,
        *,
        state_dir: str,
        disk: Disk,
        descriptors: Descriptors,
        health: Health,
        admission: Admission,
        leave: Callable[[StoreTakenOverError], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state_dir = state_dir
        self._disk = disk
        self._descriptors = descriptors
        self._health = health
        self._admission = admission
        self._leave = leave
        self._monotonic = monotonic
        self._hurry = asyncio.Event()
        self._probe: asyncio.Task[None] | None = None
        self._probed_at = -PROBE_EVERY
        self._owner_checked_at = -OWNER_EVERY
        self._database_failing = False
        self._nothing_left = False
        self._write_refused = False

    # -- reports of the store

    def make_room(self) -> bool:
        """Gives up a piece of the ballast for a write that found no space. Any thread."""
        shed = self._disk.shed_piece()
        if shed:
            log.warning("disk full: gave up some ballast", action="ballast_shed")
        return shed

    def failed(self, error: StoreError) -> None:
        if isinstance(error, StoreTakenOverError):
            self._leave(error)
        self._database_failing = True
        match error:
            case StoreFullError():
                hint = "free some space"
            case StoreGoneError():
                hint = "put the file back, or stop toband and restore a backup"
            case StoreBusyError():
                hint = "end the program that has it locked"
            case _:
                hint = "run `toban system doctor` for details"
        self._health.trouble(DATABASE, HealthStatus.REFUSING, f"{error}; {hint}")
        self._hurry.set()

    def worked(self) -> None:
        self._database_failing = False
        self._health.well(DATABASE)

    # -- monitoring

    def make_room_to_start(self) -> None:
        """Frees the few blocks without which a database cannot be opened. Called before the daemon serves."""
        try:
            while any(space.free < NEARLY_NOTHING for space in self._disk.spaces()):
                if not self._disk.shed_half() and not self._disk.shed_piece():
                    return
                log.warning("disk full: gave up some ballast", action="ballast_shed")
        except OSError:
            return

    async def watch(self, store: DatabaseChecks) -> None:
        """Runs until it is cancelled; no error ends it."""
        try:
            while True:
                try:
                    await self._look(store)
                except Exception as error:
                    log.error("a check of the host failed", action="guard_failed", exc_info=error)
                self._hurry.clear()
                try:
                    async with asyncio.timeout(LOOK_EVERY):
                        await self._hurry.wait()
                    # A failure lasts a moment; checking at once would repeat it thousands of times.
                    await asyncio.sleep(LOOK_EVERY / 4)
                    self._probed_at = -PROBE_EVERY
                except TimeoutError:
                    pass
        finally:
            if self._probe is not None:
                self._probe.cancel()

    async def _look(self, store: DatabaseChecks) -> None:
        await self._look_at_space()
        now = self._monotonic()
        pause = PROBE_AGAIN if self._write_refused else PROBE_EVERY
        if self._probe is None and now - self._probed_at >= pause:
            self._probed_at = now
            self._probe = asyncio.get_running_loop().create_task(self._try_write())
        elif self._probe is not None and now - self._probed_at > PROBE_WITHIN:
            took = now - self._probed_at
            self._state_dir_fails(f"a small write has not finished for {took:.0f} seconds")
        try:
            store.check_files()
        except StoreGoneError as error:
            self.failed(error)
        if now - self._owner_checked_at >= OWNER_EVERY:
            self._owner_checked_at = now
            # An idle daemon must notice too that another one took over.
            with contextlib.suppress(StoreError):
                await store.check_owner()
        if self._database_failing:
            # There may be no call for a long time, so the monitor itself checks for recovery.
            try:
                await store.try_write()
            except StoreError:
                pass
            else:
                self.worked()

    async def _look_at_space(self) -> None:
        try:
            full = self._admission.look()
            spaces = self._disk.spaces()
        except OSError as error:
            self._state_dir_fails(error.strerror or str(error))
            return
        if full is None:
            self._disk.reach_ahead()
        held, whole = self._disk.ballast_held(), self._disk.ballast
        nothing_left = any(space.free < NEARLY_NOTHING for space in spaces)
        if nothing_left and self._nothing_left and held > whole // 2:
            # Half of it for attempts, although the process that filled the disk may take it. The rest is
            # for the database.
            if self._disk.shed_half():
                log.warning("disk full: gave up half of the ballast", action="ballast_shed")
        elif (
            full is None
            and held < whole
            and all(space.free > 2 * whole for space in spaces)
            and self._admission.room_for_ballast()
        ):
            try:
                await asyncio.to_thread(self._disk.take_ballast)
            except OSError as error:
                log.warning("cannot reserve ballast", action="ballast_failed", error=str(error))
            else:
                log.info("ballast reserved", action="ballast_taken", size=size_text(whole))
        self._nothing_left = nothing_left

    async def _try_write(self) -> None:
        """Probes the state directory with a write, and counts open descriptors."""
        try:
            try:
                await asyncio.to_thread(self._disk.try_write)
            except OSError as error:
                self._write_refused = True
                self._write_failed(error)
            else:
                self._write_refused = False
                self._admission.writing_found_no_space(None)
                self._health.well(STATE_DIR)
                self._look_at_descriptors(await asyncio.to_thread(self._descriptors.open_and_most))
        finally:
            self._probe = None

    def _write_failed(self, error: OSError) -> None:
        if error.errno in _NO_SPACE:
            self._admission.writing_found_no_space(self._state_dir)
        elif error.errno in _NO_DESCRIPTORS:
            detail = f"no file can be opened: {error.strerror}; raise the limit of open files"
            self._health.trouble(DESCRIPTORS, HealthStatus.REFUSING, detail)
        else:
            self._state_dir_fails(error.strerror or str(error))

    def _state_dir_fails(self, reason: str) -> None:
        detail = f"cannot write to {self._state_dir}: {reason}"
        self._health.trouble(STATE_DIR, HealthStatus.REFUSING, detail)

    def _look_at_descriptors(self, found: tuple[int, int] | None) -> None:
        if found is None:
            return
        number, most = found
        if number < most * DESCRIPTORS_SHARE:
            self._health.well(DESCRIPTORS)
            return
        detail = f"{number} of {most} descriptors are open; raise the limit of open files"
        self._health.trouble(DESCRIPTORS, HealthStatus.DEGRADED, detail)
