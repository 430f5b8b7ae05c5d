from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban.definition import ParamError, Workflow, bind_params, parse

Read = Callable[[str], Workflow]

TEXT = """\
name: a
params:
  day: {type: string, default: today}
  count: {type: integer, required: true}
  rate: {type: number, default: 1}
  dry: {type: boolean, default: false}
  names: {type: list, default: [a, 1.0]}
  options: {type: mapping}
  level: {type: integer, choices: [1, 2], default: 1}
steps: {a: {run: x}}
"""


def bind(**given: Any) -> dict[str, Any]:
    workflow = parse(TEXT).documents[0].workflow
    assert workflow is not None
    return bind_params(workflow, given)


def refused(**given: Any) -> list[tuple[str, str]]:
    with pytest.raises(ParamError) as caught:
        bind(**given)
    return caught.value.problems


def test_defaults_are_filled_in() -> None:
    assert bind(count=3) == {
        "day": "today",
        "count": 3,
        "rate": 1.0,
        "dry": False,
        "names": ["a", 1],
        "options": None,
        "level": 1,
    }
    assert type(bind(count=3)["rate"]) is float


def test_texts_are_parsed_and_whole_floats_are_integers() -> None:
    given = {
        "count": "5",
        "rate": "2.5",
        "dry": "True",
        "names": "[1, {}]",
        "options": '{"a": null}',
    }
    assert bind(**given, level=2.0) == {
        "day": "today",
        "count": 5,
        "rate": 2.5,
        "dry": True,
        "names": [1, {}],
        "options": {"a": None},
        "level": 2,
    }
    bound = bind(count=5.0, names=[1.0, 1.5, True, {"a": 2.0}], rate=3)
    assert bound["count"] == 5
    assert type(bound["count"]) is int
    assert repr(bound["names"]) == "[1, 1.5, True, {'a': 2}]"
    assert repr(bound["rate"]) == "3.0"


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = refused(dayy="x", rate="fast", dry="yes", names="{}", options=[1], level=3, day=5)
    assert found == [
        ("dayy", 'unknown parameter: did you mean "day"?'),
        ("day", "expected a string, found the number 5"),
        ("count", "missing: expected an integer"),
        ("rate", 'expected a number, found "fast"'),
        ("dry", 'expected a boolean, found "yes"'),
        ("names", "expected a list, found a mapping"),
        ("options", "expected a mapping, found a list"),
        ("level", "expected one of 1, 2, found the number 3"),
    ]
    with pytest.raises(ParamError, match="parameter count: missing"):
        bind()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", None, "expected an integer, found null"),
        ("count", True, "expected an integer, found true"),
        ("count", 1.5, "found the number 1.5"),
        ("count", "1.0", 'found "1.0"'),
        ("count", "", 'found ""'),
        ("count", 2**63, "64 bits"),
        ("count", "9" * 30, "expected an integer"),
        ("rate", float("nan"), "finite"),
        ("rate", 10**400, "finite"),
        ("rate", "1e999", "finite"),
        ("day", "a\0b", "NUL"),
        ("day", "\ud800", "not valid Unicode"),
        ("day", None, "found null"),
        ("names", "[1", 'found "[1"'),
        ("names", [{1: 2}], "keys of a mapping must be strings"),
        ("names", [object()], "expected plain data, found a object"),
        ("names", "[" * 100_000, "expected a list"),
        ("options", {"a": [float("inf")]}, "finite"),
    ],
)
def test_values_that_do_not_fit(name: str, value: Any, message: str) -> None:
    given = {"count": 1, name: value}
    ((found, text),) = refused(**given)
    assert found == name
    assert message in text


def test_null_stands_for_nothing_given() -> None:
    assert bind(count=1, options=None)["options"] is None


def test_a_workflow_without_parameters(workflow: Read) -> None:
    found = workflow("name: plain\nsteps: {a: {run: x}}")
    assert bind_params(found, {}) == {}
    with pytest.raises(ParamError, match=r"parameter x: unknown parameter \(plain takes no parameters"):
        bind_params(found, {"x": 1})


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")).filter(lambda text: "\0" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


def floats_only(value: Any) -> Any:
    """As a protobuf Struct would bring it."""
    match value:
        case bool():
            return value
        case int():
            return float(value)
        case list():
            return [floats_only(item) for item in value]
        case dict():
            return {key: floats_only(item) for key, item in value.items()}
        case _:
            return value


@given(st.lists(PLAIN, max_size=4))
def test_plain_data_survives_the_transport(names: list[Any]) -> None:
    assert repr(bind(count=1, names=floats_only(names))["names"]) == repr(names)


@given(st.one_of(PLAIN, st.floats(), st.binary()), st.sampled_from(["day", "count", "rate", "dry"]))
def test_any_value_is_bound_or_refused(value: Any, name: str) -> None:
    kinds = {"day": str, "count": int, "rate": float, "dry": bool}
    try:
        found = type(bind(**{"count": 1, name: value})[name])
    except ParamError as error:
        wrong = [problem for problem, _ in error.problems]
    else:
        wrong = [name] if found is kinds[name] else []
    assert wrong == [name]
