"""Conditions that are asked of events."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from toban.definition import EventView, RenderError, parse
from toban.definition.expressions.cel import LOOPED_MOST
from toban.definition.expressions.event_conditions import _Programs

EVENT: dict[str, Any] = {
    "id": "e-1",
    "type": "DATA_CHANGED",
    "payload": {
        "entity": "issue",
        "n": 5,
        "ratio": 0.5,
        "labels": ["a", "urgent"],
        "author": {"name": "æøå", "team": "ops"},
        "flag": True,
        "none": None,
        "big": 2**70,
        "huge": 10**400,
        "odd": "admin\0evil",
        "broken": "\udcff",
    },
    "source": "client",
    "source_run": "",
    "source_step": "",
    "depth": 0,
    "at": "2026-12-01T09:00:00+00:00",
}
ASKED = [
    ("event.payload.entity == 'issue' && event.payload.n > 4", True),
    ("event.payload.entity == 'issue' && event.payload.n > 5", False),
    ("event.payload.n == 5.0 && event.payload.ratio < 1", True),
    ("'urgent' in event.payload.labels", True),
    ("event.payload.labels.exists(label, label.startsWith('urg'))", True),
    ("event.payload.labels.map(event, event + '!') == ['a!', 'urgent!']", True),
    ("event.payload.author.name == 'æøå'", True),
    ("event.payload['author'].team.matches('^o')", True),
    ("event[\"payload\"].entity == 'issue' // a comment", True),
    ("event.payload.flag", True),
    ("!event.payload.flag", False),
    ("event.payload.none == null", True),
    ("has(event.payload.nothing)", False),
    ("has(event.payload.nothing) && event.payload.nothing == 1", False),
    ("event.payload.nothing == 1 || true", True),
    ("type(event.payload.n) == int", True),
    ("size(event.payload.labels) == 2", True),
    ("string(event.payload.n) == '5'", True),
    ("event.depth < 16 && event.source in ['client', 'step']", True),
    ("event.source_run == '' && event.source_step == '' && event.id == 'e-1'", True),
    ("timestamp(event.at) > timestamp('2026-01-01T00:00:00Z')", True),
    ('event.type == "DATA_CHANGED"\n  && event.payload.n\n  in [1, 5]', True),
    ("event.payload.big > 1e20", True),
    ("event.payload.huge == null", True),
    ("true", True),
]


@pytest.mark.parametrize(("condition", "expected"), ASKED)
def test_a_condition_is_true_or_not(condition: str, expected: bool) -> None:
    """What is asked without the types gives what a definition was accepted for."""
    assert EventView(EVENT).matches(condition) is expected
    lines = "".join(f"    {line}\n" for line in condition.splitlines())
    listening = f"on:\n  event: A\n  condition: |\n{lines}"
    parsed = parse(f"name: w\ndescription: d\n{listening}steps: {{a: {{run: x}}}}\n")
    assert parsed.ok, parsed.errors


def test_without_a_condition_any_event_will_do() -> None:
    assert EventView(EVENT).matches("") is True
    assert EventView({}).matches("") is True


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("event.payload.nothing == 1", 'there is no field "nothing"'),
        ("event.payload.author.nothing", 'there is no field "nothing"'),
        ("event.payload.entity.x == 1", "the value has no fields"),
        ("event.payload.n", "expected true or false, found the number 5"),
        ("event.payload.none", "expected true or false, found null"),
        ("event.payload.labels", "expected true or false, found a list"),
        ("event.payload.entity > 5", "> cannot be applied to (string, int)"),
        (
            "event.payload.ratio * 2 > 1.0",
            "* cannot be applied to (double, int): make both the same",
        ),
        ("event.payload.labels[7] == 'a'", "index"),
        ("event.payload.n / 0 == 1", "divide by zero"),
        ("params.x == 1", "params"),
        ("event.payload.n =", "syntax error"),
    ],
)
def test_a_condition_without_an_answer(condition: str, reason: str) -> None:
    with pytest.raises(RenderError, match="cannot evaluate the condition: ") as caught:
        EventView(EVENT).matches(condition)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_text_is_taken_for_another() -> None:
    """The expression language would end a text at its first NUL."""
    view = EventView(EVENT)
    assert view.matches("event.payload.odd == 'admin'") is False
    assert view.matches("event.payload.odd.startsWith('admin')") is True
    assert view.matches("event.payload.broken == ''") is False


@pytest.mark.parametrize("payload", [None, 5, "text", [1, 2], True])
def test_the_payload_need_not_be_a_mapping(payload: Any) -> None:
    view = EventView({**EVENT, "payload": payload})
    assert view.matches("event.type == 'DATA_CHANGED'") is True
    with pytest.raises(RenderError):
        view.matches("event.payload.entity == 'issue'")


def test_an_event_that_is_nested_too_deeply_matches_nothing() -> None:
    payload: Any = []
    for _ in range(63):
        payload = [payload]
    assert EventView({**EVENT, "payload": payload}).matches("size(event.payload) == 1") is True
    view = EventView({**EVENT, "payload": [payload]})
    with pytest.raises(RenderError, match="nested more than 64 levels deep"):
        view.matches("true")


def test_a_change_of_the_event_is_not_seen() -> None:
    event = {**EVENT, "payload": {"n": 1}}
    view = EventView(event)
    assert view.matches("event.payload.n == 1") is True
    event["payload"]["n"] = 2
    assert view.matches("event.payload.n == 1") is True


def test_what_is_compiled_takes_a_bounded_room() -> None:
    programs = _Programs(100)
    conditions = [f"event.payload.number == {n}" for n in range(1000, 1010)]
    first = [programs.get(condition) for condition in conditions]
    assert programs.get(conditions[-1]) is first[-1]
    assert programs.get(conditions[-2]) is first[-2]
    assert programs.get(conditions[0]) is not first[0]
    # Those that were asked for last have stayed.
    assert programs.get(conditions[-2]) is first[-2]
    assert programs.get(conditions[-1]) is first[-1]
    long = "true || " + " || ".join(conditions)
    assert programs.get(long) is programs.get(long)  # also one that has no room with others


def test_without_conditions_no_compiler_is_loaded() -> None:
    program = """
