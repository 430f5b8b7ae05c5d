"""Checks the events that start a workflow or a job, and the paths whose changes are events."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from toban.definition.checks.scope_check import check_scope
from toban.definition.checks.template_check import TemplateCheck
from toban.definition.expressions.template_names import TemplateNames, ValueKind, event_kind
from toban.definition.expressions.templates import Ref
from toban.definition.model.event_triggers import (
    BUILT_IN,
    DATA_CHANGED,
    DEFINITION_CHANGED,
    EventTrigger,
    Pace,
    Watch,
    check_event_type,
)
from toban.definition.model.workflow import Param
from toban.definition.scalars.values import describe
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.event_fields import (
    DEFAULT_WAITS,
    LONGEST_PACE,
    MOST_TRIGGERS,
    MOST_TYPES,
    MOST_WATCHED,
    check_watched_path,
)
from toban.definition.schema.field_check import FieldAt, check_fields, read_fields
from toban.definition.schema.start_schema import DebounceInput, ThrottleInput, TriggerInput, WatchInput
from toban.definition.schema.unsupported_fields import TRIGGER_ALIASES
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node

_A_TYPE = "the type of an event, such as DATA_CHANGED"
# A custom name may resemble a built-in one on purpose; only a near match counts as a typo.
_NEARLY_THE_SAME = 0.85
# Parts of a condition that asks for changes of definitions.
_ABOUT_DEFINITIONS = (
    re.compile(r"""\bentity\s*==\s*(['"])(workflow|job)\1|(['"])(workflow|job)\3\s*==\s*event\.payload\.entity\b"""),
    re.compile(r"""\bevent\.source\s*==\s*(['"])daemon\1"""),
)


class _OnlyEvent(TemplateNames):
    """Names for conditions: none of a run, which does not exist yet."""

    knows = "a condition knows event"

    def __init__(self) -> None:
        super().__init__(params=None, env=None, steps=None)

    def resolve(self, ref: Ref) -> ValueKind | str:
        if ref.root != "event":
            return f"a condition may use event only, not {ref.root}"
        return event_kind(ref.names)


def read_triggers(
    found: FieldAt | None,
    report: Reporter,
    *,
    params: Mapping[str, Param | None] | None,
    scopes: Collection[str],
) -> tuple[EventTrigger, ...]:
    """The valid triggers; reports the problems of the others.

    `params` are the parameters of runs, None for an invalid parameter; `params` itself is None if they are unknown.
    `scopes` are the names that `scope` may have.
    """
    if found is None or not _has_value(found, report):
        return ()
    reader = _Reader(report, scopes)
    node, path = found.value, found.path
    if node.kind != "seq":
        read = [reader.read(node, path)]
    elif not _count_fits(node, path, MOST_TRIGGERS, "trigger", report):
        return ()
    else:
        read = [reader.read(item, join(path, index)) for index, item in enumerate(node.items)]
    _check_required(found, params, report)
    return tuple(trigger for trigger in read if trigger is not None)


def read_trigger(
    found: FieldAt,
    fields: Mapping[str, FieldAt],
    report: Reporter,
    *,
    params: Mapping[str, Param | None] | None,
    scopes: Collection[str],
) -> tuple[EventTrigger, ...]:
    """Like `read_triggers` for the `fields` of one trigger, which has an event."""
    read = _Reader(report, scopes).given(found.value, found.path, fields)
    _check_required(found, params, report)
    return (read,) if read is not None else ()


def _check_required(found: FieldAt, params: Mapping[str, Param | None] | None, report: Reporter) -> None:
    for name, param in (params or {}).items():
        if param is not None and param.required:
            message = (
                f'the parameter "{name}" is required, but an event sets no parameters: '
                "give it a default, and use event in the steps"
            )
            report.at(found.key, found.path, message)


def read_event_types(found: FieldAt, condition: str, report: Reporter) -> tuple[str, ...]:
    """The valid event types of a field; reports the problems of the others."""
    return _Reader(report, ()).types(found, condition)


