"""The files of ended runs: compresses them at low priority, measures and removes them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from toband.domain.attempt_model import Attempt, AttemptState
from toband.ports import RunSize, StoppedError, Stray
from toband.supervise.artifacts import value_files
from toband.supervise.files.run_directories import remove_tree, size_on_disk
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.compressed_log import NEW_SUFFIX, SMALLEST, compress
from toband.supervise.shim import frames

MARK = ".expired"
"""Marks the directory of a run that is about to be removed. Only marked directories are removed as garbage without a
request: a directory may be unknown because the daemon was given another database.
"""
_NICE = 10
_CLAIM_AGE = 300.0
"""Age in seconds below which a prepared claim may still be in use."""
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PREPARED = re.compile(r"\..*\.log\.[0-9]+")

T = TypeVar("T")

log = structlog.get_logger()


class RunArchive:
    """Implements `ports.Archive` over `STATE_DIR/runs`."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="archive")
        # Compression runs without the interpreter lock; a thread that needs the lock must not be starved.
        self._packing = ThreadPoolExecutor(1, thread_name_prefix="packing", initializer=_at_low_priority)

    async def close(self) -> None:
        self._closed.set()
        for pool in (self._pool, self._packing):
            pool.shutdown(wait=False, cancel_futures=True)

    async def compressible(self, run_id: str) -> int:
        return len(await self._do(lambda: self._plain_logs(run_id)))

    async def compress(self, attempts: Sequence[Attempt]) -> int:
        count = 0
        for attempt in attempts:
            if attempt.state.terminal:
                loop = asyncio.get_running_loop()
                count += await loop.run_in_executor(self._packing, self._compress, attempt)
        return count

    async def tidy(self, run_id: str) -> int:
        return await self._do(lambda: self._tidy(run_id))

    async def measure(self, run_id: str) -> RunSize:
        return await self._do(
            lambda: RunSize(
                bytes=size_on_disk(self._files.run(run_id), self._go_on),
                log_bytes=self._log_bytes(run_id),
            )
        )

    async def log_bytes(self, run_ids: Collection[str]) -> int:
        # Not queued after a log of gigabytes that is being compressed.
        return await asyncio.to_thread(lambda: sum(map(self._log_bytes, run_ids)))

    async def condemn(self, run_ids: Sequence[str]) -> Sequence[str]:
        return await self._do(lambda: [each for each in run_ids if self._condemn(each)])

    async def remove(self, run_id: str) -> None:
        await self._do(lambda: remove_tree(self._files.run(run_id), last=MARK, go_on=self._go_on, as_owners=True))

    async def directories(self) -> Sequence[Stray]:
        return await self._do(self._directories)

    async def hold_output(self, full: bool) -> None:
        await self._do(lambda: self._hold_output(full))

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # -- in the threads

    def _go_on(self) -> bool:
        return not self._closed.is_set()

    def _plain_logs(self, run_id: str) -> list[str]:
        found = []
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(self._files.attempts(run_id)) as entries,
        ):
            for entry in entries:
                if entry.name.endswith(".log") and not entry.name.startswith("."):
                    facts = entry.stat(follow_symlinks=False)
                    if entry.is_file(follow_symlinks=False) and facts.st_size >= SMALLEST:
                        found.append(entry.path)
        return found

    def _compress(self, attempt: Attempt) -> bool:
        path = self._files.log(attempt)
        if not self._go_on():
            return False
        try:
            fd = os.open(path, _READ)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(fd).st_size < SMALLEST or not _over(attempt, fd):
                return False
            if _held(fd):
                raise BlockingIOError(errno.EAGAIN, "its supervisor has not gone yet", path)
            with contextlib.suppress(StoppedError):
                before = os.fstat(fd).st_size
                after = compress(path, fd, go_on=self._go_on)
                log.debug("compressed a log", action="compressed", path=path, before=before, after=after)
                return True
            return False
        finally:
            os.close(fd)

    def _tidy(self, run_id: str) -> int:
        count = 0
        directory = self._files.attempts(run_id)
        with contextlib.suppress(OSError):
            for name in os.listdir(directory):
                path = f"{directory}/{name}"
                with contextlib.suppress(OSError):
                    prepared = _PREPARED.fullmatch(name) is not None
                    old = prepared and time.time() - os.lstat(path).st_mtime > _CLAIM_AGE
                    if old or name.endswith((NEW_SUFFIX, value_files.NEW_SUFFIX)):
                        os.unlink(path)
                        count += 1
        return count

    def _log_bytes(self, run_id: str) -> int:
        return size_on_disk(self._files.attempts(run_id), self._go_on)

    def _condemn(self, run_id: str) -> bool:
        directory = self._files.run(run_id)
        try:
            # Anything that a step put there under that name marks it as well, and is not written to.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{directory}/{MARK}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            if sys.platform != "win32":
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                # The removal will free the space. After a crash before it, only a requested pass removes a directory
                # without a mark.
                return True
            log.warning("cannot remove a run", action="remove_failed", run=run_id, error=str(error))
            return False
        return True

    def _directories(self) -> list[Stray]:
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._files.root) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if _UUID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                        facts = entry.stat(follow_symlinks=False)
                        stray = Stray(
                            run_id=entry.name,
                            condemned=os.path.lexists(f"{entry.path}/{MARK}"),
                            changed_at=datetime.fromtimestamp(facts.st_mtime, UTC),
                        )
                        found.append(stray)
        return found

    def _hold_output(self, full: bool) -> None:
        # Shims check for it while their steps print.
        if full:
            os.close(os.open(self._files.logs_full, os.O_WRONLY | os.O_CREAT, 0o600))
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._files.logs_full)


_READ: int = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _over(attempt: Attempt, fd: int) -> bool:
    """Whether nothing will ever be added: it ends with its end record, or no shim is left to write one."""
    return attempt.state is AttemptState.LOST or frames.read_end(fd) is not None


def _held(fd: int) -> bool:
    """Whether a live shim has the file locked, whatever the database says."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _at_low_priority() -> None:
    if sys.platform == "linux":
        # On Linux every thread has its own niceness. A daemon's own niceness may already be higher.
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, thread))
            os.setpriority(os.PRIO_PROCESS, thread, nice)
