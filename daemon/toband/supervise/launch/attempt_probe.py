"""The attempt probe: reads the state of an attempt from its file, on every system.

The file is claim, log and end record in one, and the living shim holds its lock. It has two names, and the probe tries
both. If there is no file and the attempt is not known to have started, the probe takes the claim itself: no shim can
take it any more, so the step certainly never runs. `verdict` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import structlog

from toband.domain.attempt_model import Attempt, AttemptState, Orphans, Progress
from toband.domain.run_events import AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.ports import Clock, Conditions, HealthStatus
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch import end_record
from toband.supervise.launch.end_record import Claim, EndRecord, RecordError
from toband.supervise.launch.verdict import AttemptFileState, Verdict, judge
from toband.supervise.logs.progress_tail import progress_before
from toband.supervise.shim import frames

LOOK_AGAIN = 1.0
"""Seconds before a failed probe is repeated."""
SHIM_TRIES = 3
ATTEMPT_FILES = "attempt_files"
ATTEMPT_RECORDS = "attempt_records"

ShimT = TypeVar("ShimT")

log = structlog.get_logger()


class ProbedHost(Protocol[ShimT]):
    """What differs between systems. Every method is called in threads."""

    @property
    def boot_id(self) -> str: ...

    def open(self, path: str) -> int:
        """To read it. Raises OSError."""
        ...

    def claim(self, directory: str, name: str, facts: dict[str, Any], second: str) -> int | None:
        """A descriptor of the claim; None if another process has it. Raises OSError."""
        ...

    def locked(self, fd: int) -> bool:
        """Whether a process has the claim locked."""
        ...

    def shim(self, claim: Claim) -> ShimT | None:
        """The process that the claim names, if it lives."""
        ...

    def holder(self, path: str) -> ShimT | None:
        """The living shim that has this attempt file open, even if the file was unlinked."""
        ...

    def let_go(self, shim: ShimT) -> None: ...

    def end_left(self, attempt: Attempt, claim: Claim | None) -> Orphans:
        """Ends what a dead shim may have left, if that can be found; what is known of it then."""
        ...


@dataclass(frozen=True, slots=True)
class _Unbelieved:
    """Lost, because its file contradicts itself or the database."""

    event: AttemptLost
    reason: str


@dataclass(frozen=True, slots=True)
class _Seen(Generic[ShimT]):
    """The result of one probe. `reason` says why the file is not trusted."""

    file: AttemptFileState
    shim: ShimT | None = None
    claim: Claim | None = None
    record: EndRecord | None = None
    reason: str = ""


class AttemptProbe(Generic[ShimT]):
    """Reports to health when the disk fails, and when a record says that a sync failed."""

    def __init__(
        self,
        files: RunFiles,
        host: ProbedHost[ShimT],
        clock: Clock,
        conditions: Conditions,
        shim_log: str,
    ) -> None:
        self._files = files
        self._host = host
        self._clock = clock
        self._conditions = conditions
        self._shim_log = shim_log
        self._unknown: set[str] = set()
        self._voids: dict[str, int] = {}
        self._unsynced = False
        self._unbelieved = 0

    async def once(self, attempt: Attempt, *, claimed: bool = False) -> ShimT | EndRecord | Event:
        """The living shim, or the end of the attempt. Raises OSError if the disk cannot be read now.

        `claimed`: the shim is known to have taken the claim, even if the file is missing.
        """
        begun = claimed or attempt.state is AttemptState.RUNNING
        try:
            found = await asyncio.to_thread(self._look, attempt, begun)
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

    async def after_shim(self, attempt: Attempt, *, claimed: bool) -> ShimT | EndRecord | Event:
        """The same for an attempt whose shim has exited. It never guesses: a failed probe is repeated."""
        while True:
            try:
                found = await self.once(attempt, claimed=claimed)
            except OSError:
                await asyncio.sleep(LOOK_AGAIN)
                continue
            if not isinstance(found, AttemptVoided):
                return found
            # A shim may have been killed before it began. If it fails every time, the step fails.
            voids = self._voids[attempt.id] = self._voids.get(attempt.id, 0) + 1
            if voids < SHIM_TRIES:
                return found
            reason = f"cannot start the step's supervisor: it fails at once, see {self._shim_log}"
            return not_started(attempt, reason, self._clock.now())

    def forget(self, attempt: Attempt) -> None:
        """The attempt has ended; forget how often its shim failed."""
        self._voids.pop(attempt.id, None)

    def started(self, attempt: Attempt) -> AttemptStarted | None:
        """None if its process has not started yet."""
        with contextlib.suppress(OSError, RecordError), self._opened(attempt) as fd:
            facts = frames.read_started(fd)
            if facts is not None:
                claim = end_record.claim_of(attempt, frames.read_claim(fd) or {})
                return replace(end_record.started(attempt, facts), command=claim.command)
        return None

    def record(self, attempt: Attempt) -> EndRecord | None:
        """Its end record, if there is a valid one. Raises OSError if the disk cannot be read now."""
        with contextlib.suppress(FileNotFoundError, RecordError), self._opened(attempt) as fd:
            claimed = frames.read_claim(fd) or {}
            claim = end_record.claim_of(attempt, claimed)
            facts = frames.read_end(fd, claimed)
            return None if facts is None else _end_of(attempt, fd, claim, facts)
        return None

    def event_of(self, attempt: Attempt, found: EndRecord | Event) -> Event:
        """The event to report. Failed syncs in a record go to health."""
        if not isinstance(found, EndRecord):
            return found
        if found.unsynced:
            self._unsynced = True
            detail = (
                f"the disk failed to store {self._files.log(attempt)} (fsync failed): check the disk; "
                "the end of the step is known, but its output may be lost at a power cut"
            )
            self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        elif self._unsynced:
            self._unsynced = False
            self._well_again()
        return found.event

    def _not_believed(self, attempt: Attempt, reason: str) -> None:
        """The condition stays until a restart: an operator should find out what writes into these files."""
        self._unbelieved += 1
        others = f" ({self._unbelieved} since the start)" if self._unbelieved > 1 else ""
        detail = f"an attempt file is damaged or forged{others}: {reason} ({self._files.log(attempt)})"
        self._conditions.trouble(ATTEMPT_RECORDS, HealthStatus.DEGRADED, detail)
        log.error(
            "attempt file damaged or forged",
            action="record_refused",
            attempt=attempt.id,
            run=attempt.run_id,
            step=attempt.step,
            reason=reason,
        )

    def _failed(self, attempt: Attempt, error: OSError) -> None:
        self._unknown.add(attempt.id)
        detail = (
            f"cannot probe {len(self._unknown)} attempts, trying again: "
            f"{error.strerror or error} ({self._files.log(attempt)})"
        )
        self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        log.error(
            "cannot probe an attempt, trying again",
            action="look_failed",
            attempt=attempt.id,
            error=str(error),
        )

    def _well_again(self) -> None:
        if not self._unknown and not self._unsynced:
            self._conditions.well(ATTEMPT_FILES)

    # -- the file

    @contextlib.contextmanager
    def _opened(self, attempt: Attempt) -> Iterator[int]:
        """A descriptor of its file. Raises OSError; FileNotFoundError if it has neither of its names."""
        try:
            fd = self._host.open(self._files.claim(attempt))
            self._name_again(attempt, fd)
        except FileNotFoundError:
            fd = self._host.open(self._files.log(attempt))
        try:
            yield fd
        finally:
            os.close(fd)

    def _name_again(self, attempt: Attempt, fd: int) -> None:
        """Restores the first name of a file that was found under its second one; logs are read by the first."""
        path = self._files.log(attempt)
        own = os.fstat(fd)
        try:
            named = os.stat(path)
            if (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino):
                return
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError:
            return
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.link(self._files.claim(attempt), path)
            log.warning(
                "restored an attempt file that was removed or replaced",
                action="file_named_again",
                attempt=attempt.id,
                file=path,
            )

    # -- in a thread

    def _look(self, attempt: Attempt, begun: bool) -> ShimT | EndRecord | Event | _Unbelieved:
        for _ in range(1000):
            seen = self._examine(attempt, begun)
            if seen is None:
                time.sleep(0.001)
                continue
            match judge(begun=begun, file=seen.file, supervised=seen.shim is not None):
                case Verdict.SUPERVISE:
                    assert seen.shim is not None
                    return seen.shim
                case Verdict.TAKE_RESULT:
                    assert seen.record is not None
                    return seen.record
                case Verdict.LAUNCH_AGAIN:
                    return AttemptVoided(step=attempt.step, token=attempt.token)
                case Verdict.LOST:
                    return self._lost(attempt, seen)
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error=f"the claim {self._files.log(attempt)} is held by a process that is not its supervisor",
            orphans=Orphans.UNKNOWN,
        )

    def _examine(self, attempt: Attempt, begun: bool) -> _Seen[ShimT] | None:
        """None if the file changed during the probe."""
        try:
            with self._opened(attempt) as fd:
                seen = self._read(attempt, fd)
        except FileNotFoundError:
            if not begun and not self._void(attempt):
                return None
            seen = _Seen(AttemptFileState.MISSING if begun else AttemptFileState.VOID)
        except RecordError as error:
            seen = _Seen(AttemptFileState.DAMAGED, reason=str(error))
        if seen is None or seen.file in (AttemptFileState.CLAIM, AttemptFileState.END):
            return seen
        # Only after taking the claim: a shim that is not found now has started nothing and never will.
        return replace(seen, shim=self._host.holder(self._files.log(attempt)))

    def _void(self, attempt: Attempt) -> bool:
        """Takes the claim, so that no shim can; False if a shim was first."""
        directory = self._files.attempts(attempt.run_id)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        facts = {
            "format": frames.FORMAT,
            "attempt": attempt.id,
            "token": attempt.token,
            "void": True,
        }
        name, second = self._files.log_name(attempt), self._files.claim(attempt)
        won = self._host.claim(directory, name, facts, second)
        if won is None:
            return False
        os.close(won)
        return True

    def _read(self, attempt: Attempt, fd: int) -> _Seen[ShimT] | None:
        """The state of a claimed file; None if it changed during the probe. Raises RecordError."""
        facts = frames.read_claim(fd)
        if facts is None:
            # A power cut may leave the name of a claim without its content.
            raise RecordError("its claim is not there, or cannot be read")
        claim = end_record.claim_of(attempt, facts)
        if claim.void:
            return _Seen(AttemptFileState.VOID)
        if self._host.locked(fd):
            if claim.boot_id != self._host.boot_id:
                return None
            shim = self._host.shim(claim)
            if shim is not None and self._host.locked(fd):
                return _Seen(AttemptFileState.CLAIM, shim, claim)
            if shim is not None:
                self._host.let_go(shim)
            return None
        record = frames.read_end(fd, facts)
        if record is None:
            return _Seen(AttemptFileState.CLAIM, None, claim)
        return _Seen(AttemptFileState.END, None, claim, _end_of(attempt, fd, claim, record))

    def _lost(self, attempt: Attempt, seen: _Seen[ShimT]) -> AttemptLost | _Unbelieved:
        # The database first: a step of the daemon's own user could have changed its claim.
        boot_id = attempt.boot_id or (seen.claim.boot_id if seen.claim else "")
        booted = boot_id not in ("", self._host.boot_id)
        unknown = "whether the step finished its work is unknown"
        match seen.file:
            case _ if booted:
                error = "the machine went down while the step ran"
            case AttemptFileState.DAMAGED:
                error = f"its attempt file is damaged or forged: {seen.reason}; {unknown}"
            case AttemptFileState.MISSING | AttemptFileState.VOID:
                error = f"its attempt file is gone; {unknown}"
            case _:
                error = f"its supervisor exited without an end record; {unknown}"
        lost = AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error=error,
            orphans=Orphans.NONE if booted else self._host.end_left(attempt, seen.claim),
            progress=self._last_progress(attempt),
        )
        damaged = seen.file is AttemptFileState.DAMAGED and not booted
        return _Unbelieved(lost, seen.reason) if damaged else lost

    def _last_progress(self, attempt: Attempt) -> Progress | None:
        """Of an attempt without an end record. It is a hint: a file that cannot be read has none."""
        with contextlib.suppress(OSError), self._opened(attempt) as fd:
            return _progress_before(os.fstat(fd).st_size, fd)
        return None


def _end_of(attempt: Attempt, fd: int, claim: end_record.Claim, facts: Mapping[str, Any]) -> EndRecord:
    """Its end record, with the last progress that it reported. Raises RecordError."""
    found = end_record.end_of(attempt, facts)
    found = replace(found, event=replace(found.event, command=claim.command))
    if not (found.event.stdout_bytes or found.event.stderr_bytes):
        return found
    progress = _progress_before(frames.log_size(fd), fd)
    return found if progress is None else replace(found, event=replace(found.event, progress=progress))


def _progress_before(end: int, fd: int) -> Progress | None:
    return progress_before(end, lambda size, offset: frames.pread(fd, size, offset))
