"""Checks what starts a workflow or a job: `schedule` and `on`, or both of them as `triggers`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition.checks.event_check import read_trigger, read_triggers
from toban.definition.checks.schedule_check import read_schedules
from toban.definition.model.event_triggers import EventTrigger
from toban.definition.model.workflow import Param
from toban.definition.scalars.values import describe
from toban.definition.schema.field_check import FieldAt, check_fields, read_fields
from toban.definition.schema.start_schema import TriggerScheduleInput, TriggersInput
from toban.definition.schema.unsupported_fields import TRIGGER_ALIASES
from toban.definition.source.problem_collector import Reporter
from toban.definition.timing.schedule_spec import Schedule

START_FIELDS = frozenset({"schedule", "on", "triggers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What starts it; `priority` is that of `triggers`, 0 if it has none."""

    schedules: tuple[Schedule, ...] = ()
    triggers: tuple[EventTrigger, ...] = ()
    priority: int = 0


def read_start(
    fields: Mapping[str, FieldAt],
    values: Mapping[str, Any],
    report: Reporter,
    *,
    params: Mapping[str, Param | None] | None,
    scopes: Collection[str],
) -> Start:
    """The valid schedules and triggers; reports the problems of the others.

    `params` are the parameters of runs, None for an invalid parameter; `params` itself is None if they are unknown.
    `scopes` are the names that `scope` may have.
    """
    zone = values.get("timezone", "")
    if (found := fields.get("triggers")) is not None:
        for name in ("schedule", "on"):
            if name in fields:
                at = fields[name]
                report.at(at.key, at.path, f'"triggers" and "{name}" both say what starts it: keep one')
        return _read_both(found, report, params, scopes, zone)
    schedules = read_schedules(fields.get("schedule"), report, params=params, zone=zone, scopes=scopes)
    return Start(schedules=schedules, triggers=read_triggers(fields.get("on"), report, params=params, scopes=scopes))


def _read_both(
    found: FieldAt,
    report: Reporter,
    params: Mapping[str, Param | None] | None,
    scopes: Collection[str],
    zone: str,
) -> Start:
    node, path = found.value, found.path
    if node.wrong:
        return Start()
    if node.kind != "map" or not node.entries:
        message = f"expected a mapping with eventTypes, schedule or both, found {describe(node.plain())}"
        report.at(node, path, message)
        return Start()
    known = TriggersInput.model_fields
    fields = read_fields(node, path, report, known=known, aliases=TRIGGER_ALIASES, unsupported=frozenset())
    scheduled = fields.pop("schedule", None)
    schedules = read_schedules(scheduled, report, params=params, zone=zone, scopes=scopes, model=TriggerScheduleInput)
    triggers: tuple[EventTrigger, ...] = ()
    if "event" in fields:
        triggers = read_trigger(found, fields, report, params=params, scopes=scopes)
    elif scheduled is not None:
        for name, at in fields.items():
            if name != "priority":
                report.at(at.key, at.path, f'"{name}" applies to events: add "eventTypes", or remove it')
    else:
        report.at(node, path, 'the triggers do not say what starts it: add "eventTypes" or "schedule"')
    only = {name: at for name, at in fields.items() if name == "priority"}
    priority = check_fields(TriggersInput, only, report, skip=frozenset()).get("priority", 0)
    return Start(schedules=schedules, triggers=triggers, priority=priority)
