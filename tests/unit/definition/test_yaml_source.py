from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from toban.definition import Problem, parse
from toban.definition.source.yaml_events import YamlSyntaxError, events
from toban.definition.source.yaml_source import read_documents
from toban.limits import MAX_SOURCE_BYTES

Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

MINIMAL = "name: a\ndescription: d\nsteps: {a: {run: x}}\n"


def plain(text: str) -> Any:
    documents, stopped = read_documents(text)
    assert not stopped
    assert len(documents) == 1
    assert documents[0].problems == []
    assert documents[0].root is not None
    return documents[0].root.plain()


PIECES = [
    *[
        "a: ",
        "- ",
        "  ",
        "\n",
        "'q'",
        '"d\\n"',
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&x ",
        "*x",
        "|\n",
        ">-\n",
    ],
    *["# c\n", "---\n", "...\n", "? ", ": ", "<<: ", "!!str ", "x", "1", "\t", "é", "\r\n"],
]
YAML_TEXT = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@settings(max_examples=300)
@given(YAML_TEXT)
def test_events_are_those_of_ruamel(text: str) -> None:
    """Our faster reader must not differ from the library's own, whatever it is given."""

    def shown(event: Any) -> tuple[Any, ...]:
        value, anchor = getattr(event, "value", None), getattr(event, "anchor", None)
        marks = (event.start_mark, event.end_mark)
        places = [(mark.index, mark.line, mark.column) for mark in marks]
        return type(event).__name__, value, anchor, getattr(event, "style", None), places

    def ours() -> list[Any]:
        try:
            return [shown(event) for event in events(text)]
        except YamlSyntaxError as error:
            return [error.line, error.column]

    def theirs() -> list[Any]:
        try:
            return [shown(event) for event in YAML(typ="safe", pure=True).parse(text)]
        except YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            return [mark.line, mark.column] if mark else [0, 0]

    assert ours() == theirs()


def test_scalars_follow_yaml_1_2() -> None:
    assert plain("[on, yes, no, off, y, true, False, null, ~, 0o17, 0x1f, 017, 1_000, 1.5, 1e3]") == [
        *["on", "yes", "no", "off", "y", True, False, None, None, 15, 31, 17, "1_000", 1.5, 1000.0]
    ]
    assert plain("[2026-01-01, 12:30, 1.2.3, -, '5', \"5\", !!str 5, !!int '5', ]") == [
        *["2026-01-01", "12:30", "1.2.3", "-", "5", "5", "5", 5]
    ]


def test_json_is_yaml() -> None:
    assert plain('{"a": [1, 2.5, true, null, "x\\u00e9"], "b": {}}') == {
        "a": [1, 2.5, True, None, "xé"],
        "b": {},
    }


def test_anchors_and_merge_keys() -> None:
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {<<: [{a: 9}, *x], c: *x}\n"
    assert plain(text) == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 1, "b": 3},
        "z": {"a": 9, "b": 2, "c": {"a": 1, "b": 2}},
    }


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the file is empty"),
        ("# nothing\n\n---\n", 1, 1, "the file is empty"),
        ("- a\n", 1, 1, "expected a mapping with name and steps, found a list"),
        ("just text", 1, 1, 'expected a mapping with name and steps, found "just text"'),
        ("name: [a\n", 2, 1, "not valid YAML: expected ',' or ']'"),
        ("name: a\n\tx: 1\n", 2, 1, "indent with spaces, not tabs"),
        ("name: a\nrun: {{ x }} y\n", 2, 14, "a value that starts with {{ must be in quotes"),
        ("name: a\nsteps: *nope\n", 2, 8, "no &nope is before it"),
        ("name: a\nb: \x07\n", 2, 4, "found the character U+0007"),
        (b"name: a\nb: \xe3\x81\x82\xff\n", 2, 5, "byte 0xff is not UTF-8"),
        (b"\xff\xfen\x00", 1, 1, "is not UTF-8"),
    ],
)
def test_what_is_not_a_definition_is_a_problem_with_a_position(
    text: str | bytes, line: int, column: int, message: str, errors: Errors
) -> None:
    found = errors(text)[0]
    assert (found.line, found.column, found.file) == (line, column, "x.yaml")
    assert message in found.message