def read_watch(found: FieldAt | None, report: Reporter) -> tuple[Watch, ...]:
    """The valid watches; reports the problems of the others."""
    if found is None or not _has_value(found, report):
        return ()
    node, path = found.value, found.path
    if node.kind != "seq":
        items = [(node, path)]
    elif not _count_fits(node, path, MOST_WATCHED, "path", report):
        return ()
    else:
        items = [(item, join(path, index)) for index, item in enumerate(node.items)]
    watched: dict[str, Watch] = {}
    for item, place in items:
        given = _watch(item, place, report)
        if given is None:
            continue
        if given.path in watched:
            report.at(item, place, f'"{given.path}" is listed twice: remove it')
        watched.setdefault(given.path, given)
    return tuple(watched.values())


def _watch(node: Node, path: str, report: Reporter) -> Watch | None:
    if node.wrong:
        return None
    if node.kind != "map":
        given = _text(node, path, "a path, or a mapping with path", check_watched_path, report)
        return None if given is None else Watch(path=given)
    fields = read_fields(
        node, path, report, known=WatchInput.model_fields, aliases={}, unsupported=frozenset(), refused=frozenset()
    )
    values = check_fields(WatchInput, fields, report, skip=frozenset())
    if "path" not in fields:
        report.at(node, path, 'the watch does not say what to watch: add "path"')
    return Watch(**values) if "path" in values else None


