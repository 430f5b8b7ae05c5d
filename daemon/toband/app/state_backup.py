"""A backup: what of the daemon's state goes into the archive, and in which order.

First the rows of one moment, then the files that these rows name. Files of attempts are only added to, so those that
are read later contain at least what the rows say. A run that is deleted meanwhile may have lost files: it is listed at
the end of the archive, and left out by a restore.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime

import structlog

from toban import __version__
from toband.config import Config
from toband.ports import BackupPiece, BackupProgress, BackupSummary, SecretKey, SecretKeyFile, StoppedError
from toband.state_archive.archive_format import CONFIG, DEFINITIONS, FORMAT, KEY, ROWS, RUNS, ArchiveEnd, Manifest
from toband.state_archive.archive_writer import ArchiveWriter
from toband.store import SqlStore
from toband.store.sql.row_snapshot import RowSnapshot
from toband.supervise.files.run_files import RunFiles
from toband.supervise.files.tree_walk import walk_tree
from toband.supervise.host.run_archive import MARK

CHUNK = 256 * 1024
"""Bytes of the archive in one piece, far below the limit of every client."""
AHEAD = 8
"""Pieces that are made before the reader takes them."""
PROGRESS_EVERY = 0.5
SHOWN = 20
"""Files that could not be read and are named."""
_NICE = 10
_DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")

log = structlog.get_logger()


class StateBackup:
    """`toband.ports.Backups`. Each backup has a thread of its own, at low priority."""

    def __init__(self, config: Config, store: SqlStore, files: RunFiles, key: SecretKeyFile, installation: str) -> None:
        self._config = config
        self._store = store
        self._files = files
        self._key = key
        self._installation = installation

    async def write(self, *, with_key: bool) -> AsyncGenerator[BackupPiece, None]:
        pieces = _PieceQueue(asyncio.get_running_loop())
        work = _Work(
            self._config, self._store, self._files, self._key if with_key else None, self._installation, pieces
        )
        threading.Thread(target=pieces.fill, args=[work.run], name="backup", daemon=True).start()
        try:
            while (piece := await pieces.take()) is not None:
                yield piece
        finally:
            pieces.stop()


class _PieceQueue:
    """From the thread that makes the pieces to the event loop, with a limit on both sides."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[BackupPiece | Exception | None] = asyncio.Queue(AHEAD)
        self._stopped = threading.Event()
        self._data = bytearray()

    async def take(self) -> BackupPiece | None:
        """None after the last one. Raises what the work raised."""
        piece = await self._queue.get()
        if isinstance(piece, Exception):
            raise piece
        return piece

    def stop(self) -> None:
        self._stopped.set()

    # -- in the thread

    def fill(self, work: Callable[[], None]) -> None:
        _lower_priority()
        # There is no reader for the error of a backup that was ended, or of a daemon that stops.
        with contextlib.suppress(StoppedError, RuntimeError):
            try:
                work()
            except StoppedError:
                raise
            except Exception as error:
                log.warning("a backup failed", action="backup_failed", error=str(error))
                self._put(error)
            else:
                self._put(None)

    def write(self, data: bytes) -> int:
        self._data += data
        while len(self._data) >= CHUNK:
            self._put(BackupPiece(data=bytes(self._data[:CHUNK])))
            del self._data[:CHUNK]
        return len(data)

    def flush(self) -> None:
        """What is left is passed on with the summary."""

    def progress(self, progress: BackupProgress) -> None:
        self._put(BackupPiece(progress=progress))

    def finish(self, summary: BackupSummary) -> None:
        if self._data:
            self._put(BackupPiece(data=bytes(self._data)))
        self._put(BackupPiece(summary=summary))

    def _put(self, piece: BackupPiece | Exception | None) -> None:
        """Waits for the reader. Raises StoppedError if there is none any more."""
        if self._stopped.is_set():
            raise StoppedError
        put = asyncio.run_coroutine_threadsafe(self._queue.put(piece), self._loop)
        while True:
            try:
                return put.result(PROGRESS_EVERY)
            except TimeoutError:
                if self._stopped.is_set() or not self._loop.is_running():
                    put.cancel()
                    raise StoppedError from None


