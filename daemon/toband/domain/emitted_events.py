"""Emitted events, from a client, a step or the daemon itself, and their outcomes.

The events that drive one run's state machine are in `run_events`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any

from toban.definition import RUN_FAILED, RUN_SUCCEEDED, STEP_FAILED
from toban.definition.model.event_triggers import NO_PACE, Pace
from toban.limits import MAX_TITLE_CHARS
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.plan import Plan
from toband.domain.run_model import Run, RunState, StepState
from toband.domain.secret_params import shown_params

PARAMS_MOST = 16 * 1024
"""Limit on the characters of a run's parameters, as JSON, in an event about the run."""
DEPTH_MOST = 16
"""Longest chain of runs through events; an event at the end of such a chain starts nothing."""


_STEP = "step:"


class EventSource(StrEnum):
    CLIENT = "client"
    STEP = "step"
    DAEMON = "daemon"


class EventState(StrEnum):
    PENDING = "PENDING"
    """Stored; the workflows that it starts are not decided yet."""
    RESOLVED = "RESOLVED"
    CUT = "CUT"
    """Terminal: its chain is too long, and it starts nothing."""


class EventRunOutcome(StrEnum):
    """Outcome for one workflow that an event matched."""

    STARTED = "STARTED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRun:
    """One workflow that an event matched: the run that it started, or why there is none.

    `later_event` is the next event of the same burst: its run, if there is one, is the run of this event too.
    """

    workflow: str
    priority: int
    outcome: EventRunOutcome
    reason: NotStarted | None = None
    run_id: str = ""
    later_event: str = ""

    @property
    def awaits_events(self) -> bool:
        """Whether it is the last of a burst that has not ended."""
        debounced = self.reason is not None and self.reason.reason is NotStartedReason.DEBOUNCED
        return debounced and not self.later_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """One event. `sequence` is its position among all events, assigned when it is stored.

    `depth` counts the runs before it in its chain. `dedupe_key` is unique per type; empty: none. `workflow` is set for
    an event of a subject schedule or a hook: the event starts that workflow with `params`, regardless of its triggers.
    `schedule` is that schedule, and `scheduled_at` the due time. `reason` says why it was cut. `coalesced` is how many
    events a run of it represents; it is not stored with the event.
    """

    id: str
    type: str
    payload: Any
    at: datetime
    source: EventSource
    caller: str = ""
    source_run: str = ""
    source_step: str = ""
    depth: int = 0
    dedupe_key: str = ""
    workflow: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    schedule: str = ""
    scheduled_at: datetime | None = None
    sequence: int = 0
    state: EventState = EventState.PENDING
    reason: str = ""
    resolved_at: datetime | None = None
    runs: tuple[EventRun, ...] = ()
    coalesced: int = field(default=1, compare=False)

    def seen(self) -> dict[str, Any]:
        """As conditions and templates see it: `event`."""
        return {
            "id": self.id,
            "type": self.type,
            "payload": self.payload,
            "source": self.source.value,
            "source_run": self.source_run,
            "source_step": self.source_step,
            "depth": self.depth,
            "at": self.at.isoformat(),
            "coalesced": self.coalesced,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The step that caused something. `depth` is that of its run: an event that it emits is one deeper."""

    run_id: str
    step: str
    depth: int

    @property
    def caller(self) -> str:
        """The step as a caller: its token proves it."""
        return f"{_STEP}{self.run_id}/{self.step}"


def causing_run(caller: str) -> str:
    """The run of the step that is the caller; empty if it is no step."""
    return caller.removeprefix(_STEP).partition("/")[0] if caller.startswith(_STEP) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A workflow that listens to a type of event: one of its triggers. `scope` is empty if the workflow decides."""

    workflow: str
    position: int
    condition: str
    priority: int
    scope: str = ""
    pace: Pace = NO_PACE
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedStart:
    """The trigger by which an event starts a workflow, and the value of its key: they are paced together."""

    workflow: str
    position: int
    key: str
    pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Events that start one run together once no further one comes: the last of them, and their number."""

    workflow: str
    position: int
    key: str
    event_id: str
    count: int
    due_at: datetime
    priority: int
    scope: str


KEY_MOST = 200
"""Characters of a key that are compared as they are; longer ones are compared by their digest."""


def pace_key(expression: str, seen: Mapping[str, Any]) -> str:
    """The value of the field that `expression` names, such as `event.payload.id`, as JSON; empty if it is missing."""
    found: Any = seen
    for name in expression.split(".")[1:]:
        if not isinstance(found, Mapping) or name not in found:
            return ""
        found = found[name]
    text = json.dumps(found, sort_keys=True)
    return text if len(text) <= KEY_MOST else sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPath:
    """A path, absolute, whose changes are events because a workflow declares that it watches it.

    A file counts as complete after `settle` seconds without a change.
    """

    workflow: str
    title: str
    path: str
    settle: float


def announced(plan: Plan, before: Run, after: Run) -> list[tuple[str, str, dict[str, Any]]]:
    """The events that a transition of a run emits: for each its type, its step, and its payload."""
    found = []
    for name in sorted(after.touched or ()):
        step, old = after.steps[name], before.steps.get(name)
        if step.parent:
            continue  # the step reports for its instances
        if step.state is StepState.FAILED and (old is None or old.state is not StepState.FAILED):
            attempt = step.attempt
            about = _about(plan, after) | {
                "step": step.id,
                "step_title": plan.title(step.id) or step.id,
                "reason": step.reason,
                "exit_code": step.exit_code,
                "error_class": step.error_class.value if step.error_class is not None else "",
                "attempts": step.attempts,
                "error": attempt.error if attempt is not None else "",
            }
            found.append((STEP_FAILED, step.id, about))
    if after.state.terminal and not before.state.terminal:
        ended = _about(plan, after) | {
            "state": after.state.value,
            "error": after.error,
            "failed_steps": after.failed_steps,
            "incomplete_steps": after.incomplete_steps,
            "started_at": after.started_at.isoformat() if after.started_at else "",
            "finished_at": after.finished_at.isoformat() if after.finished_at else "",
        }
        match after.state:
            case RunState.SUCCEEDED:
                found.append((RUN_SUCCEEDED, "", ended))
            case RunState.FAILED | RunState.TIMED_OUT:
                found.append((RUN_FAILED, "", ended))
            case _:
                pass  # the client that cancelled it knows
    return found


def _about(plan: Plan, run: Run) -> dict[str, Any]:
    params = shown_params(run.params)
    about = {
        "run_id": run.id,
        "workflow": run.workflow,
        "workflow_title": plan.workflow.title[:MAX_TITLE_CHARS],
        "number": run.number,
        "trigger": run.trigger.value.lower(),
        "params": params,
    }
    if params and len(json.dumps(params)) > PARAMS_MOST:
        # Every run that the event starts has a copy of it.
        about |= {"params": {}, "params_left_out": True}
    return about
