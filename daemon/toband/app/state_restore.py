"""A restore: makes a state directory and a database of a backup, all of it or nothing that a daemon would start on.

The whole archive is verified first. From then on until the end the directory has a file that keeps every daemon from
starting on it, so a restore that was killed is simply repeated: it removes what the one before left.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

from toband import failpoints
from toband.config.value_checks import without_password
from toband.restored_state import RestoredState, begin_restore, finish_restore, unfinished_restore
from toband.secret_backends.key_file import NAME as KEY_NAME
from toband.secret_backends.key_file import KeyFile, key_of
from toband.state_archive.archive_format import CONFIG, DEFINITIONS, KEY, ROWS, RUNS, ArchiveError, Manifest
from toband.state_archive.archive_reader import ArchiveReader, Member
from toband.state_archive.restored_files import RestoredFiles
from toband.state_dir import RESTORING, StateDir
from toband.store import SqlStore
from toband.store.sql.row_target import RowTarget
from toband.store.sql.schema_revision import require_known

FROM_BACKUP = "from-backup"
"""The directory with the files that a restore does not put where they were."""
_LOCK = "toband.lock"
_ROOM = 1.1
"""How much more space than the files themselves a restore asks for."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is of it."""


class RestoreError(Exception):
    """The backup cannot be restored there; the text says why."""


class StateRestore:
    def __init__(self, file: str, state_dir: str, url: str, progress: Progress) -> None:
        """An empty `url` is the SQLite file in the directory."""
        self._file = file
        self._state = StateDir(os.path.abspath(state_dir))
        self._url = url or f"sqlite:///{quote(self._state.path)}/toban.db"
        self._shown_url = without_password(url)
        self._progress = progress
        self._manifest: Manifest
        self._directories = 0
        self.runs = 0

    def run(self) -> RestoredState:
        """Raises RestoreError, ArchiveError, StateDirError, StoreError, OSError.

        Then either nothing was written, or no daemon starts on the directory.
        """
        checked = self._verify()
        self._manifest = checked.manifest
        self.runs = checked.manifest.rows[RUNS] - len(checked.end.removed_runs)
        require_known(self._manifest.revision)
        self._refuse_used_directory()
        target = RowTarget(self._url)
        self._state.acquire(restoring=True)
        try:
            before = unfinished_restore(self._state)
            self._refuse_used_database(target, before)
            facts = self._facts()
            begin_restore(self._state, facts)
            failpoints.hit("restore.begun")
            self._remove_remains()
            self._check_room(checked.end.bytes)
            self._load(target, before)
            asyncio.run(self._drop_removed(checked.end.removed_runs))
            failpoints.hit("restore.loaded")
            finish_restore(self._state)
        finally:
            self._state.release()
        return facts

    def _verify(self) -> ArchiveReader:
        size = os.stat(self._file).st_size
        reader = ArchiveReader(self._file, lambda done: self._progress("verifying", done, size))
        reader.verify()
        return reader

    def _facts(self) -> RestoredState:
        known = self._manifest
        return RestoredState(
            taken_at=known.taken_at,
            restored_at=datetime.now(UTC).isoformat(),
            installation=known.installation,
            host=known.host,
            state_dir=known.state_dir,
            version=known.version,
            database=self._shown_url,
        )

    # -- what is there

    def _refuse_used_directory(self) -> None:
        path = self._state.path
        if not os.path.isdir(path):
            return
        names = set(os.listdir(path))
        if names and RESTORING not in names and not self._is_new(names):
            raise RestoreError(f"cannot restore to {path}: the directory is not empty; name a new one")
        owner = os.stat(path).st_uid
        if sys.platform != "win32" and os.geteuid() == 0 and owner != 0:
            raise RestoreError(
                f"cannot restore to {path}: it belongs to another user, who could not read what root restores; "
                f"run it as that user: sudo -u '#{owner}' toban restore …"
            )

    def _is_new(self, names: set[str]) -> bool:
        """Whether there is only what a restore leaves that was killed at its beginning."""
        runs = self._state.join(RUNS)
        return names <= {_LOCK, RUNS, f"{RESTORING}.new"} and not (os.path.isdir(runs) and os.listdir(runs))

    def _refuse_used_database(self, target: RowTarget, before: RestoredState | None) -> None:
        """Only what an earlier restore of this directory left there is removed."""
        ours = before is not None and before.database == self._shown_url
        if target.file:
            if os.path.exists(target.file) and not ours:
                raise RestoreError(f"cannot restore to {target.file}: the database exists")
            return
        with target:
            if target.is_new():
                return
            if not ours or not target.is_unclaimed():
                raise RestoreError("cannot restore to that database: it has tables of toban; name an empty one")

    def _remove_remains(self) -> None:
        kept = (_LOCK, RESTORING)
        for name in os.listdir(self._state.path):
            path = self._state.join(name)
            if name in kept:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        os.mkdir(self._state.join(RUNS), 0o700)

    def _check_room(self, files: int) -> None:
        free = shutil.disk_usage(self._state.path).free
        if files * _ROOM > free:
            raise RestoreError(
                f"cannot restore to {self._state.path}: the files of the backup have {files:,} bytes, "
                f"and {free:,} bytes are free"
            )

    # -- filling

    def _load(self, target: RowTarget, before: RestoredState | None) -> None:
        if target.file:
            for suffix in ("", "-wal", "-shm"):
                if before is not None and os.path.exists(target.file + suffix):
                    os.unlink(target.file + suffix)
        with target:
            if not target.file and not target.is_new():
                target.clear()
            target.create(self._manifest.revision)
            reader = ArchiveReader(self._file)
            files = RestoredFiles(self._state.path)
            rows, total = 0, sum(self._manifest.rows.values())
            for member in reader.members():
                room, _, rest = member.info.name.partition("/")
                if room == ROWS:
                    rows += self._write_rows(target, rest, member)
                    self._progress("restoring rows", rows, total)
                elif room == KEY and not rest:
                    self._write_key(member)
                elif room == RUNS and rest:
                    self._count(rest)
                    files.add(member, member.info.name)
                elif room in (CONFIG, DEFINITIONS):
                    files.add(member, f"{FROM_BACKUP}/{member.info.name}")
                else:
                    raise ArchiveError(f"cannot use the backup {self._file}: it has an unknown part {room!r}")
                failpoints.hit("restore.member")
            files.close()
            if rows != total:
                raise ArchiveError(f"cannot use the backup {self._file}: it has {rows} of {total} rows")
            target.finish()

    def _write_rows(self, target: RowTarget, name: str, member: Member) -> int:
        table = name.partition(".")[0]
        columns = self._manifest.columns.get(table)
        if columns is None:
            raise ArchiveError(f"cannot use the backup {self._file}: its manifest does not know the table {table}")
        return target.write(table, columns, member.data())

    def _count(self, rest: str) -> None:
        if "/" not in rest:
            self._directories += 1
            self._progress("restoring files of runs", self._directories, self._manifest.rows[RUNS])

    def _write_key(self, member: Member) -> None:
        keys = [key_of(base64.b64decode(line)) for line in member.data().split()]
        KeyFile(self._state.join(KEY_NAME)).keep(keys)

    async def _drop_removed(self, run_ids: list[str]) -> None:
        """Runs that were deleted while the backup was made. It also opens the database as a daemon does."""
        store = SqlStore(self._url)
        await store.open()
        try:
            if run_ids:
                await store.delete_runs(run_ids)
        finally:
            await store.close()