class _Work:
    """In the thread. Raises StoreError, OSError, SecretKeyError, StoppedError."""

    def __init__(
        self,
        config: Config,
        store: SqlStore,
        files: RunFiles,
        key: SecretKeyFile | None,
        installation: str,
        pieces: _PieceQueue,
    ) -> None:
        self._config = config
        self._store = store
        self._files = files
        self._key = key
        self._installation = installation
        self._pieces = pieces
        self._archive = ArchiveWriter(pieces)
        self._run_ids = bytearray()
        self._rows = self._rows_total = self._runs = 0
        self._suspects: list[str] = []
        self._left_out: list[str] = []
        self._files_left_out = 0
        self._told_at = 0.0

    def run(self) -> None:
        # A rotation of the key may happen between: the key of the rows is among those before and after it.
        before = self._keys()
        with self._store.snapshot() as snapshot:
            manifest = self._manifest(snapshot)
            self._archive.begin(manifest)
            self._write_rows(snapshot)
        self._write_key(dict.fromkeys([*self._keys(), *before]))
        self._write_config(manifest)
        for run_id in self._each_run():
            self._write_run(run_id)
        removed = sorted(self._store.missing_runs(self._suspects))
        end = ArchiveEnd(
            files=self._archive.files,
            bytes=self._archive.bytes,
            removed_runs=removed,
            left_out=self._left_out,
            files_left_out=self._files_left_out,
        )
        self._archive.finish(end)
        self._pieces.finish(
            BackupSummary(
                runs=self._runs_total - len(removed),
                files=end.files,
                bytes=end.bytes,
                removed_runs=len(removed),
                left_out=tuple(self._left_out),
                files_left_out=self._files_left_out,
            )
        )

    def _manifest(self, snapshot: RowSnapshot) -> Manifest:
        counts = snapshot.counts()
        self._rows_total = sum(counts.values())
        self._runs_total = counts[RUNS]
        return Manifest(
            format=FORMAT,
            version=__version__,
            revision=snapshot.revision,
            database=self._store.kind,
            installation=self._installation,
            host=socket.gethostname(),
            state_dir=os.path.realpath(self._config.state_dir),
            taken_at=datetime.now(UTC).isoformat(),
            rows=counts,
            columns={name: list(table.columns) for name, table in snapshot.tables.items()},
            config_file=self._config.file,
            definitions=list(self._config.definitions),
            with_key=self._key is not None,
        )

    def _write_rows(self, snapshot: RowSnapshot) -> None:
        for name, table in snapshot.tables.items():
            place = table.columns.index("id") if name == RUNS else -1
            for number, (text, rows) in enumerate(snapshot.pieces(name)):
                self._archive.add_data(f"{ROWS}/{name}.{number:06}.jsonl", text)
                if name == RUNS:
                    self._run_ids += b"".join(uuid.UUID(row[place]).bytes for row in rows)
                self._rows += len(rows)
                self._tell()

    def _each_run(self) -> Iterator[str]:
        """In the order of their ids. A million of them take sixteen megabytes."""
        for start in range(0, len(self._run_ids), 16):
            yield str(uuid.UUID(bytes=bytes(self._run_ids[start : start + 16])))

    def _keys(self) -> list[SecretKey]:
        return list(self._key.read()) if self._key is not None else []

    def _write_key(self, keys: dict[SecretKey, None]) -> None:
        if keys:
            text = "".join(f"{base64.b64encode(key.key).decode()}\n" for key in keys)
            self._archive.add_data(KEY, text.encode())

    def _write_config(self, manifest: Manifest) -> None:
        if manifest.config_file:
            self._write_file(manifest.config_file, CONFIG)
        for number, path in enumerate(manifest.definitions):
            name = f"{DEFINITIONS}/{number}"
            if os.path.isfile(path):
                self._write_file(path, f"{name}/{os.path.basename(path)}")
            else:
                self._write_definitions(path, name)

    def _write_file(self, path: str, name: str) -> None:
        try:
            with open(path, "rb") as file:
                self._archive.add_file(name, os.fstat(file.fileno()), file.read)
        except OSError as error:
            self._leave_out(path, error.strerror or str(error))

    def _write_definitions(self, path: str, name: str) -> None:
        try:
            for entry in walk_tree(path, lambda inner, reason: self._leave_out(f"{path}/{inner}", reason)):
                if entry.fd >= 0 and entry.path.endswith(_DEFINITION_SUFFIXES):
                    self._archive.add_file(f"{name}/{entry.path}", entry.facts, _reader(entry.fd))
        except OSError as error:
            self._leave_out(path, error.strerror or str(error))

    def _write_run(self, run_id: str) -> None:
        """A run that never began has no directory; one that is being removed may have lost some of it."""
        top, name = self._files.run(run_id), f"{RUNS}/{run_id}"
        whole = False
        logs = set()
        with contextlib.suppress(FileNotFoundError):
            self._archive.add_entry(name, os.lstat(top))
            for entry in walk_tree(top, lambda path, reason: self._leave_out(f"{top}/{path}", reason)):
                if entry.path == MARK:
                    break
                inner = f"{name}/{entry.path}"
                if entry.fd >= 0:
                    self._archive.add_file(inner, entry.facts, _reader(entry.fd))
                    logs.add(entry.path)
                else:
                    self._archive.add_entry(inner, entry.facts, link=entry.link)
                self._tell()
            else:
                whole = True
            self._write_compressed_meanwhile(top, name, logs)
        if not whole:
            self._suspects.append(run_id)
        self._runs += 1
        self._tell()

    def _write_compressed_meanwhile(self, top: str, name: str, written: set[str]) -> None:
        """Logs that had another name when the directory was listed."""
        for log_name in os.listdir(f"{top}/attempts"):
            path = f"attempts/{log_name}"
            if path.endswith(".log.gz") and path not in written and path.removesuffix(".gz") not in written:
                self._write_file(f"{top}/{path}", f"{name}/{path}")

    def _leave_out(self, path: str, reason: str) -> None:
        self._files_left_out += 1
        if len(self._left_out) < SHOWN:
            self._left_out.append(f"{path}: {reason}")

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= PROGRESS_EVERY:
            self._told_at = now
            told = BackupProgress(
                rows=self._rows, rows_total=self._rows_total, runs=self._runs, runs_total=self._runs_total
            )
            self._pieces.progress(told)


def _reader(fd: int) -> Callable[[int], bytes]:
    return lambda size: os.read(fd, size)


def _lower_priority() -> None:
    if sys.platform == "linux":
        # On Linux every thread has its own niceness. A daemon's own niceness may already be higher.
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICE, os.getpriority(os.PRIO_PROCESS, thread)))
