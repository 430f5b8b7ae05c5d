"""The note that a restore leaves in the state directory: its backup, and whether the daemon holds.

The file is made by a restore as its last act. Its daemon holds everything until an administrator resumes it, also
after a restart: runs that had not ended may have gone on, after the backup, where it was made.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from toband import stored_json
from toband.state_dir import RESTORING, StateDir, StateDirError

FILE = "restored.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    taken_at: str
    """When the backup was made; all times are in ISO 8601."""
    restored_at: str
    installation: str
    """The one that the backup is of."""
    host: str
    state_dir: str
    version: str
    database: str
    """The URL without its password; empty: the file in the state directory."""
    resumed_at: str = ""
    """Empty while everything is held."""

    @property
    def held(self) -> bool:
        return not self.resumed_at

    @property
    def described(self) -> str:
        taken = datetime.fromisoformat(self.taken_at).astimezone(UTC)
        return f"the backup of {self.state_dir} on {self.host}, made {taken:%Y-%m-%d %H:%M:%S} UTC"


def restored_state(state: StateDir) -> RestoredState | None:
    """None if the directory was not made by a restore. Raises StateDirError if the file is damaged; OSError."""
    try:
        with open(state.join(FILE), encoding="utf-8") as file:
            known = stored_json.parse_object(file.read())
        found = _parsed(known)
        datetime.fromisoformat(found.taken_at)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StateDirError(f"cannot read {state.join(FILE)}: {error}; restore the backup again") from None
    return found


def unfinished_restore(state: StateDir) -> RestoredState | None:
    """The restore that did not fill the directory to its end. Raises OSError."""
    try:
        with open(state.join(RESTORING), encoding="utf-8") as file:
            return _parsed(stored_json.parse_object(file.read()))
    except (ValueError, KeyError, TypeError):
        # Cut off in its first write, before anything else was there.
        return RestoredState(
            taken_at="", restored_at="", installation="", host="", state_dir="", version="", database=""
        )
    except FileNotFoundError:
        return None


def begin_restore(state: StateDir, facts: RestoredState) -> None:
    """From here on no daemon starts on the directory. Raises OSError."""
    state.write_durably(RESTORING, lambda _: json.dumps(asdict(facts)))


def finish_restore(state: StateDir) -> None:
    """Makes everything that was written durable, and then lets a daemon start. Raises OSError."""
    if hasattr(os, "sync"):
        os.sync()
    os.replace(state.join(RESTORING), state.join(FILE))
    state.sync()


def note_resumed(state: StateDir, known: RestoredState, now: datetime) -> None:
    """Raises OSError."""
    values = {**asdict(known), "resumed_at": now.isoformat()}
    state.write_durably(FILE, lambda _: json.dumps(values))


def _parsed(known: dict[str, Any]) -> RestoredState:
    return RestoredState(**{name: str(known[name]) for name in RestoredState.__dataclass_fields__})
