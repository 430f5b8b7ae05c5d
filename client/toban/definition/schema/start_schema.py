"""The shape of what starts a workflow or a job: schedules, events, watched paths."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toban.definition.model.event_triggers import DEFAULT_SETTLE
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.event_fields import (
    MOST_STARTS,
    MOST_TRIGGERS,
    MOST_TYPES,
    MOST_WATCHED,
    EventKey,
    EventType,
    PaceTime,
    WatchedPath,
)
from toban.definition.schema.field_types import (
    Condition,
    Count,
    Duration,
    Lax,
    Name,
    Priority,
)
from toban.definition.schema.schedule_fields import (
    MOST_SCHEDULES,
    BusinessDay,
    CalendarInput,
    CronText,
    Every,
    Milliseconds,
    Moment,
    Spread,
    Words,
    ZoneName,
)
from toban.definition.timing.schedule_spec import DEFAULT_MISFIRE_GRACE, Fold, Gap, Misfire


class ScheduleInput(DefinitionPart):
    """A schedule: exactly one of cron, every, at and when, with its options."""

    cron: CronText | None = Field(
        None, description="As in crontab(5); six fields put the seconds first; @daily, @reboot, …"
    )
    every: Every | None = Field(None, description="Interval, counted from start, or from when the schedule was stored.")
    at: Moment | None = Field(None, description="Once, at a time with its offset from UTC.")
    when: Words | None = Field(None, description="In words, English or Japanese; read when the definition is stored.")
    timezone: ZoneName | None = Field(None, description="Default: the workflow's.")
    start: Moment | None = Field(None, description="No due times before this.")
    end: Moment | None = Field(None, description="No due times after this.")
    max_occurrences: Count | None = Field(None, description="Maximum number of due times.")
    jitter: Spread = Field(0.0, description="Spreads starts over this much time; constant for one schedule.")
    params: dict[str, Any] = Field(default={}, description="Parameters of its runs.")
    scope: Name | None = Field(None, description="The scope of its runs, one of the workflow's scopes.")
    calendar: CalendarInput | None = Field(
        None, description="Says which days are business days: a country, a file, or its own; default: the workflow's."
    )
    business_day: BusinessDay | None = Field(
        None,
        description="Only on business days, or moved to the next or previous one, or never on one; a number: only on "
        "that business day of the month. Default with a calendar: only.",
    )
    misfire: Annotated[Misfire, Lax] = Field(
        Misfire.RUN_ONCE,
        description="Due times missed while the daemon was down: skip, run_once or run_all.",
    )
    misfire_grace: Duration = Field(
        DEFAULT_MISFIRE_GRACE, description="Due times missed by more than this are not caught up."
    )
    gap: Annotated[Gap, Lax] = Field(Gap.SHIFT, description="Local times skipped by a clock change: shift or skip.")
    fold: Annotated[Fold, Lax] = Field(Fold.ONCE, description="Local times repeated by a clock change: once or both.")


Schedules = (
    CronText | ScheduleInput | Annotated[list[CronText | ScheduleInput], Field(min_length=1, max_length=MOST_SCHEDULES)]
)


class DebounceInput(DefinitionPart):
    """One run for a burst of events."""

    quiet: PaceTime = Field(description="How long no event must come.")
    max_wait: PaceTime | None = Field(None, description="The run starts so long after the first event at the latest.")


class ThrottleInput(DefinitionPart):
    """A limit on runs in some time."""

    limit: Annotated[int, Field(ge=1, le=MOST_STARTS)] = Field(1, description="Largest number of runs.")
    per: PaceTime = Field(description="The time.")


class TriggerInput(DefinitionPart):
    """Events that start it."""

    event: EventType | Annotated[list[EventType], Field(min_length=1, max_length=MOST_TYPES)] | None = Field(
        None, description="An event type, or a list of types."
    )
    condition: Condition | None = Field(None, description="Expression over event that must be true.")
    priority: Priority | None = Field(None, description="Priority of the runs it starts; default: the workflow's.")
    scope: Name | None = Field(None, description="The scope of the runs it starts, one of the workflow's scopes.")
    debounce: PaceTime | DebounceInput | None = Field(
        None, description="One run for a burst of events, once no event came for this long; event is the last one."
    )
    throttle: PaceTime | ThrottleInput | None = Field(
        None, description="At most one run in this time, or at most limit runs per time; other events start none."
    )
    key: EventKey | None = Field(
        None,
        description="A field of the event, such as event.payload.id: debounce and throttle count each value alone.",
    )


Triggers = (
    EventType | TriggerInput | Annotated[list[EventType | TriggerInput], Field(min_length=1, max_length=MOST_TRIGGERS)]
)


class WatchInput(DefinitionPart):
    """A file or a directory whose changes are events."""

    path: WatchedPath = Field(description="A file, or a directory with everything below it.")
    settle: Duration = Field(
        DEFAULT_SETTLE, description="Time without a change after which a file counts as complete; 0s: do not wait."
    )


Watches = (
    WatchedPath | WatchInput | Annotated[list[WatchedPath | WatchInput], Field(min_length=1, max_length=MOST_WATCHED)]
)


class TriggerScheduleInput(ScheduleInput):
    """A schedule within triggers: exactly one of cron, interval, every, at and when, with its options."""

    interval: Milliseconds | None = Field(None, description="Interval in milliseconds.")


class TriggersInput(TriggerInput):
    """The events and the schedule that start it; at least one of them."""

    schedule: (
        CronText
        | TriggerScheduleInput
        | Annotated[list[CronText | TriggerScheduleInput], Field(min_length=1, max_length=MOST_SCHEDULES)]
        | None
    ) = Field(None, description="When it starts by itself: a crontab expression, a mapping, or a list.")
    priority: Priority | None = Field(None, description="Priority of the runs it starts, and the workflow's default.")