def test_duplicate_keys_are_refused_where_they_stand(error: Error) -> None:
    found = error("name: a\ndescription: d\nname: b\nsteps: {a: {run: x}}\n")
    assert (found.line, found.column) == (3, 1)
    assert found.message == 'duplicate key "name": already defined on line 1'


def test_an_unquoted_template_gives_one_problem_that_says_so(error: Error) -> None:
    found = error("name: a\nsteps:\n  a:\n    run: {{ params.x }}\n")
    assert (found.line, found.column) == (4, 10)
    assert "must be in quotes" in found.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 100_000, "nested more than 64 levels deep"),
        ("a: " + "{b: " * 5_000, "nested more than 64 levels deep"),
        (
            "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 300)),
            "aliases nest",
        ),
        (
            "a0: &a0 [x, x, x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)),
            "found more than 500,000 values",
        ),
        ("a: &a [*a]\n", "*a contains itself"),
        ("a: &a {<<: *a}\n", "*a contains itself"),
        ("--- x\n" * 2_000, "found more than 1000 documents"),
        ("x" * (MAX_SOURCE_BYTES + 1), "the file has more than 2 MiB"),
        ("a: " + "9" * 5_000, "an integer of 5000 digits"),
        ("a: 1e999", "is not a finite number"),
        ("a: .nan", "is not a finite number"),
        ('a: "\\0"', "cannot be passed to a process"),
        ('a: "\\ud800"', "cannot be passed to a process"),
        ("a: !!python/object:os.system x", "remove it"),
        ("? [a, b]\n: c\n", "a key must be a plain name"),
        ('a: "\\UFFFFFFFF"', "out of range"),
        ('a: "\\U00110000"', "out of range"),
        ("%YAML " + "9" * 5_000 + ".1\n--- a", "out of range"),
        ('"\\ud800": 1', "cannot be passed to a process"),
        ("a: \ud800", "found half a character, U+D800"),
    ],
)
def test_hostile_yaml_ends_in_a_clean_problem(text: str, message: str, errors: Errors) -> None:
    assert any(message in problem.message for problem in errors(text))


KEYS = "x: &a {" + ", ".join(f"k{i}: 1" for i in range(2_000)) + "}\n"
MERGE_BOMBS = {
    "the same mapping again and again": KEYS + "y:\n" + "  <<: *a\n" * 130_000,
    "a list of mappings again and again": "x: &a ["
    + ", ".join(["{k: 1}"] * 5_000)
    + "]\ny:\n"
    + "  <<: *a\n" * 130_000,
    "a mapping in each of many": KEYS + "y:\n" + "  - {<<: *a}\n" * 90_000,
    "in each of many documents": (KEYS + "y:\n" + "  <<: *a\n" * 3 + "---\n") * 60,
}


@pytest.mark.parametrize("text", MERGE_BOMBS.values(), ids=MERGE_BOMBS)
def test_a_merge_bomb_is_weighed_before_it_is_expanded(text: str, errors: Errors) -> None:
    """1.2 MB of `<<: *a` took more than 90 s. The processor's time counts: the machine may be busy."""
    began = time.process_time()
    found = errors(text)
    assert time.process_time() - began < 10
    (bound,) = [each for each in found if "found more than 500,000 values" in each.message]
    assert bound.line > 1


def test_merges_of_a_usual_file_are_read() -> None:
    assert plain("a: &a {x: 1, y: 2}\nb: &b {z: 3}\nc: {<<: [*a, *b], y: 4}\nd: {<<: *a}\n") == {
        "a": {"x": 1, "y": 2},
        "b": {"z": 3},
        "c": {"y": 4, "x": 1, "z": 3},
        "d": {"x": 1, "y": 2},
    }


