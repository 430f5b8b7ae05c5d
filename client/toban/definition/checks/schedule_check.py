"""Checks the schedules of a workflow or a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition.checks.run_params import fitting
from toban.definition.checks.scope_check import check_scope
from toban.definition.expressions.template_names import suggestion
from toban.definition.model.workflow import Param
from toban.definition.scalars.values import describe
from toban.definition.schema.field_check import FieldAt, check_fields, read_fields
from toban.definition.schema.schedule_fields import MOST_SCHEDULES
from toban.definition.schema.start_schema import ScheduleInput
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node
from toban.definition.timing.blackouts import never_ends, parse_blackout
from toban.definition.timing.business_days import ONLY
from toban.definition.timing.cron import REBOOT, parse_cron
from toban.definition.timing.schedule_spec import Schedule

_SAYS_WHEN = ("cron", "every", "at", "when")
_INTERVAL = "interval"
_OF_LOCAL_TIMES = ("gap", "fold")
# Replaces the daemon's zone, which is unknown here; only the form of words is checked.
_ANY_ZONE = "UTC"


def read_schedules(
    found: FieldAt | None,
    report: Reporter,
    *,
    params: Mapping[str, Param | None] | None,
    zone: str,
    scopes: Collection[str],
    model: type[ScheduleInput] = ScheduleInput,
) -> tuple[Schedule, ...]:
    """The valid schedules; reports the problems of the others.

    `params` are the parameters of runs, None for an invalid parameter; `params` itself is None if they are unknown.
    `zone` is the time zone of schedules without their own, and `scopes` are the names that `scope` may have. `model`
    may have further fields.
    """
    if found is None or found.value.wrong:
        return ()
    reader = _Reader(report, params, zone, scopes, model)
    node, path = found.value, found.path
    if node.kind != "seq":
        if node.kind == "scalar" and node.value is None and node.style == "":
            message = "the field has no value: give it one or remove it"
            report.at(found.key, path, message)
            return ()
        return _right([reader.read(node, path)])
    if not node.items:
        report.at(node, path, "expected at least one schedule, found none")
    elif len(node.items) > MOST_SCHEDULES:
        message = f"found {len(node.items)} schedules: at most {MOST_SCHEDULES} are allowed"
        report.at(node, path, message)
        return ()
    return _right(reader.read(item, join(path, index)) for index, item in enumerate(node.items))


def check_blackouts(found: FieldAt | None, windows: Iterable[str], report: Reporter) -> None:
    """Warns about blackout windows that leave no time at all."""
    for index, window in enumerate(windows):
        if never_ends(parse_blackout(window)):
            assert found is not None
            message = (
                "the windows leave no gap, so schedules never start a run: make them shorter, or write enabled: false"
            )
            node = found.value.items[index]
            report.at(node, join(found.path, index), message, warning=True)


def _right(schedules: Iterable[Schedule | None]) -> tuple[Schedule, ...]:
    return tuple(schedule for schedule in schedules if schedule is not None)


class _Reader:
    """Reads schedules one by one."""

    def __init__(
        self,
        report: Reporter,
        params: Mapping[str, Param | None] | None,
        zone: str,
        scopes: Collection[str],
        model: type[ScheduleInput],
    ) -> None:
        self._report = report
        self._model = model
        self._says_when = (*_SAYS_WHEN, _INTERVAL) if _INTERVAL in model.model_fields else _SAYS_WHEN
        self._params = params
        self._zone = zone
        self._scopes = scopes

    def read(self, node: Node, path: str) -> Schedule | None:
        """None after reporting the reason."""
        if node.wrong:
            return None
        if node.kind == "map":
            return self._mapping(node, path)
        value = node.plain()
        if not isinstance(value, str):
            message = (
                f"expected a crontab expression or a mapping with one of {', '.join(self._says_when)}, "
                f"found {describe(value)}"
            )
            self._report.at(node, path, message)
            return None
        try:
            cron = parse_cron(value).text
        except ValueError as error:
            self._report.at(node, path, f"{error}{self._meant_as_words(value)}")
            return None
        self._check_required({}, node, path)
        return Schedule(cron=cron, timezone=self._zone)

    def _check_cron(self, cron: FieldAt | None) -> frozenset[str]:
        """Reports words in the place of an expression; returns the fields that need no further check."""
        if cron is None or not isinstance(text := cron.value.plain(), str):
            return frozenset()
        try:
            parse_cron(text)
        except ValueError as error:
            if words := self._meant_as_words(text):
                self._report.at(cron.value, cron.path, f"{error}{words}")
                return frozenset({"cron"})
        return frozenset()

    def _meant_as_words(self, text: str) -> str:
        try:
            _read_words(text, self._zone)
        except ValueError:
            return ""
        return f'; for a time in words write {{when: "{text}"}}'

    def _mapping(self, node: Node, path: str) -> Schedule | None:
        known = self._model.model_fields
        report = self._report
        fields = read_fields(node, path, report, known=known, aliases={}, unsupported=frozenset())
        values = check_fields(self._model, fields, report, skip=self._check_cron(fields.get("cron")))
        given = [name for name in fields if name in self._says_when]
        if not given:
            message = f"the schedule does not say when: give one of {', '.join(self._says_when)}"
            report.at(node, path, message)
        for name in given[1:]:
            message = f'"{given[0]}" and "{name}" both say when: keep one, or make two schedules'
            report.at(fields[name].key, fields[name].path, message)
        zone = values.get("timezone", self._zone)
        meant = self._understood(fields.get("when"), values, zone)
        self._check_span(fields, values)
        check_scope(fields.get("scope"), values, self._scopes, report)
        self._check_clock_changes(given, fields, values, meant)
        self._set_calendar(fields, values, meant)
        if "params" not in fields or "params" in values:
            values["params"] = self._bound(fields.get("params"), values.get("params", {}))
            self._check_required(values["params"], node, path)
        if len(given) != 1 or given[0] not in values:
            return None
        if _INTERVAL in values:
            values["every"] = values.pop(_INTERVAL)
        words = values.pop("when", "")
        return Schedule(**{**values, "words": words, "timezone": zone})

    def _understood(self, found: FieldAt | None, values: dict[str, Any], zone: str) -> Schedule | None:
        """The meaning of the words; None if there are none, or after reporting that they are not understood."""
        if found is None or "when" not in values:
            return None
        try:
            return _read_words(values["when"], zone)
        except ValueError as error:
            self._report.at(found.value, found.path, str(error))
            return None

    def _set_calendar(self, fields: Mapping[str, FieldAt], values: dict[str, Any], meant: Schedule | None) -> None:
        """A calendar alone means business days only. Only local times have days."""
        names = [name for name in ("calendar", "business_day") if name in values]
        if names and (values.get("cron") == REBOOT or "every" in values or "at" in values or _is_absolute(meant)):
            for name in names:
                message = f'"{name}" applies only to local times that repeat: remove it'
                self._report.at(fields[name].key, fields[name].path, message)
            return
        in_words = meant is not None and bool(meant.calendar)
        if in_words and "business_day" in values:
            message = "the words say it already: remove it"
            self._report.at(fields["business_day"].key, fields["business_day"].path, message)
        if "calendar" in values and not in_words:
            values.setdefault("business_day", ONLY)

    def _check_span(self, fields: Mapping[str, FieldAt], values: Mapping[str, Any]) -> None:
        """Reports a schedule that can never be due."""
        start, end, at = (values.get(name) for name in ("start", "end", "at"))
        if start is not None and end is not None and end < start:
            message = "the schedule ends before it starts"
            self._report.at(fields["end"].value, fields["end"].path, message)
        elif at is not None and ((start or at) > at or (end or at) < at):
            message = "it is not between start and end: the schedule would never run"
            self._report.at(fields["at"].value, fields["at"].path, message)

    def _check_clock_changes(
        self,
        given: list[str],
        fields: Mapping[str, FieldAt],
        values: Mapping[str, Any],
        meant: Schedule | None,
    ) -> None:
        """Only local times can be skipped or repeated by a clock change; a boot has no due time."""
        shown = f'"{given[0]}"' if given else ""
        without: tuple[str, ...] = _OF_LOCAL_TIMES
        if shown == '"cron"':
            shown = f'"{REBOOT}"' if values.get("cron") == REBOOT else ""
            without = (*_OF_LOCAL_TIMES, "jitter")
        elif shown == '"when"':
            shown = _absolute(meant) if meant is not None else ""
        if not shown:
            return
        for name in without:
            if name in fields:
                message = f'"{name}" does not apply to {shown}: remove it'
                self._report.at(fields[name].key, fields[name].path, message)

    def _bound(self, found: FieldAt | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, converted to their types."""
        if found is None or self._params is None:
            return dict(given)
        bound: dict[str, Any] = {}
        for name, value in given.items():
            entry, path = found.value.entries[name], join(found.path, name)
            bound[name] = value
            if name not in self._params:
                hint = suggestion(name, self._params) or _known(self._params)
                self._report.at(entry.key, path, f'unknown parameter "{name}"{hint}')
            elif (param := self._params[name]) is not None and param.secret:
                message = f'the parameter "{name}" is secret: a schedule, which all viewers can read, cannot give it'
                self._report.at(entry.key, path, message)
            elif param is not None:
                try:
                    bound[name] = fitting(param, value)
                except ValueError as error:
                    self._report.at(entry.value, path, str(error))
            if isinstance(value, str) and "{{" in value:
                message = "templates are not evaluated here: use them in the steps"
                self._report.at(entry.value, path, message, warning=True)
        return bound

    def _check_required(self, given: Mapping[str, Any], node: Node, path: str) -> None:
        """Reports missing required parameters: without them no run could start."""
        for name, param in (self._params or {}).items():
            if param is not None and param.required and name not in given:
                what = "make it optional" if param.secret else f"add params: {{{name}: …}} to the schedule"
                message = f'the parameter "{name}" is required, so no run could start: {what}'
                self._report.at(node, path, message)


def _read_words(text: str, zone: str) -> Schedule:
    """Raises ValueError if they are not understood."""
    # Loaded late: few definitions have words, and the grammar is slow to load.
    from toban.definition.timing.phrases.phrase_schedules import check_words

    return check_words(text, ZoneInfo(zone or _ANY_ZONE)).schedule


def _absolute(meant: Schedule) -> str:
    """The meaning of words that do not depend on local time; empty if they do."""
    if meant.every is not None:
        return "words that mean an interval"
    return "words that mean a single time" if meant.at is not None else ""


def _is_absolute(meant: Schedule | None) -> bool:
    return meant is not None and bool(_absolute(meant)) and not meant.calendar


def _known(params: Mapping[str, Param | None]) -> str:
    return f" (known: {', '.join(params)})" if params else " (it takes no parameters)"
