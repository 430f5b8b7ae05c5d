"""The note that the database of a state directory was moved: no daemon starts on the old one by accident."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from toband import stored_json
from toband.state_dir import StateDir, StateDirError

FILE = "database-moved.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDatabase:
    """URLs are without passwords."""

    before: str
    after: str
    at: str


def moved_database(state: StateDir) -> MovedDatabase | None:
    """Raises StateDirError if the note is damaged; OSError."""
    try:
        with open(state.join(FILE), encoding="utf-8") as file:
            known = stored_json.parse_object(file.read())
        return MovedDatabase(**{name: str(known[name]) for name in MovedDatabase.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise StateDirError(f"cannot read {state.join(FILE)}: {error}") from None


def note_moved(state: StateDir, before: str, after: str, now: datetime) -> None:
    """Raises OSError."""
    moved = MovedDatabase(before=before, after=after, at=now.isoformat(timespec="seconds"))
    state.write_durably(FILE, lambda _: json.dumps(asdict(moved)))


def refuse_moved(state: StateDir, database: str) -> None:
    """Raises StateDirError if that is the database from which the rows were moved away."""
    moved = moved_database(state)
    if moved is not None and moved.before == database:
        raise StateDirError(
            f"cannot use the database {database}: it was moved to {moved.after} at {moved.at}; set `database` to that, "
            f"or remove {state.join(FILE)} to go back to the old one, without what happened since"
        )
