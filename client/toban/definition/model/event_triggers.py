"""Events that start a workflow: its triggers, and the types that the daemon itself emits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

RUN_SUCCEEDED: Final = "RUN_SUCCEEDED"
RUN_FAILED: Final = "RUN_FAILED"
STEP_FAILED: Final = "STEP_FAILED"
SCHEDULE_TRIGGERED: Final = "SCHEDULE_TRIGGERED"
DEFINITION_CHANGED: Final = "DEFINITION_CHANGED"
FILE_CHANGED: Final = "FILE_CHANGED"
DAEMON_STARTED: Final = "DAEMON_STARTED"
DATA_CHANGED: Final = "DATA_CHANGED"
"""The usual type for changes of users' own data and records; the daemon never emits it."""

BUILT_IN: Final = frozenset(
    {
        RUN_SUCCEEDED,
        RUN_FAILED,
        STEP_FAILED,
        SCHEDULE_TRIGGERED,
        DEFINITION_CHANGED,
        FILE_CHANGED,
        DAEMON_STARTED,
    }
)
LONGEST_TYPE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a trigger starts runs, in seconds; separately for each value of `key`, a field of the event.

    `quiet` (debounce): one run once no event came for so long, `longest` after the first event at the latest. `per`
    (throttle): at most `limit` runs in that time.
    """

    quiet: float = 0.0
    longest: float = 0.0
    limit: int = 0
    per: float = 0.0
    key: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Pace:
        return Pace(**data)


NO_PACE: Final = Pace()
"""Every event starts a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTrigger:
    """One entry of `on`: event types, an expression that must be true for the event, and the priority of its runs.

    `condition` is empty if it matches any event of these types. `priority` is None for the workflow's own. `scope`
    selects the steps of its runs; empty: the workflow decides. `pace` limits how often it starts them.
    """

    events: tuple[str, ...]
    condition: str = ""
    priority: int | None = None
    scope: str = ""
    pace: Pace = NO_PACE

    def to_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "events": list(self.events),
            "condition": self.condition,
            "priority": self.priority,
        }
        # Omitted if empty, so that triggers stored before the field existed stay equal.
        if self.scope:
            described["scope"] = self.scope
        if self.pace != NO_PACE:
            described["pace"] = self.pace.to_dict()
        return described

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> EventTrigger:
        return EventTrigger(
            events=tuple(data["events"]),
            condition=data["condition"],
            priority=data["priority"],
            scope=data.get("scope", ""),
            pace=Pace.from_dict(data.get("pace", {})),
        )


DEFAULT_SETTLE = 2.0
"""Seconds without a change of its size and time after which a watched file counts as complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A path whose changes are events, `settle` seconds after the last change of a file; 0: at once."""

    path: str
    settle: float = DEFAULT_SETTLE

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "settle": self.settle}

    @staticmethod
    def from_dict(data: Mapping[str, Any] | str) -> Watch:
        """Older releases stored only the path, and did not wait."""
        if isinstance(data, str):
            return Watch(path=data, settle=0.0)
        return Watch(path=data["path"], settle=data["settle"])


def check_event_type(text: str) -> str:
    """The name of an event type. Raises ValueError with its problem."""
    if not text:
        raise ValueError("it is empty: give the event a type, such as DATA_CHANGED")
    if len(text) > LONGEST_TYPE:
        raise ValueError(f"it has {len(text)} characters: at most {LONGEST_TYPE} are allowed")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("it has a space or a control character: use a name such as DATA_CHANGED")
    return text