def test_a_character_that_json_escapes_in_two_halves_is_one() -> None:
    text = '{"name": "a", "description": "\\ud83d\\ude00 \\ud83d\\uDE00", "steps": {"a": {"run": "x"}}}'
    (document,) = parse(text).documents
    assert document.workflow is not None
    assert document.workflow.description == "\U0001f600 \U0001f600"


def test_positions_behind_characters_in_two_halves(error: Error) -> None:
    found = error('name: a\nsteps: {a: {run: "\\ud83d\\ude00{{ params.x }}"}}\n')
    assert (found.line, found.column) == (2, 34)


JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text() | st.sampled_from(["name", "steps", "a", "run", "when", "for_each", "params"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
).map(lambda value: json.dumps(value))
ESCAPES = st.sampled_from(["\\ud83d", "\\ude00", "\\U00110000", "\\x00", "\\u0000", "\\", '"', "\ud800", "{{", "}}"])
HOSTILE_TEXT = st.one_of(
    YAML_TEXT,
    JSON_TEXT,
    st.lists(YAML_TEXT | ESCAPES | st.text(max_size=4), max_size=8).map("".join),
    st.lists(ESCAPES | st.text(max_size=4), max_size=8).map(
        lambda parts: f'name: a\nsteps: {{a: {{run: "{"".join(parts)}", when: "{"".join(parts)}"}}}}\n'
    ),
    st.binary(max_size=40),
)


@settings(max_examples=400, deadline=None)
@given(HOSTILE_TEXT)
def test_whatever_is_read_ends_in_problems_that_can_be_sent(text: str | bytes) -> None:
    for problem in parse(text).problems:
        assert str(problem).encode()
        assert problem.line >= 1
        assert problem.column >= 1


def test_several_documents_keep_their_own_text() -> None:
    first = "# about a\n" + MINIMAL
    second = "# about b\n" + MINIMAL.replace("name: a", "name: b")
    third = MINIMAL.replace("name: a", "name: c")
    parsed = parse(f"{first}---\n{second}--- # third\n{third}---\n")
    assert parsed.ok
    assert [document.source for document in parsed.documents] == [first, second, third]
    assert [document.line for document in parsed.documents] == [1, 6, 11]
    names = [document.workflow.name for document in parsed.documents if document.workflow]
    assert names == ["a", "b", "c"]
    for document in parsed.documents:
        assert parse(document.source).documents[0].workflow == document.workflow


@pytest.mark.parametrize(
    ("before", "source", "line"),
    [("---\n", MINIMAL, 2), ("# c\n---\n", "# c\n---\n" + MINIMAL, 1), ("\ufeff", MINIMAL, 1)],
)
def test_where_the_first_document_begins(before: str, source: str, line: int) -> None:
    (document,) = parse(before + MINIMAL).documents
    assert (document.source, document.line) == (source, line)


def test_problems_of_one_document_do_not_hide_the_others(errors: Errors) -> None:
    parsed = parse(f"{MINIMAL}---\nname: b\nsteps: {{}}\n---\nname: a: b\n")
    assert parsed.documents[0].workflow is not None
    assert [problem.line for problem in parsed.errors] == [6, 8]


def test_the_same_workflow_twice_is_refused(errors: Errors) -> None:
    (found,) = errors(f"{MINIMAL}---\n{MINIMAL}")
    assert (found.line, found.column, found.path) == (5, 7, "name")


@settings(max_examples=150)
@given(st.one_of(YAML_TEXT, st.text(), st.binary()))
def test_nothing_makes_the_parser_raise(text: str | bytes) -> None:
    parsed = parse(text)
    assert parsed.ok is not bool(parsed.errors)
    for problem in parsed.problems:
        assert problem.line >= 1
        assert problem.column >= 1


def test_windows_line_ends() -> None:
    parsed = parse(MINIMAL.replace("\n", "\r\n").encode())
    assert parsed.ok
    parsed = parse("name: a\r\nsteps:\r\n  a: {run: 'echo {{ params.x }}'}\r\n")
    assert [(problem.line, problem.column) for problem in parsed.errors] == [(3, 21)]
