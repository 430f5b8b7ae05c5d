"""Decodes requests of the ScheduleService. Raises InvalidFieldError and UnclearTimeError."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from toban.definition import Schedule
from toban.definition.timing.cron import LAST_YEAR, REBOOT, parse_cron
from toban.definition.timing.zones import check_zone
from toban.v1 import schedule_pb2 as pb
from toband.api import run_requests
from toband.api.event_requests import key
from toband.api.request_errors import InvalidFieldError, UnclearTimeError
from toband.engine.errors import WorkflowNotFoundError

LEAST = timedelta(seconds=1)
MOST = timedelta(days=366 * 100)
FIRST_YEAR = 1970
_UNSET = pb.SCHEDULE_ACTION_UNSPECIFIED
_PREFIX = "SCHEDULE_ACTION_"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """The schedule that a request describes. `zone` is empty for the daemon's time zone, `action` if none is named."""

    subject: str
    rule: Schedule
    zone: str
    action: str
    workflow: str
    dedupe_key: str


def new_schedule(request: pb.CreateScheduleRequest) -> NewSchedule:
    """Raises InvalidFieldError, UnclearTimeError, WorkflowNotFoundError and ParamError."""
    if request.params.fields and not request.workflow:
        raise InvalidFieldError("params", "requires `workflow`")
    if request.max_occurrences < 0:
        raise InvalidFieldError("max_occurrences", f"must be 0 or more, found {request.max_occurrences}")
    subject = key(request.subject, "subject", required=True)
    action = _action(request)
    if not request.workflow.isprintable():
        raise WorkflowNotFoundError(request.workflow)
    return NewSchedule(
        subject=subject,
        rule=_rule(request),
        zone=zone(request.timezone),
        action=action,
        workflow=request.workflow,
        dedupe_key=key(request.dedupe_key, "dedupe_key"),
    )


def zone(name: str) -> str:
    try:
        return check_zone(name) if name else ""
    except ValueError as error:
        raise InvalidFieldError("timezone", str(error)) from None


def action_of(name: str) -> pb.ScheduleAction.ValueType:
    """The enum value of an action's name; unspecified for an empty name."""
    return pb.ScheduleAction.Value(f"{_PREFIX}{name.upper()}") if name else _UNSET


def _action(request: pb.CreateScheduleRequest) -> str:
    action = request.action
    if action == _UNSET:
        return ""
    if action not in pb.ScheduleAction.values():
        names = ", ".join(_name(each) for each in pb.ScheduleAction.values() if each != _UNSET)
        raise InvalidFieldError("action", f"unknown action {action} (known: {names})")
    if action == pb.SCHEDULE_ACTION_WORKFLOW and not request.workflow:
        raise InvalidFieldError("workflow", "is required for the action WORKFLOW")
    return _name(action)


def _name(action: pb.ScheduleAction.ValueType) -> str:
    return pb.ScheduleAction.Name(action).removeprefix(_PREFIX).lower()


def _rule(request: pb.CreateScheduleRequest) -> Schedule:
    rule = request.rule
    words = cron = ""
    every: float | None = None
    at: datetime | None = None
    match rule.WhichOneof("rule"):
        case "words":
            words = rule.words
            if not words.strip():
                raise UnclearTimeError("rule.words", "cannot read the time: it is empty")
        case "cron":
            cron = _cron(rule.cron)
        case "every":
            every = _every(rule)
        case "at":
            at = _at(rule)
        case _:
            raise InvalidFieldError("rule", "is required: give one of words, cron, every and at")
    return Schedule(
        words=words,
        cron=cron,
        every=every,
        at=at,
        max_occurrences=request.max_occurrences or None,
        params=run_requests.params(request.params),
    )


def _cron(text: str) -> str:
    try:
        cron = parse_cron(text)
    except ValueError as error:
        raise UnclearTimeError("rule.cron", f"cannot read the crontab expression: {error}") from None
    if cron.reboot:
        raise UnclearTimeError("rule.cron", f"cannot schedule {REBOOT}: that is for workflows; give a time")
    return cron.text


def _every(rule: pb.ScheduleRule) -> float:
    try:
        span = rule.every.ToTimedelta()
    except (ValueError, OverflowError):
        span = timedelta(0)
    if not LEAST <= span <= MOST:
        raise InvalidFieldError("rule.every", "must be from one second to a hundred years")
    return span.total_seconds()


def _at(rule: pb.ScheduleRule) -> datetime:
    try:
        at = rule.at.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidFieldError("rule.at", "must be a valid time") from None
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise InvalidFieldError("rule.at", f"must be a time from {FIRST_YEAR} to {LAST_YEAR}")
    return at
