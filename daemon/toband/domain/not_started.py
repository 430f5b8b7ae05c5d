"""Why a schedule or an event did not start a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NotStartedReason(StrEnum):
    DELETED = "DELETED"
    """The workflow was deleted."""
    DISABLED = "DISABLED"
    DRAINING = "DRAINING"
    BLACKOUT = "BLACKOUT"
    OVERLAP = "OVERLAP"
    """As many runs as the workflow allows were active, with `overlap: skip`."""
    QUEUE_FULL = "QUEUE_FULL"
    INVALID_PARAMS = "INVALID_PARAMS"
    DISK_FULL = "DISK_FULL"
    UNHEALTHY = "UNHEALTHY"
    """The daemon refused new runs."""
    MISFIRE_SKIP = "MISFIRE_SKIP"
    """The due time was missed, with `misfire: skip`."""
    MISFIRE_GRACE = "MISFIRE_GRACE"
    """The due time was missed for longer than `misfire_grace`."""
    DECIDED_BEFORE = "DECIDED_BEFORE"
    """The ledger has the due time already: the clock was set back."""
    DEBOUNCED = "DEBOUNCED"
    """Its run starts when no further event comes, or a later event took its place."""
    THROTTLED = "THROTTLED"
    """As many runs as `throttle` allows were started."""
    OTHER = "OTHER"


_TEXTS = {
    NotStartedReason.DELETED: "the workflow was deleted",
    NotStartedReason.DISABLED: "disabled",
    NotStartedReason.DRAINING: "draining",
    NotStartedReason.BLACKOUT: "blackout {}",
    NotStartedReason.OVERLAP: "overlap: {}",
    NotStartedReason.INVALID_PARAMS: "parameters: {}",
    NotStartedReason.MISFIRE_SKIP: "{}, and `misfire: skip` does not catch up",
    NotStartedReason.MISFIRE_GRACE: "misfire_grace: {}",
    NotStartedReason.DEBOUNCED: "debounce: {}",
    NotStartedReason.THROTTLED: "throttle: {}",
    NotStartedReason.DECIDED_BEFORE: "the due time was decided before",
}


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The reason, and for people its details, such as the run that was active."""

    reason: NotStartedReason
    detail: str = ""

    @property
    def text(self) -> str:
        return _TEXTS.get(self.reason, "{}").format(self.detail)
