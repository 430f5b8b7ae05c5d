"""Creates workflows from systemd timers and their services."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition import format_duration
from toban.importers.exec_lines import expand_specifiers
from toban.importers.import_model import ImportProblem, Times, WorkflowDraft, valid_name
from toban.importers.systemd_calendar import Calendar, parse_calendar, schedule_of
from toban.importers.systemd_services import specifiers_of, steps_of
from toban.importers.systemd_units import Unit, parse_span, read_unit

# Long enough to mean "at any time in the past".
_ANY_TIME_AGO = "3650d"
_TAKEN = frozenset(
    {
        "OnCalendar",
        "OnBootSec",
        "OnStartupSec",
        "OnUnitActiveSec",
        "Persistent",
        "RandomizedDelaySec",
        "Unit",
        "AccuracySec",
    }
)
# They do not affect when the service is started.
_HARMLESS = frozenset({"RemainAfterElapse", "FixedRandomDelay"})
_ALWAYS_OFF = frozenset({"WakeSystem", "OnClockChange", "OnTimezoneChange", "DeferReactivation"})
_OF_UNIT = frozenset({"Description", "Documentation", "DefaultDependencies", "Before", "After", "Wants", "Conflicts"})
CalendarTimes = Callable[[Calendar, ZoneInfo], Times]


def import_timer(
    timer: str,
    *,
    root: str,
    zone: str,
    home: Callable[[str], str],
    ignored: Collection[str] = (),
    times: CalendarTimes = Calendar.times,
) -> WorkflowDraft:
    """The workflow of a timer, given by name or by the path of its file. Raises ImportProblem if there is none.

    `root` is a prefix of systemd's directories. `zone` is the machine's time zone. `ignored` directives are left out.
    `times` computes the due times of a calendar expression.
    """
    beside = os.path.dirname(os.path.abspath(timer)) if os.path.basename(timer) != timer else ""
    name = os.path.basename(timer)
    if not name.endswith(".timer"):
        name += ".timer"
    if name.endswith("@.timer"):
        raise ImportProblem(f"{name} is a template: name an instance, as in {name[:-6]}NAME.timer")
    unit, dropped = read_unit(name, root=root, beside=beside).without(ignored)
    asked, name = name, unit.name
    specifiers = specifiers_of(name, of_a_user=unit.of_a_user)
    service_name = expand_specifiers(unit.last("Timer", "Unit", f"{name.removesuffix('.timer')}.service"), specifiers)
    if not service_name.endswith(".service"):
        raise ImportProblem(f"Unit={service_name}: only services have a counterpart")
    service, also = read_unit(service_name, root=root, beside=beside).without(ignored)
    dropped += also
    problems: list[ImportProblem] = []
    made = None
    try:
        _check_mapped(unit)
    except ImportProblem as problem:
        problems.append(problem)
    try:
        made = steps_of(service, home=home)
    except ImportProblem as problem:
        problems.append(ImportProblem(f"{service_name}: {problem}", ignorable=problem.ignorable))
    if made is None or problems:
        # Report both at once, not one by one.
        raise ImportProblem("; ".join(map(str, problems)), ignorable=any(each.ignorable for each in problems))
    notes: list[str] = []
    if asked != name:
        notes.append(f"{asked} is another name of {name}")
    schedules, calendars = _schedules(unit, zone, notes)
    description = service.last("Unit", "Description") or unit.last("Unit", "Description") or name
    document: dict[str, Any] = {
        "name": valid_name(name.removesuffix(".timer"), otherwise="timer"),
        "description": expand_specifiers(description, specifiers)[:500],
        "schedule": schedules[0] if len(schedules) == 1 else schedules,
        "steps": made.steps,
    }
    comments = [f"Imported from {unit.file} and {service.file}"]
    if dropped:
        comments.append(f"Left out as asked: {', '.join(dropped)}")
    zones = [ZoneInfo(calendar.zone or zone) for calendar in calendars]
    each = [times(calendar, z) for calendar, z in zip(calendars, zones, strict=True)]
    return WorkflowDraft(
        name=document["name"],
        where=unit.file,
        document=document,
        comments=comments,
        notes=[*notes, *made.notes],
        zone=zones[0] if len({each.key for each in zones}) == 1 else ZoneInfo(zone),
        theirs=_together(each) if each else None,
    )


def _check_mapped(unit: Unit) -> None:
    """Raises ImportProblem with every directive that has no counterpart."""
    wrong: list[str] = []
    for (section, key), values in unit.values.items():
        if not values or section == "Install" or section.startswith("X-"):
            continue
        if section == "Timer" and (key in _TAKEN | _HARMLESS):
            continue
        if section == "Unit" and key in _OF_UNIT:
            continue
        if key in _ALWAYS_OFF and not unit.flag(section, key):
            continue
        wrong.append(f"{key}={values[-1]}")
    if wrong:
        raise ImportProblem(f"no counterpart: {', '.join(wrong)}", ignorable=True)


def _schedules(unit: Unit, zone: str, notes: list[str]) -> tuple[list[dict[str, Any]], list[Calendar]]:
    persistent = unit.flag("Timer", "Persistent")
    common: dict[str, Any] = {"misfire": "skip"}
    if persistent:
        common = {"misfire": "run_once", "misfire_grace": _ANY_TIME_AGO}
    if delay := parse_span(unit.last("Timer", "RandomizedDelaySec", "0")):
        common["jitter"] = format_duration(delay)
        notes.append("RandomizedDelaySec became jitter, which is the same at every due time")
    if accuracy := unit.last("Timer", "AccuracySec"):
        notes.append(f"AccuracySec={accuracy} has no effect here: runs start when they are due")
    calendars = [parse_calendar(text) for text in unit.all("Timer", "OnCalendar")]
    schedules = [{**schedule_of(calendar, ZoneInfo(calendar.zone or zone)), **common} for calendar in calendars]
    for key in ("OnBootSec", "OnStartupSec"):
        for text in unit.all("Timer", key):
            if parse_span(text):
                notes.append(f"{key}={text}: it runs right after a boot, not so much later")
    if unit.all("Timer", "OnBootSec") or unit.all("Timer", "OnStartupSec"):
        schedules.append({"cron": "@reboot", "misfire": "skip"})
    for text in unit.all("Timer", "OnUnitActiveSec"):
        every = parse_span(text)
        if every:
            # Persistent is for calendars only.
            schedules.append({**common, "every": format_duration(every), "misfire": "skip"})
            schedules[-1].pop("misfire_grace", None)
            notes.append(f"OnUnitActiveSec={text} is counted from when the workflow is stored, not from the last start")
    if not schedules:
        raise ImportProblem("the timer does not say when")
    return schedules, calendars


def _together(each: list[Times]) -> Times:
    def first(after: datetime, count: int) -> list[datetime]:
        found: list[datetime] = []
        for at in islice(merge(*(times(after, count) for times in each)), count * len(each)):
            if at not in found[-1:]:
                found.append(at)
        return found[:count]

    return first
