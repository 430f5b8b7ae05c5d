"""Moves the rows of a state directory to another database, while no daemon runs on it."""

from __future__ import annotations

from datetime import UTC, datetime

from toband.config import Config
from toband.config.value_checks import without_password
from toband.installation import owner_of
from toband.moved_database import moved_database, note_moved
from toband.ports import StoreError
from toband.state_dir import StateDir
from toband.store.sql.database_copy import DatabaseCopy, Progress


class StoreMove:
    def __init__(self, config: Config, target: str, progress: Progress) -> None:
        self._config = config
        self._target = target
        self._progress = progress

    def run(self) -> dict[str, object]:
        """What was moved. Raises StateDirError if a daemon runs on the directory; StoreError, OSError."""
        state = StateDir(self._config.state_dir)
        state.acquire()
        try:
            before, after = without_password(self._config.database), without_password(self._target)
            known = moved_database(state)
            owner = owner_of(state, datetime.now(UTC))
            copy = DatabaseCopy(self._config.database, self._target, owner, self._progress)
            if known is not None and (known.before, known.after) == (before, after) and copy.is_done():
                raise StoreError(f"cannot move the database: it was moved there at {known.at}; set `database` to that")
            digests = copy.run(lambda: note_moved(state, before, after, datetime.now(UTC)))
        finally:
            state.release()
        return {
            "database": after,
            "config_file": self._config.file,
            "rows": sum(each.rows for each in digests.values()),
            "tables": [
                {"table": name, "rows": each.rows, "sha256": each.sha256} for name, each in sorted(digests.items())
            ],
        }
