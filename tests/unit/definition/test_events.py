"""Events that start a workflow or a job, watched paths, and `event` in templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition import (
    BUILT_IN,
    NO_EVENT,
    EventTrigger,
    Overlap,
    Problem,
    RenderError,
    Scope,
    Workflow,
    bind_params,
    evaluate_items,
    evaluate_when,
    json_schema,
    parse,
    preview,
    references,
    render,
)
from toban.definition.expressions.template_names import EVENT_FIELDS
from toban.definition.model.event_triggers import Pace, Watch
from toban.definition.schema.event_fields import MOST_TRIGGERS, MOST_TYPES, MOST_WATCHED

Read = Callable[[str], Workflow]
Error = Callable[[str | bytes], Problem]
Errors = Callable[[str | bytes], list[Problem]]

HEAD = "name: w\ndescription: d\n"
STEPS = "\nsteps: {a: {run: x}}\n"
EVENT: dict[str, Any] = {
    "id": "e-1",
    "type": "DATA_CHANGED",
    "payload": {"entity": "issue", "n": 3, "tags": ["a", "b"], "who": "O'Brien; exit 1"},
    "source": "step",
    "source_run": "r-1",
    "source_step": "fetch",
    "depth": 2,
    "at": "2026-12-01T09:00:00+00:00",
    "coalesced": 1,
}


@pytest.mark.parametrize(
    ("text", "events", "intervals", "priority"),
    [
        (
            "{eventTypes: [A, B], condition: event.depth == 0, priority: 30}",
            [EventTrigger(events=("A", "B"), condition="event.depth == 0", priority=30)],
            [],
            30,
        ),
        ("{event: A, schedule: {interval: 1500}}", [EventTrigger(events=("A",))], [("", 1.5)], 0),
        ("{schedule: {cron: '0 3 * * *', misfire: skip}, priority: -5}", [], [("0 3 * * *", None)], -5),
        ("{schedule: [{interval: 60000}, '@daily']}", [], [("", 60.0), ("0 0 * * *", None)], 0),
    ],
)
def test_triggers_are_events_and_schedules_in_one(
    workflow: Read, text: str, events: list[EventTrigger], intervals: list[tuple[str, float | None]], priority: int
) -> None:
    for source in (f"{HEAD}triggers: {text}{STEPS}", f"jobs: {{w: {{run: x, triggers: {text}}}}}"):
        found = workflow(source)
        assert found.triggers == tuple(events)
        assert [(schedule.cron, schedule.every) for schedule in found.schedules] == intervals
        assert found.priority == priority
    assert workflow(f"{HEAD}triggers: {text}\npriority: 7{STEPS}").priority == 7, "its own counts for other runs"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("on: A\ntriggers: {eventTypes: [B]}", "on", '"triggers" and "on" both say what starts it: keep one'),
        (
            "schedule: '@daily'\ntriggers: {eventTypes: [B]}",
            "schedule",
            '"triggers" and "schedule" both say what starts it: keep one',
        ),
        ("triggers: [A]", "triggers", "expected a mapping with eventTypes, schedule or both, found a list"),
        ("triggers: {}", "triggers", "expected a mapping with eventTypes, schedule or both, found a mapping"),
        (
            "triggers: {priority: 5}",
            "triggers",
            'the triggers do not say what starts it: add "eventTypes" or "schedule"',
        ),
        ("triggers: {eventTypes: []}", "triggers.eventTypes", "expected at least one type, found none"),
        ("triggers: {eventTypes: [A], priority: 101}", "triggers.priority", "expected at most 100"),
        ("triggers: {eventTypes: [A], condition: params.x}", "triggers.condition", "a condition may use event only"),
        (
            "triggers: {schedule: '@daily', condition: 'true'}",
            "triggers.condition",
            '"condition" applies to events: add "eventTypes", or remove it',
        ),
        ("triggers: {cron: '@daily', event: A}", "triggers.cron", 'unknown field "cron": write schedule'),
        ("triggers: {event_types: [A], event: B}", "triggers.event_types", 'unknown field "event_types": write event'),
        (
            "triggers: {schedule: {cron: '@daily', interval: 5000}}",
            "triggers.schedule.interval",
            '"cron" and "interval" both say when: keep one',
        ),
        (
            "triggers: {schedule: {interval: 5m}}",
            "triggers.schedule.interval",
            'expected a number of milliseconds, found "5m": write every for a duration',
        ),
        ("triggers: {schedule: {interval: 5}}", "triggers.schedule.interval", "expected an interval of at least 1s"),
        ("schedule: {interval: 5000}", "schedule.interval", 'unknown field "interval": write every'),
        ("params: {p: {required: true}}\ntriggers: {event: A}", "triggers", 'the parameter "p" is required'),
        ("isEnabled: true", "isEnabled", 'unknown field "isEnabled": write enabled'),
    ],
)
def test_wrong_triggers(errors: Errors, text: str, path: str, message: str) -> None:
    found = {problem.path: problem.message for problem in errors(f"{HEAD}{text}{STEPS}")}
    assert found[path].startswith(message)


def paced(**pace: Any) -> EventTrigger:
    return EventTrigger(events=("A",), pace=Pace(**pace))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on: DATA_CHANGED", [EventTrigger(events=("DATA_CHANGED",))]),
        ("on: [a, b]", [EventTrigger(events=("a",)), EventTrigger(events=("b",))]),
        ("on: {event: order.paid}", [EventTrigger(events=("order.paid",))]),
        ("on: {eventTypes: [A, B]}", [EventTrigger(events=("A", "B"))]),
        ("on: [yes, on]", [EventTrigger(events=("yes",)), EventTrigger(events=("on",))]),
        ("on: データ更新", [EventTrigger(events=("データ更新",))]),
        (
            "on: {event: A, condition: ' event.payload.x == 1 ', priority: -100}",
            [EventTrigger(events=("A",), condition="event.payload.x == 1", priority=-100)],
        ),
        ("on: {event: A, debounce: 10s}", [paced(quiet=10, longest=100)]),
        ("on: {event: A, debounce: 1d}", [paced(quiet=86400, longest=86400)]),
        (
            "on: {event: A, debounce: {quiet: 500ms, max_wait: 1m}, key: event.payload.id}",
            [paced(quiet=0.5, longest=60, key="event.payload.id")],
        ),
        ("on: {event: A, throttle: 1m}", [paced(limit=1, per=60)]),
        ("on: {event: A, throttle: {limit: 3, per: 1h}}", [paced(limit=3, per=3600)]),
        ("on: {event: A, scope: full}", [EventTrigger(events=("A",), scope="full")]),
        (
            "scopes: {quick: [a], x: [a]}\non: [{event: A, scope: quick}, B]",
            [EventTrigger(events=("A",), scope="quick"), EventTrigger(events=("B",))],
        ),
        ("on: {event: A, condition: true}", [EventTrigger(events=("A",), condition="true")]),
        (
            "on: [A, {event: A, condition: event.depth < 1, priority: 5}, {event: B}]",
            [
                EventTrigger(events=("A",)),
                EventTrigger(events=("A",), condition="event.depth < 1", priority=5),
                EventTrigger(events=("B",)),
            ],
        ),
    ],
)
def test_each_way_to_say_which_events(text: str, expected: list[EventTrigger], workflow: Read) -> None:
    """`on` is a word: YAML 1.2 knows no other booleans than true and false."""
    found = workflow(f"{HEAD}{text}{STEPS}")
    assert found.triggers == tuple(expected)
    assert (found.schedules, found.watch) == ((), ())


def test_an_event_waits_unless_the_file_says_otherwise(workflow: Read) -> None:
    plain = workflow(f"{HEAD}on: A{STEPS}")
    assert (plain.overlap, plain.event_overlap) == (Overlap.SKIP, Overlap.QUEUE)
    for overlap in Overlap:
        said = workflow(f"{HEAD}on: A\noverlap: {overlap}{STEPS}")
        assert (said.overlap, said.event_overlap) == (overlap, overlap)


def test_a_job_has_events_that_its_users_do_not_inherit() -> None:
    parsed = parse(
        "jobs: {j: {run: 'echo {{ event.payload.x }}', on: [A, {event: B, priority: 7}]}}\n---\n"
        f"{HEAD}steps: {{s: {{job: j}}}}"
    )
    assert parsed.ok
    job, user = (document.workflow for document in parsed.documents)
    assert job is not None
    assert job.triggers == (EventTrigger(events=("A",)), EventTrigger(events=("B",), priority=7))
    assert (job.event_overlap, job.watch) == (Overlap.QUEUE, ())
    assert user is not None
    assert user.triggers == ()


@pytest.mark.parametrize(
    ("text", "path", "column", "message"),
    [
        ("on:", "on", 1, "the field has no value"),
        ("on: true", "on", 5, "or a mapping with event, found true: put it in quotes"),
        ("on: 5", "on", 5, "expected the type of an event, such as DATA_CHANGED, or a mapping"),
        ("on: ''", "on", 5, "it is empty: give the event a type"),
        ("on: a b", "on", 5, "it has a space or a control character"),
        (f"on: {'x' * 129}", "on", 5, "it has 129 characters: at most 128 are allowed"),
        ("on: []", "on", 5, "expected at least one trigger, found none"),
        ("on: [null]", "on[0]", 6, "found null"),
        ("on: [[A]]", "on[0]", 6, "or a mapping with event, found a list"),
        (
            f"on: [{', '.join(f'E{n}' for n in range(MOST_TRIGGERS + 1))}]",
            *("on", 5, "found 101 triggers: at most 100 are allowed"),
        ),
        ("on: {}", "on", 5, 'does not say which events start it: add "event"'),
        ("on: {priority: 5}", "on", 5, 'does not say which events start it: add "event"'),
        ("on: {event: A, prio: 5}", "on.prio", 16, 'did you mean "priority"?'),
        (
            "on: {event: A, eventTypes: [B]}",
            "on.eventTypes",
            16,
            '"event" is given twice, as "event" and as "eventTypes": keep one',
        ),
        (
            "on: {eventTypes: [A], event: B}",
            "on.event",
            23,
            '"event" is given twice, as "eventTypes" and as "event": keep one',
        ),
        ("on: {event: }", "on.event", 6, "the field has no value"),
        ("on: {event: []}", "on.event", 13, "expected at least one type, found none"),
        ("on: {event: 5}", "on.event", 13, "or a list of types, found the number 5"),
        ("on: {event: {a: b}}", "on.event", 13, "or a list of types, found a mapping"),
        ("on: {eventTypes: [A, 5]}", "on.eventTypes[1]", 22, "found the number 5: put it in"),
        (
            f"on: {{event: [{', '.join(f'E{n}' for n in range(MOST_TYPES + 1))}]}}",
            *("on.event", 13, "found 101 types: at most 100 are allowed"),
        ),
        ("on: {event: [A, B, A]}", "on.event[2]", 20, '"A" is listed twice: remove it'),
        ("on: {event: A, debounce: 1s, throttle: 1s}", "on.throttle", 30, "debounce and throttle exclude each other"),
        ("on: {event: A, key: event.payload.id}", "on.key", 16, '"key" needs debounce or throttle'),
        ("on: {event: A, debounce: 1s, key: id}", "on.key", 35, "expected a field of the event such as"),
        ("on: {event: A, debounce: 1s, key: event.pay}", "on.key", 35, 'unknown field "pay" of event'),
        ("on: {event: A, debounce: 2d}", "on.debounce", 26, "expected a duration from 100ms to 1d"),
        ("on: {event: A, debounce: {}}", "on.debounce", 26, '"quiet" is missing: add it'),
        ("on: {event: A, debounce: {quiet: 1m, max_wait: 1s}}", "on.debounce", 26, "max_wait is shorter than quiet"),
        ("on: {event: A, throttle: {limit: 0, per: 1s}}", "on.throttle.limit", 34, "at least 1"),
        ("on: {event: A, throttle: soon}", "on.throttle", 26, "expected a duration"),
        ("on: {event: A, scope: r}\nscopes: {q: [a]}", "on.scope", 23, 'unknown scope "r" (known: q)'),
        ("on: [A, {event: [B, A]}]", "on[1].event[1]", 21, '"A" is listed twice: remove it'),
        (
            "on: [{event: A, condition: 'true'}, {event: A, condition: ' true '}]",
            *("on[1].event", 45, '"A" is listed twice with the same condition: remove it'),
        ),
        ("on: {event: A, priority: 101}", "on.priority", 26, "expected at most 100"),
        ("on: {event: A, priority: -101}", "on.priority", 26, "expected at least -100"),
        ("on: {event: A, priority: high}", "on.priority", 26, "expected an integer"),
        ("on: {event: A, condition: ''}", "on.condition", 27, "expected text, found an empty"),
        ("on: {event: A, condition: [x]}", "on.condition", 27, "expected a string, found a list"),
        (
            "on: {event: A, condition: 5}",
            *("on.condition", 27, "expected a boolean, but the expression gives an integer"),
        ),
        (
            "on: {event: A, condition: event.type}",
            *("on.condition", 27, "expected a boolean, but the expression gives a string"),
        ),
        (
            "on: {event: A, condition: event.depth == 'x'}",
            *("on.condition", 39, "type error: == cannot be applied to (int, string)"),
        ),
        (
            "on: {event: A, condition: event.paylod.x == 1}",
            *("on.condition", 27, 'unknown field "paylod" of event: did you mean "payload"?'),
        ),
        ("on: {event: A, condition: event == 1}", "on.condition", 33, "== cannot be applied to (map"),
        (
            "on: {event: A, condition: payload.x == 1}",
            *("on.condition", 34, 'unknown name "payload.x": a condition knows event'),
        ),
        ("on: {event: A, condition: entity()}", "on.condition", 33, 'unknown function "entity"'),
        ("on: {event: A, condition: event.payload.x =}", "on.condition", 43, "syntax error"),
        (
            "on: {event: A, condition: '{{ event.payload.x }}'}",
            *("on.condition", 28, "not a template: write event.payload.x"),
        ),
        *(
            (
                f"on: {{event: A, condition: {name} == 1}}",
                *("on.condition", 27, f"a condition may use event only, not {name.split('.')[0]}"),
            )
            for name in ("params.a", "run.id", "env.A", "steps.a.stdout", "item", "iteration")
        ),
        ("watch:", "watch", 1, "the field has no value"),
        ("watch: []", "watch", 8, "expected at least one path, found none"),
        ("watch: ''", "watch", 8, "expected a path, found an empty string"),
        ("watch: 5", "watch", 8, "expected a path, or a mapping with path, found the number 5: put it in quotes"),
        ("watch: {path: /a, a: b}", "watch.a", 19, 'unknown field "a"'),
        ("watch: {settle: 1s}", "watch", 8, 'the watch does not say what to watch: add "path"'),
        ("watch: {path: /a, settle: soon}", "watch.settle", 27, "expected a duration"),
        ("watch: {path: '/a*'}", "watch.path", 15, "is a pattern"),
        ("watch: [/a, {path: /a, settle: 5s}]", "watch[1]", 13, '"/a" is listed twice: remove it'),
        ("watch: [a, [b]]", "watch[1]", 12, "a mapping with path, found a list"),
        ("watch: /srv/*.csv", "watch", 8, '"/srv/*.csv" is a pattern: name a directory'),
        ("watch: [a, 'b?']", "watch[1]", 12, "is a pattern"),
        ("watch: '/srv/{{ params.x }}'", "watch", 8, "a template is not allowed here"),
        ("watch: [a, b, a]", "watch[2]", 15, '"a" is listed twice: remove it'),
        (
            f"watch: [{', '.join(f'p{n}' for n in range(MOST_WATCHED + 1))}]",
            *("watch", 8, "found 21 paths: at most 20 are allowed"),
        ),
    ],
)
def test_what_is_wrong_is_found(text: str, path: str, column: int, message: str, error: Error) -> None:
    found = error(f"{HEAD}{text}{STEPS}")
    assert (found.line, found.path, found.column) == (3, path, column)
    assert message in found.message


def test_one_wrong_entry_hides_no_other(errors: Errors) -> None:
    found = errors(f"{HEAD}on: [a b, {{event: [A, 5], condition: event.x, priority: x}}]{STEPS}")
    assert sorted(problem.path for problem in found) == [
        "on[0]",
        "on[1].condition",
        "on[1].event[1]",
        "on[1].priority",
    ]


def test_an_event_cannot_give_a_required_parameter(error: Error, workflow: Read) -> None:
    params = "params: {rows: {type: integer, required: true}, day: {default: x}, mode: {}}\n"
    found = error(f"{HEAD}{params}on: [A, B]{STEPS}")
    assert (found.path, found.line, found.column) == ("on", 4, 1)
    assert found.message.startswith('the parameter "rows" is required, but an event sets no parameters: ')
    assert workflow(f"{HEAD}{params.replace('required: true', 'default: 1')}on: A{STEPS}").triggers


def test_a_mistake_in_the_parameters_is_told_once(error: Error) -> None:
    assert error(f"{HEAD}params: 5\non: A{STEPS}").path == "params"
    wrong = "params: {a: {type: x, required: true}}\non: A"
    assert error(f"{HEAD}{wrong}{STEPS}").path == "params.a.type"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RUN_FAILD", "RUN_FAILED"),
        ("run_failed", "RUN_FAILED"),
        ("FILES_CHANGED", "FILE_CHANGED"),
        ("DEFINITIONS_CHANGED", "DEFINITION_CHANGED"),
        ("DATA_CHANGED", ""),
        ("TEST_FAILED", ""),
        ("USER_ACTION", ""),
        ("SYSTEM_EVENT", ""),
        ("ANALYSIS_COMPLETE", ""),
        ("ERROR_OCCURRED", ""),
        ("USER_CHANGED", ""),
        *((name, "") for name in sorted(BUILT_IN)),
    ],
)
def test_a_name_that_is_nearly_built_in_is_pointed_out(name: str, meant: str) -> None:
    parsed = parse(f"{HEAD}on: {{event: [A, {name}]}}{STEPS}")
    assert parsed.ok
    expected = [f'"{name}" is not an event of the daemon: did you mean "{meant}"?'] if meant else []
    assert [warning.message for warning in parsed.warnings] == expected
    assert [(warning.path, warning.column) for warning in parsed.warnings] == [("on.event[1]", 17) for _ in expected]


@pytest.mark.parametrize(
    ("condition", "is_about_definitions"),
    [
        ("event.payload.entity == 'workflow'", True),
        ("event.payload.action == 'created' && event.payload.entity == 'job'", True),
        ("'workflow' == event.payload.entity", True),
        ("event.source == 'daemon'", True),
        ("event.payload.entity == 'issue'", False),
        ("event.payload.kind == 'workflow'", False),
    ],
)
def test_a_condition_about_definitions_needs_their_event(condition: str, is_about_definitions: bool) -> None:
    parsed = parse(f'{HEAD}on: {{event: [A, DATA_CHANGED], condition: "{condition}"}}{STEPS}')
    assert parsed.ok
    message = 'the daemon reports changes of definitions as DEFINITION_CHANGED: write "DEFINITION_CHANGED"'
    expected = [("on.event[1]", message)] if is_about_definitions else []
    assert [(warning.path, warning.message) for warning in parsed.warnings] == expected
    assert not parse(f'{HEAD}on: {{event: DEFINITION_CHANGED, condition: "{condition}"}}{STEPS}').warnings


def test_no_path_has_a_nul_character(errors: Errors) -> None:
    assert {problem.line for problem in errors(f'{HEAD}watch: "a\\0b"{STEPS}')} == {3}


def test_watched_paths(workflow: Read) -> None:
    assert workflow(f"{HEAD}watch: /srv/in{STEPS}").watch == (Watch(path="/srv/in", settle=2.0),)
    assert workflow(f"{HEAD}watch: {{path: /srv/in}}{STEPS}").watch == (Watch(path="/srv/in", settle=2.0),)
    found = workflow(
        f"{HEAD}watch: [/srv/in, {{path: ../data, settle: 1m}}, 'C:\\in', {{settle: 0, path: 受信}}]{STEPS}"
    )
    assert [(each.path, each.settle) for each in found.watch] == [
        ("/srv/in", 2.0),
        ("../data", 60.0),
        ("C:\\in", 2.0),
        ("受信", 0.0),
    ]
    stored = found.to_dict()
    assert Workflow.from_dict(stored) == found
    # Older releases stored paths only, and did not wait.
    stored["watch"] = ["/srv/in"]
    assert Workflow.from_dict(stored).watch == (Watch(path="/srv/in", settle=0.0),)


@pytest.mark.parametrize("name", ["on", "watch"])
def test_steps_listen_to_nothing(name: str, error: Error) -> None:
    assert "unknown field" in error(f"{HEAD}steps: {{a: {{run: x, {name}: A}}}}").message


# Stored.


TYPES = st.text(st.characters(exclude_categories=["C", "Z"], codec="utf-8"), min_size=1, max_size=20)
CONDITIONS = st.sampled_from(["event.payload.a == 'x'", "event.depth < 3", "true", "false"])
ENTRY = st.one_of(
    TYPES,
    st.fixed_dictionaries(
        {"event": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True)},
        optional={"condition": CONDITIONS, "priority": st.integers(-100, 100)},
    ),
)
PATHS = st.text(st.characters(exclude_characters="*?[{\0", exclude_categories=["C"], codec="utf-8"), min_size=1)


@cache
def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")  # what is tested under wine has none
    return jsonschema.Draft202012Validator(json_schema())


@settings(max_examples=100)
@given(
    ENTRY | st.lists(ENTRY, min_size=1, max_size=4),
    PATHS | st.lists(PATHS, min_size=1, max_size=3, unique=True),
)
def test_what_is_accepted_is_stored_and_fits_the_schema_of_editors(on: Any, watch: Any) -> None:
    data = {"name": "w", "on": on, "watch": watch, "steps": {"a": {"run": "x"}}}
    parsed = parse(json.dumps(data))
    if not parsed.ok:
        return  # listed twice, or a path of spaces
    (document,) = parsed.documents
    assert document.workflow is not None
    assert Workflow.from_dict(json.loads(json.dumps(document.workflow.to_dict()))) == (document.workflow)
    assert not list(validator().iter_errors(data))


def test_workflows_that_no_event_starts_are_stored_as_before(workflow: Read) -> None:
    stored = workflow(f"{HEAD}{STEPS}").to_dict()
    assert not {"triggers", "event_overlap", "watch"} & stored.keys()


# In templates.


def scope(event: dict[str, Any] | None = EVENT) -> Scope:
    given = Scope(params={}, run={}, env={}, steps={})
    return given if event is None else Scope(params={}, run={}, env={}, steps={}, event=event)


def exec_step(workflow: Read, *args: str, more: str = "") -> Workflow:
    return workflow(f"{HEAD}{more}\nsteps: {{a: {{job_type: exec, target: x, args: {json.dumps(args)}}}}}")


def test_every_field_of_the_event_is_seen(workflow: Read) -> None:
    found = exec_step(workflow, *(f"{{{{ event.{name} }}}}" for name in EVENT_FIELDS))
    assert references(found.steps["a"]) == {}
    assert render(found, found.steps["a"], scope()).argv[1:] == (
        "e-1",
        "DATA_CHANGED",
        '{"entity":"issue","n":3,"tags":["a","b"],"who":"O\'Brien; exit 1"}',
        "step",
        "r-1",
        "fetch",
        "2",
        "2026-12-01T09:00:00+00:00",
        "1",
    )
    assert render(found, found.steps["a"], scope(None)).argv[1:] == (*("", "", "{}", "", "", "", "0", "", "0"),)
    older = {name: value for name, value in EVENT.items() if name != "coalesced"}
    assert render(found, found.steps["a"], scope(older)).argv[-1] == "0"
    assert NO_EVENT.keys() == EVENT_FIELDS.keys() == EVENT.keys()


def test_the_payload_is_data_of_any_type(workflow: Read) -> None:
    found = exec_step(
        workflow,
        "{{ event.payload.tags[1] }}",
        "{{ event.payload.n + 1 }}",
        '{{ event["payload"]["entity"] }}',
        "{{ has(event.payload.no) ? event.payload.no : 'none' }}",
        "{{ env.KIND }}",
        more="env: {KIND: '{{ event.type }}'}",
    )
    assert render(found, found.steps["a"], scope()).argv[1:] == (*("b", "4", "issue", "none", "DATA_CHANGED"),)


def test_a_field_that_the_payload_lacks_fails_the_step(workflow: Read) -> None:
    found = exec_step(workflow, "{{ event.payload.no }}")
    with pytest.raises(RenderError, match=r'event\.payload has no field "no"'):
        render(found, found.steps["a"], scope())
    computed = exec_step(workflow, "{{ event.payload.no + 1 }}")
    with pytest.raises(RenderError, match='there is no field "no"'):
        render(computed, computed.steps["a"], scope())


def test_an_event_never_becomes_code(workflow: Read) -> None:
    found = workflow(f"{HEAD}steps: {{a: {{run: 'echo {{{{ event.payload.who }}}}'}}}}")
    done = render(found, found.steps["a"], scope())
    assert done.env["TOBAN_V1"] == "O'Brien; exit 1"
    assert "O'Brien" not in " ".join(done.argv)


def test_conditions_and_items_see_the_event(workflow: Read) -> None:
    found = workflow(f"{HEAD}steps: {{a: {{run: x, when: event.payload.n > 2, for_each: event.payload.tags}}}}")
    assert evaluate_when(found, found.steps["a"], scope()) is True
    assert evaluate_items(found, found.steps["a"], scope()) == ("a", "b")
    by_hand = workflow(f"{HEAD}steps: {{a: {{run: x, when: event.id != ''}}}}")
    assert evaluate_when(by_hand, by_hand.steps["a"], scope(None)) is False


def test_a_preview_is_that_of_a_run_without_an_event(workflow: Read) -> None:
    found = exec_step(workflow, "by {{ event.type }}.", "{{ run.id }}")
    shown = preview(found, found.steps["a"], scope(None))
    assert shown == "x 'by .' '{{ run.id }}'"


def test_a_run_by_hand_has_parameters_as_ever(workflow: Read) -> None:
    found = workflow(f"{HEAD}params: {{day: {{default: x}}}}\non: A{STEPS}")
    assert bind_params(found, {"day": "y"}) == {"day": "y"}
