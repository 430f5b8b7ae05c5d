"""What became of an attempt, by its file: the same way of looking on every system.

The file is the claim, the log and the end record in one; its lock is held by the living shim. Whoever finds no file
takes the claim himself: then no shim will ever have it, and the step has certainly not run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from toband.domain.events import AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.domain.model import Attempt
from toband.ports import Clock, Conditions, HealthStatus
from toband.supervise import frames, records
from toband.supervise.files import RunFiles
from toband.supervise.records import Claim, EndRecord, RecordError

LOOK_AGAIN = 1.0
"""Seconds before an attempt is looked up again when the disk would not answer."""
SHIM_TRIES = 3
ATTEMPT_FILES = "attempt_files"
ATTEMPT_RECORDS = "attempt_records"

ShimT = TypeVar("ShimT")

log = structlog.get_logger()


class Machine(Protocol[ShimT]):
    """What is different on each system. Everything is called in threads."""

    @property
    def boot_id(self) -> str: ...

    def open(self, path: str) -> int:
        """To read it. Raises OSError."""
        ...

    def claim(self, directory: str, name: str, facts: dict[str, Any]) -> int | None:
        """A descriptor of the claim; None if somebody else has it. Raises OSError."""
        ...

    def locked(self, fd: int) -> bool:
        """Whether somebody holds the claim."""
        ...

    def shim(self, pid: int, start: int) -> ShimT | None:
        """That process, if it lives."""
        ...

    def let_go(self, shim: ShimT) -> None: ...

    def end_left(self, attempt: Attempt, claim: Claim | None) -> str:
        """Ends what a dead shim may have left, if that can be found; what is known of it then."""
        ...


@dataclass(frozen=True, slots=True)
class _Unbelieved:
    """Lost, because its file says what cannot be."""

    event: AttemptLost
    reason: str


class Lookup(Generic[ShimT]):
    """Tells the conditions when the disk does not answer, and when a record says that it failed."""

    def __init__(
        self,
        files: RunFiles,
        machine: Machine[ShimT],
        clock: Clock,
        conditions: Conditions,
        shim_log: str,
    ) -> None:
        self._files = files
        self._machine = machine
        self._clock = clock
        self._conditions = conditions
        self._shim_log = shim_log
        self._unknown: set[str] = set()
        self._voids: dict[str, int] = {}
        self._unsynced = False
        self._unbelieved = 0

    async def once(self, attempt: Attempt) -> ShimT | EndRecord | Event:
        """The living shim, or what became of the attempt. Raises OSError if that cannot be known now."""
        try:
            found = await asyncio.to_thread(self._look, attempt)
        except OSError as error:
            self._failed(attempt, error)
            raise
        if attempt.id in self._unknown:
            self._unknown.discard(attempt.id)
            self._well_again()
        if isinstance(found, _Unbelieved):
            self._not_believed(attempt, found.reason)
            return found.event
        return found

    async def after_shim(self, attempt: Attempt) -> ShimT | EndRecord | Event:
        """The same for one whose shim has ended. It is never guessed: a disk that does not answer is asked again."""
        while True:
            try:
                found = await self.once(attempt)
            except OSError:
                await asyncio.sleep(LOOK_AGAIN)
                continue
            if not isinstance(found, AttemptVoided):
                return found
            # Somebody may have ended the shim before it began; one that fails every time is the step's failure.
            voids = self._voids[attempt.id] = self._voids.get(attempt.id, 0) + 1
            if voids < SHIM_TRIES:
                return found
            reason = f"cannot start the step's supervisor: it fails at once, see {self._shim_log}"
            return not_started(attempt, reason, self._clock.now())

    def forget(self, attempt: Attempt) -> None:
        """It has come to an end, and will not be tried again."""
        self._voids.pop(attempt.id, None)

    def started(self, attempt: Attempt) -> AttemptStarted | None:
        """None: its process is not known to have started yet."""
        with (
            contextlib.suppress(OSError, RecordError),
            open(self._files.log(attempt), "rb") as file,
        ):
            facts = frames.read_started(file.fileno())
            return None if facts is None else records.started(attempt, facts)
        return None

    def record(self, attempt: Attempt) -> EndRecord | None:
        """Its end record, if there is one that can be believed. Raises OSError if that cannot be known now."""
        with (
            contextlib.suppress(FileNotFoundError, RecordError),
            open(self._files.log(attempt), "rb", 0) as file,
        ):
            facts = frames.read_end(file.fileno())
            return None if facts is None else records.end_of(attempt, facts)
        return None

    def event_of(self, attempt: Attempt, found: EndRecord | Event) -> Event:
        """What is to be reported; what a record says of the disk goes to the conditions."""
        if not isinstance(found, EndRecord):
            return found
        if found.unsynced:
            self._unsynced = True
            detail = (
                f"the disk failed to store {self._files.log(attempt)} (fsync failed): look at the disk; "
                "the end is known, but what the step printed may be lost if the power fails"
            )
            self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        elif self._unsynced:
            self._unsynced = False
            self._well_again()
        return found.event

    def _not_believed(self, attempt: Attempt, reason: str) -> None:
        """Stays until the daemon is restarted: by then somebody should have looked who writes into these files."""
        self._unbelieved += 1
        others = f" ({self._unbelieved} since the start)" if self._unbelieved > 1 else ""
        detail = (
            f"an attempt file cannot be believed{others}: {reason} ({self._files.log(attempt)})"
        )
        self._conditions.trouble(ATTEMPT_RECORDS, HealthStatus.DEGRADED, detail)
        log.error("an attempt file cannot be believed", action="record_refused", attempt=attempt.id, run=attempt.run_id,
                  step=attempt.step, reason=reason)  # fmt: skip

    def _failed(self, attempt: Attempt, error: OSError) -> None:
        self._unknown.add(attempt.id)
        detail = (
            f"cannot find out what became of {len(self._unknown)} attempts, trying again: "
            f"{error.strerror or error} ({self._files.log(attempt)})"
        )
        self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        log.error(
            "cannot look up an attempt, trying again",
            action="look_failed", attempt=attempt.id, error=str(error),
        )  # fmt: skip

    def _well_again(self) -> None:
        if not self._unknown and not self._unsynced:
            self._conditions.well(ATTEMPT_FILES)

    # -- in a thread

    def _look(self, attempt: Attempt) -> ShimT | EndRecord | Event | _Unbelieved:
        path = self._files.log(attempt)
        for _ in range(1000):
            try:
                fd = self._machine.open(path)
            except FileNotFoundError:
                if self._void(attempt):
                    return AttemptVoided(step=attempt.step, token=attempt.token)
                continue
            try:
                found = self._read(attempt, fd)
            except RecordError as error:
                return self._unbelievable(attempt, str(error))
            finally:
                os.close(fd)
            if found is not None:
                return found
            time.sleep(0.001)
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error=f"the claim {path} is held by somebody who is not its supervisor",
            orphans="unknown",
        )

    def _unbelievable(self, attempt: Attempt, reason: str) -> _Unbelieved:
        lost = AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error=f"its attempt file cannot be believed: {reason}; whether the step did its work is unknown",
            orphans=self._machine.end_left(attempt, None),
        )
        return _Unbelieved(lost, reason)

    def _void(self, attempt: Attempt) -> bool:
        """Whether the claim could be had."""
        directory = self._files.attempts(attempt.run_id)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        facts = {
            "format": frames.FORMAT,
            "attempt": attempt.id,
            "token": attempt.token,
            "void": True,
        }
        won = self._machine.claim(directory, self._files.log_name(attempt), facts)
        if won is None:
            return False
        os.close(won)
        return True

    def _read(self, attempt: Attempt, fd: int) -> ShimT | EndRecord | Event | None:
        """What a claimed file says; None when it changed under our eyes. Raises RecordError."""
        boot_id = self._machine.boot_id
        facts = frames.read_claim(fd)
        claim = None if facts is None else records.claim_of(attempt, facts)
        if claim is not None and claim.void:
            return AttemptVoided(step=attempt.step, token=attempt.token)
        if claim is not None and self._machine.locked(fd):
            if claim.boot_id != boot_id:
                return None
            shim = self._machine.shim(claim.pid, claim.start)
            if shim is not None and not self._machine.locked(fd):
                self._machine.let_go(shim)
                return None
            return shim
        record = frames.read_end(fd)
        if record is not None:
            return records.end_of(attempt, record)
        # A power cut may leave a claim its name and not its text.
        booted = (claim.boot_id if claim is not None else attempt.boot_id) != boot_id
        if claim is None and not booted:
            raise RecordError("its claim is not there, or cannot be read")
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error="the machine went down while it ran"
            if booted
            else "its supervisor ended without a record; whether the step did its work is unknown",
            orphans="none" if booted else self._machine.end_left(attempt, claim),
        )
