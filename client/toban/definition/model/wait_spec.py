"""What a step with `job_type: wait` waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from toban.definition.model.event_triggers import DEFAULT_SETTLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Exactly one of `duration`, `until`, `events` and `file`.

    `duration` is in seconds, or a template of a duration; `until` and `file` may contain templates. `condition` is an
    expression over the event, and `settle` the seconds for which the file must not have changed.
    """

    duration: float | str | None = None
    until: str = ""
    events: tuple[str, ...] = ()
    condition: str = ""
    file: str = ""
    settle: float = DEFAULT_SETTLE

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "events": list(self.events)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Wait:
        return Wait(**{**data, "events": tuple(data["events"])})