class _Reader:
    """Reads triggers one by one."""

    def __init__(self, report: Reporter, scopes: Collection[str]) -> None:
        self._report = report
        self._scopes = scopes
        self._seen: set[tuple[str, str]] = set()

    def read(self, node: Node, path: str) -> EventTrigger | None:
        """None after reporting the reason."""
        if node.wrong:
            return None
        if node.kind == "map":
            fields = read_fields(
                node,
                path,
                self._report,
                known=TriggerInput.model_fields,
                aliases=TRIGGER_ALIASES,
                unsupported=frozenset(),
            )
            return self.given(node, path, fields)
        expected = f"{_A_TYPE}, or a mapping with event"
        name = self._type(node, path, "", expected)
        return None if name is None else EventTrigger(events=(name,))

    def given(self, node: Node, path: str, fields: Mapping[str, FieldAt]) -> EventTrigger | None:
        """The trigger of these fields; None after reporting the reason."""
        report = self._report
        values = check_fields(TriggerInput, fields, report, skip=frozenset({"event", "debounce", "throttle"}))
        condition = values.get("condition", "").strip()
        if condition:
            at = fields["condition"]
            TemplateCheck(report, _OnlyEvent()).bare(at.value, at.path, ValueKind.BOOL)
        check_scope(fields.get("scope"), values, self._scopes, report)
        pace = self._pace(fields, values)
        found = fields.get("event")
        if found is None:
            report.at(node, path, 'the trigger does not say which events start it: add "event"')
            return None
        # An invalid condition may have been meant to distinguish two entries.
        known = "condition" in values or "condition" not in fields
        events = self.types(found, condition if known else None)
        if not events:
            return None
        return EventTrigger(
            events=events,
            condition=condition,
            priority=values.get("priority"),
            scope=values.get("scope", ""),
            pace=pace,
        )

    def _pace(self, fields: Mapping[str, FieldAt], values: Mapping[str, Any]) -> Pace:
        report = self._report
        debounce, throttle, key = (fields.get(name) for name in ("debounce", "throttle", "key"))
        if debounce is not None and throttle is not None:
            message = "debounce and throttle exclude each other: a run per burst, or a limit on runs"
            report.at(throttle.key, throttle.path, message)
            return Pace()
        name = values.get("key", "")
        if key is not None and name:
            TemplateCheck(report, _OnlyEvent()).bare(key.value, key.path, ValueKind.DYN)
        if debounce is not None:
            given = self._duration_or(debounce, DebounceInput, "quiet")
            quiet = given.get("quiet", 0.0)
            longest = given.get("max_wait") or min(quiet * DEFAULT_WAITS, LONGEST_PACE)
            if quiet and longest < quiet:
                report.at(debounce.value, debounce.path, "max_wait is shorter than quiet")
            return Pace(quiet=quiet, longest=longest, key=name)
        if throttle is not None:
            given = self._duration_or(throttle, ThrottleInput, "per")
            return Pace(limit=given.get("limit", 1), per=given.get("per", 0.0), key=name)
        if key is not None:
            report.at(key.key, key.path, '"key" needs debounce or throttle')
        return Pace()

    def _duration_or(self, found: FieldAt, model: type[DefinitionPart], name: str) -> Mapping[str, Any]:
        """The fields of a mapping, or `name` alone as a duration; empty after reporting the problem."""
        report, node = self._report, found.value
        if node.wrong or not _has_value(found, report):
            return {}
        if node.kind != "map":
            return check_fields(model, {name: found}, report, skip=frozenset())
        fields = read_fields(
            node, found.path, report, known=model.model_fields, aliases={}, unsupported=frozenset(), refused=frozenset()
        )
        if name not in fields:
            report.at(node, found.path, f'"{name}" is missing: add it')
        return check_fields(model, fields, report, skip=frozenset())

    def types(self, found: FieldAt, condition: str | None) -> tuple[str, ...]:
        if not _has_value(found, self._report):
            return ()
        node, path = found.value, found.path
        if node.kind != "seq":
            names = [self._type(node, path, condition, f"{_A_TYPE}, or a list of types")]
        elif not _count_fits(node, path, MOST_TYPES, "type", self._report):
            return ()
        else:
            names = [self._type(item, join(path, index), condition, _A_TYPE) for index, item in enumerate(node.items)]
        return tuple(name for name in names if name is not None)

    def _type(self, node: Node, path: str, condition: str | None, expected: str) -> str | None:
        name = _text(node, path, expected, check_event_type, self._report)
        if name is None:
            return None
        if condition is not None:
            if (name, condition) in self._seen:
                under = " with the same condition" if condition else ""
                self._report.at(node, path, f'"{name}" is listed twice{under}: remove it')
                return None
            self._seen.add((name, condition))
        if name == DATA_CHANGED and condition and any(found.search(condition) for found in _ABOUT_DEFINITIONS):
            message = f'the daemon reports changes of definitions as {DEFINITION_CHANGED}: write "{DEFINITION_CHANGED}"'
            self._report.at(node, path, message, warning=True)
        elif name not in BUILT_IN:
            close = get_close_matches(name.upper(), BUILT_IN, n=1, cutoff=_NEARLY_THE_SAME)
            if close:
                message = f'"{name}" is not an event of the daemon: did you mean "{close[0]}"?'
                self._report.at(node, path, message, warning=True)
        return name


def _has_value(found: FieldAt, report: Reporter) -> bool:
    node = found.value
    if node.kind == "scalar" and node.value is None and node.style == "" and not node.wrong:
        report.at(found.key, found.path, "the field has no value: give it one or remove it")
        return False
    return not node.wrong


def _count_fits(node: Node, path: str, most: int, what: str, report: Reporter) -> bool:
    count = len(node.items)
    if count == 0:
        report.at(node, path, f"expected at least one {what}, found none")
    elif count > most:
        report.at(node, path, f"found {count} {what}s: at most {most} are allowed")
    return 0 < count <= most


def _text(node: Node, path: str, expected: str, check: Callable[[str], str], report: Reporter) -> str | None:
    """The text of an entry, or None after reporting its problem."""
    if node.wrong:
        return None
    value = node.plain()
    if not isinstance(value, str):
        hint = ": put it in quotes" if isinstance(value, (bool, int, float)) else ""
        report.at(node, path, f"expected {expected}, found {describe(value)}{hint}")
        return None
    try:
        return check(value)
    except ValueError as error:
        report.at(node, path, str(error))
        return None
