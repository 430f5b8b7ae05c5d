"""Workflows in Python: the definitions that they become, and their mistakes with lines."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import pytest
from ruamel.yaml import YAML

from toban.definition import parse
from toban.definition.schema.definition_schema import WorkflowInput
from toban.definition.schema.field_check import written_names
from toban.definition.schema.step_schema import StepInput
from toban.definition.source.yaml_writer import yaml_text
from toban.workflow import (
    InvalidWorkflow,
    Secret,
    Workflow,
    add_step,
    event,
    finally_steps,
    item,
    step,
    template,
    workflow,
)
from toban.workflow.fields import PythonStepFields, StepFields, WorkflowFields

HERE = __name__
ROOT = Path(__file__).parents[HERE.count(".")]
SIGNATURE = "fetch(day: 'str', rows: 'int' = 3, *, strict: 'bool' = False) -> 'dict[str, int]'"

NESTED = (
    "a step cannot call 'test_mistakes_in_calls.<locals>.nightly.<locals>.<lambda>': "
    "define the function at the top level of a module"
)


@step(timeout="5m")
def fetch(day: str, rows: int = 3, *, strict: bool = False) -> dict[str, int]:
    return {"rows": rows}


@step
def show(n: object, /, *more: object, context: object = None, **named: object) -> str:
    return str(n)


@step
def listen(event: Mapping[str, Any], emitter: object) -> None: ...


class Box:
    @staticmethod
    def inner() -> None: ...


def steps_of(function: Callable[..., None]) -> Any:
    made = workflow(function)
    made.to_yaml()
    return made.document["steps"]


def mistakes_of(function: Callable[..., None], **fields: Any) -> list[str]:
    """Without the path of this file, and with lines counted from that of the function."""
    with pytest.raises(InvalidWorkflow) as caught:
        workflow(**fields)(function).to_yaml()
    first = function.__code__.co_firstlineno
    assert str(caught.value).startswith(f"the workflow {function.__name__} is invalid:\n  {__file__}:")
    return [f"+{each.place.line - first} {each.path}: {each.message}" for each in caught.value.mistakes]


def test_the_fields_are_those_of_the_format() -> None:
    fields = set(get_type_hints(StepFields))
    assert fields == set(written_names(StepInput))
    assert fields - set(get_type_hints(PythonStepFields)) == {
        *("approvers", "args", "errexit", "job", "job_type", "kwargs", "run", "shell", "target", "wait")
    }
    from_function = {"params", "steps", "finally"}
    assert set(get_type_hints(WorkflowFields)) == set(written_names(WorkflowInput)) - from_function


def test_a_definition_and_its_yaml_are_the_same() -> None:
    @workflow(
        name="nightly-report",
        schedule={"cron": "0 3 * * *", "params": {"sure": True}},
        env={"A": "on", "B": "1e3"},
        timeout="1h",
    )
    def nightly(
        day: Literal["mon", "tue"] = "mon",
        rows: Annotated[int | None, "how many"] = None,
        share: float = 0.5,
        tags: list[str] = ["a"],  # noqa: B006 - the default of the workflow
        more: dict[str, int] | None = None,
        *,
        sure: bool,
    ) -> None:
        """Fetches.

        And more.
        """
        assert rows is not None
        data = fetch(day, rows, strict=sure)
        add_step("upload", run=f"echo {data['rows']} {template('run.dir')}\necho done\n", stdin=tags, timeout=90)

    document = nightly.document
    assert document == {
        "name": "nightly-report",
        "description": "Fetches.\n\nAnd more.",
        "schedule": {"cron": "0 3 * * *", "params": {"sure": True}},
        "env": {"A": "on", "B": "1e3"},
        "timeout": "1h",
        "params": {
            "day": {"type": "string", "choices": ["mon", "tue"], "default": "mon"},
            "rows": {"type": "integer", "description": "how many"},
            "share": {"type": "number", "default": 0.5},
            "tags": {"type": "list", "default": ["a"]},
            "more": {"type": "mapping"},
            "sure": {"type": "boolean", "required": True},
        },
        "steps": {
            "fetch": {
                "job_type": "python",
                "target": f"{HERE}:fetch",
                "timeout": "5m",
                "kwargs": {"day": "{{ params.day }}", "rows": "{{ params.rows }}", "strict": "{{ params.sure }}"},
            },
            "upload": {
                "run": 'echo {{ steps.fetch.result["rows"] }} {{ run.dir }}\necho done\n',
                "stdin": "{{ params.tags }}",
                "timeout": 90,
                "depends_on": ["fetch"],
            },
        },
    }
    text = nightly.to_yaml()
    assert YAML(typ="safe").load(text) == document
    parsed = parse(text)
    assert parsed.problems == ()
    (found,) = parsed.documents
    assert found.workflow is not None
    assert found.workflow.env == {"A": "on", "B": "1e3"}
    assert (nightly.name, nightly.source, nightly.base_dir) == ("nightly-report", text, str(ROOT))


@pytest.mark.parametrize(
    "value",
    [
        "on",
        "yes",
        "1e3",
        "0x10",
        "null",
        "~",
        " a",
        "a\tb",
        "a\n b",
        "\n",
        "- x",
        "#",
        "あ",
        "a: b",
        "'",
        "1_0",
    ],
)
def test_a_text_stays_a_text_in_yaml(value: str) -> None:
    text = yaml_text({"name": "x", "env": {"A": value}, "description": "d", "steps": {"a": {"run": "true"}}})
    (found,) = parse(text).documents
    assert found.workflow is not None
    assert found.workflow.env == {"A": value}


def test_arguments_go_by_name_where_they_can() -> None:
    def nightly(day: str = "x") -> None:
        show(day, 1, "two", key=[day, {"k": 2.5}])
        show(None)
        listen()  # type: ignore[call-arg]
        show.with_options(id="third", title="Third", when="params.day == 'x'")(event["payload"])

    steps = steps_of(nightly)
    assert list(steps) == ["show", "show_2", "listen", "third"]
    assert steps["show"]["args"] == ["{{ params.day }}", 1, "two"]
    assert steps["show"]["kwargs"] == {"key": ["{{ params.day }}", {"k": 2.5}]}
    assert steps["show_2"]["args"] == [None]
    assert "args" not in steps["listen"]
    assert "kwargs" not in steps["listen"]
    assert steps["third"] == {
        "job_type": "python",
        "target": f"{HERE}:show",
        "title": "Third",
        "when": "params.day == 'x'",
        "args": ['{{ event["payload"] }}'],
    }


def test_what_a_step_uses_it_depends_on() -> None:
    def nightly(days: list[str] = []) -> None:  # noqa: B006 - the default of the workflow
        first = fetch("a")
        other = add_step("sh-step", run="echo {{ params.days }}")
        add_step("argument", job_type="exec", target="echo", args=[first, other.stdout])
        add_step("text", run=f"echo {other.exit_code} {first}")
        add_step("condition", run="true", when=f"{other.outputs.expression}.size() > 0")
        add_step("items", run="echo {{ item.day }}", for_each={"day": template("params.days"), "n": first["rows"]})
        show.with_options(for_each=days, depends_on=[first, "text", other])(item)
        add_step("none", run="echo steps.fetch.result")
        with finally_steps():
            last = add_step("tidy", run=f"echo {first} {other.status}")
            add_step("end", run=f"echo {last.stderr}")

    made = workflow(nightly)
    made.to_yaml()
    needs = {name: fields.get("depends_on") for name, fields in made.document["steps"].items()}
    assert needs == {
        "fetch": None,
        "sh-step": None,
        "argument": ["fetch", "sh-step"],
        "text": ["sh-step", "fetch"],
        "condition": ["sh-step"],
        "items": ["fetch"],
        "show": ["fetch", "text", "sh-step"],
        "none": None,
    }
    assert made.document["steps"]["items"]["for_each"] == {"day": "params.days", "n": 'steps.fetch.result["rows"]'}
    assert made.document["steps"]["show"]["for_each"] == "params.days"
    assert {name: fields.get("depends_on") for name, fields in made.document["finally"].items()} == {
        "tidy": None,
        "end": ["tidy"],
    }


def test_outside_of_a_workflow_a_call_is_a_call() -> None:
    assert fetch("x", rows=7) == {"rows": 7}
    assert inspect.signature(fetch).parameters.keys() == {"day", "rows", "strict"}
    assert fetch.function.__name__ == "fetch"
    with pytest.raises(RuntimeError, match="add_step can be called in the function of a workflow only"):
        add_step("x", run="true")
    with pytest.raises(RuntimeError, match="finally_steps"), finally_steps():
        pass
    nightly = workflow(lambda: None)
    with pytest.raises(TypeError, match=r"start it with toban.run"):
        nightly()


def test_mistakes_of_the_format_have_the_lines_of_their_steps() -> None:
    def nightly(day: str) -> None:
        """Does it."""
        fetch.with_options(timeout="5 minutes")(day)
        add_step(
            "upload",
            run="echo {{ steps.fecth.result }}",
        )
        with finally_steps():
            add_step("tidy", run="true", depends_on="nothing", bogus=1)  # type: ignore[call-arg]

    found = mistakes_of(nightly, schedule="99 3 * * *")
    assert sorted(each.partition(": ")[0] for each in found) == [
        "+0 schedule",
        "+2 steps.fetch.timeout",
        "+3 steps.upload.run",
        "+8 finally.tidy.bogus",
        "+8 finally.tidy.depends_on[0]",
    ]
    assert 'expected a duration, found "5 minutes"' in found[1]


def test_mistakes_in_calls() -> None:
    def nightly(day: str) -> None:
        fetch()  # type: ignore[call-arg]
        fetch(day, rowz=1)  # type: ignore[call-arg]
        fetch(Path("x"))  # type: ignore[arg-type]
        step(lambda: None)()
        step(Box.inner)()
        add_step("fetch", run="true")
        add_step("a", run="true", depends_on=[7], env={day: "x"})

    first = nightly.__code__.co_firstlineno + 1
    assert mistakes_of(nightly) == [
        f"+1 steps.fetch: cannot call {SIGNATURE}: missing a value for 'day'",
        f"+2 steps.fetch: cannot call {SIGNATURE}: got an unexpected keyword argument 'rowz'",
        f"+3 steps.fetch_3.kwargs: found a {type(Path()).__name__}, which is no JSON value: {Path('x')!r}",
        f"+4 steps.<lambda>: {NESTED}",
        f"+6 steps.fetch: the id is taken by the step in line {first} of {__file__}: give one of them another id",
        "+7 steps.a.depends_on: expected steps, their results or ids, found 7",
        "+7 steps.a.env: the key <value params.day> is neither a text nor a number",
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda value: value == "x",
        lambda value: 1 if value else 2,
        lambda value: value + 1,
        lambda value: value > 1,
        lambda value: list(value),
        lambda value: f"{value:>5}",
        lambda value: 1 in value,
    ],
)
def test_values_cannot_be_computed_with(use: Callable[[Any], object]) -> None:
    def nightly(day: str) -> None:
        use(day)

    (found,) = mistakes_of(nightly)
    assert "known only when a run starts" in found
    assert "params.day" in found


def test_other_errors_of_the_function_have_their_line() -> None:
    def nightly(day: str) -> None:
        _ = day.upper()

    def other(day: str) -> None:
        raise ValueError("no")

    assert mistakes_of(nightly) == [
        "+1 : AttributeError: params.day has no attribute 'upper': write [\"upper\"] for a part of the value"
    ]
    assert mistakes_of(other) == ["+1 : ValueError: no"]


def test_parameters_have_types_of_the_format() -> None:
    def many(*days: str) -> None: ...
    def path(day: Path) -> None: ...
    def mixed(day: Literal["a", 1]) -> None: ...
    def either(day: str | int) -> None: ...
    def unknown(day: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    assert mistakes_of(many) == ["+0 : a workflow cannot have the parameter *days: name each of its parameters"]
    for function in (path, mixed, either):
        (found,) = mistakes_of(function)
        assert found.startswith("+0 : the parameter day has the type ")
        assert found.endswith(": expected str, int, float, bool, list, dict or a Literal")
    assert mistakes_of(unknown) == ["+0 : cannot read the types of the parameters: name 'Nothing' is not defined"]

    def fine(plain, days: Sequence[str], by: Mapping[str, int]) -> None:  # type: ignore[no-untyped-def]
        add_step("a", run="true")

    params = workflow(fine).document["params"]
    assert [each["type"] for each in params.values()] == ["string", "list", "mapping"]


def test_secret_parameters_and_secrets() -> None:
    def login(password: Secret, other: Annotated[Secret, "For later"] = None) -> None:  # type: ignore[assignment]
        add_step("a", run="true", env={"P": password, "T": template("secrets.token")})

    document = workflow(login).document
    assert document["params"] == {
        "password": {"type": "string", "secret": True, "required": True},
        "other": {"type": "string", "secret": True, "description": "For later"},
    }
    assert [each for each in workflow(login).mistakes if not each.warning] == []


def run_script(*arguments: str, cwd: Path) -> str:
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_are_named_as_steps_import_them(tmp_path: Path) -> None:
    text = textwrap.dedent("""\
        import sys
        from toban.workflow import step, workflow

        @step
        def one() -> None: ...

        @workflow
        def nightly() -> None:
            one()

        loaded = [name for name in sys.modules if name.startswith(("toban.definition", "grpc", "ruamel", "pydantic"))]
        if __name__ == "__main__":
            print(nightly.document["steps"]["one"]["target"], nightly.base_dir, loaded)
        """)
    package = tmp_path / "flows" / "inner"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").write_text("")
    (package / "night.py").write_text(text)
    assert run_script("flows/inner/night.py", cwd=tmp_path) == f"night:one {package} []\n"
    assert run_script("-m", "flows.inner.night", cwd=tmp_path) == f"flows.inner.night:one {tmp_path} []\n"
    code = "from flows.inner.night import nightly as n; print(n.document['steps']['one']['target'], n.base_dir)"
    assert run_script("-c", code, cwd=tmp_path) == f"flows.inner.night:one {tmp_path}\n"


def test_it_is_a_definition_for_the_clients() -> None:
    made = workflow(lambda: None)
    assert isinstance(made, Workflow)
    assert made.locate("steps.x.run") == made.locate("name")