import sys
from toban.definition import EventView
assert EventView({"payload": 1}).matches("")
assert "cel_expr_python.cel" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    "condition",
    [
        "event.payload.xs.filter(x, x > 5).size() > 10",
        "event.payload.xs.map(x, x + 1).size() > 10",
        "event.payload.xs.exists(x, x in event.payload.xs)",
        "event.payload.xs.exists(x, string(x).matches('9+'))",
        "event.payload.deep.xs.all(x, event.payload.xs.exists(y, x == y))",
    ],
)
def test_long_lists_are_refused_where_they_would_take_long(condition: str) -> None:
    few, many = list(range(20, 60)), list(range(LOOPED_MOST + 1))
    answers = EventView({"payload": {"xs": few, "deep": {"xs": few}}})
    assert answers.matches(condition) in (True, False)
    for payload in ({"xs": many, "deep": {"xs": few}}, {"xs": few, "deep": {"xs": many}}):
        with pytest.raises(RenderError, match=r"a list or map of 2,001 elements.*in a step"):
            EventView({"payload": payload}).matches(condition)


def test_a_plain_loop_may_go_over_a_long_list() -> None:
    payload = {"xs": list(range(9_000))}
    assert EventView({"payload": payload}).matches("event.payload.xs.exists(x, x == 8999)")
    with pytest.raises(RenderError, match="more than 10,000 elements"):
        EventView({"payload": {"xs": [0] * 10_001}}).matches("event.payload.xs.all(x, x == 0)")


@pytest.mark.parametrize("pattern", ["'('", '"[a"', "r'a{2,1}'"])
def test_a_pattern_that_cannot_be_read_is_found_when_the_definition_is_checked(
    pattern: str,
) -> None:
    condition = f"event.payload.x == 1 ||\n  event.payload.x.matches({pattern})"
    lines = "".join(f"    {line}\n" for line in condition.splitlines())
    text = f"name: w\ndescription: d\non:\n  event: A\n  condition: |\n{lines}steps: {{a: {{run: x}}}}\n"
    (error,) = parse(text).errors
    assert "cannot be read" in error.message
    assert (error.line, error.column) == (7, 31)
