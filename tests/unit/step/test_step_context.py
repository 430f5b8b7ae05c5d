"""The context of steps: values in and out, and that the daemon reads them as meant."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toban.step
from toban.definition import NO_EVENT, ErrorClass
from toban.step import errors, step_context
from toband.domain.attempt_model import Progress
from toband.domain.structured_lines import LineFilter
from toband.supervise.launch.step_outputs import parse_outputs

HERE = Path(toban.step.__file__).parent


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "step.out"
    monkeypatch.setenv("TOBAN_OUTPUT", str(path))
    return path


def handed_on(path: Path) -> dict[str, str]:
    return parse_outputs(path.read_bytes().decode())


def test_values_are_read_back_as_they_were_handed_on(output: Path) -> None:
    toban.step.outputs(text="x", number=3, flag=True, nothing=None, deep={"日本": [1, "a\nb"]})
    toban.step.set_output("lines", "one\ntwo\n")
    toban.step.set_output("tricky", "END\nEND1\na<<b=c")
    toban.step.set_output("text", "again = y << z")
    assert handed_on(output) == {
        "text": "again = y << z",
        "number": "3",
        "flag": "true",
        "nothing": "null",
        "deep": '{"日本": [1, "a\\nb"]}',
        "lines": "one\ntwo\n",
        "tricky": "END\nEND1\na<<b=c",
    }


@settings(max_examples=50)
@given(st.dictionaries(st.from_regex("[a-z.][a-z0-9_.-]{0,9}", fullmatch=True), st.text()))
def test_any_text(tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "handed-on"
    path.write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOBAN_OUTPUT", str(path))
        toban.step.outputs(**values)
    # A carriage return at the end of a line is taken for a part of that end.
    expected = {key: "\n".join(line.removesuffix("\r") for line in value.split("\n")) for key, value in values.items()}
    assert handed_on(path) == expected


def test_a_line_without_an_end_is_not_continued(output: Path) -> None:
    output.write_text("before=1")
    toban.step.set_output("after", "2")
    assert handed_on(output) == {"before": "1", "after": "2"}


@pytest.mark.parametrize("key", ["", " ", "a=b", "a<<b", "a\nb", " a"])
def test_keys_that_could_not_be_read_back(output: Path, key: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        toban.step.set_output(key, "x")


def test_values_that_are_no_json(output: Path) -> None:
    with pytest.raises(TypeError):
        toban.step.set_output("a", object())


def test_outside_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOBAN_OUTPUT", "TOBAN_PARAMS", "TOBAN_CONTEXT_DIR", "TOBAN_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for ask in (
        toban.step.params,
        toban.step.context_dir,
        lambda: toban.step.set_output("a", "b"),
        lambda: toban.step.Context().metadata,
    ):
        with pytest.raises(toban.step.NotInAStepError, match="a step that Toban started"):
            ask()


def test_what_a_step_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = tmp_path / "params.json"
    parameters.write_text('{"day": "今日", "n": 4}', "utf-8")
    settings = {
        "TOBAN_PARAMS": str(parameters),
        "TOBAN_CONTEXT_DIR": str(tmp_path / "context"),
        "TOBAN_RUN_ID": "r",
        "TOBAN_WORKFLOW": "w",
        "TOBAN_STEP": "build[3]",
        "TOBAN_ATTEMPT": "2",
        "TOBAN_INPUTS": json.dumps({"raw": "in/raw.json"}),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TOBAN_ITERATION", raising=False)
    monkeypatch.chdir(tmp_path)
    here = toban.step.Context()
    assert here.params == here.config == toban.step.params() == {"day": "今日", "n": 4}
    assert here.directory == toban.step.context_dir() == tmp_path / "context"
    assert here.inputs == {"raw": Path.cwd() / "in" / "raw.json"}
    expected = {"run_id": "r", "workflow": "w", "step": "build[3]", "attempt": 2, "iteration": 1}
    assert here.metadata == expected
    monkeypatch.setenv("TOBAN_ITERATION", "5")
    monkeypatch.delenv("TOBAN_INPUTS")
    assert here.metadata["iteration"] == 5
    assert here.inputs == {}


def test_the_event_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_EVENT", raising=False)
    monkeypatch.setenv("TOBAN_RUN_ID", "r")
    empty = toban.step.event()
    assert empty == NO_EVENT
    assert not empty
    empty.payload["x"] = 1
    path = tmp_path / "event.json"
    path.write_text('{"type": "order.paid", "payload": {"id": 7}}', "utf-8")
    monkeypatch.setenv("TOBAN_EVENT", str(path))
    found = toban.step.Context().event
    assert found
    assert (found.type, found.payload["id"], found["depth"]) == ("order.paid", 7, 0)
    with pytest.raises(AttributeError, match="an event has no field 'paylaod'"):
        _ = found.paylaod
    assert toban.step.Event().payload == {}


@pytest.mark.parametrize("wrong", [{"type": "T", "x": 1}, {"type": 1}])
def test_an_event_to_emit_has_a_type_and_a_payload(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="a type, which is a text, and a payload"):
        toban.step.Emitter().emit(wrong)


def test_a_workflow_result(output: Path) -> None:
    made = toban.step.WorkflowResult(False, {"n": 1}, ValueError("x"), context=None)
    assert (made.success, made.output, str(made.error)) == (False, {"n": 1}, "x")
    output.touch()
    step_context.say_error("a\nb\ud800" + "x" * 9000)
    assert handed_on(output)["toban.error"].startswith("a\nb\\ud800xxx")


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    toban.step.progress(3, 1_000_000, "files")
    toban.step.Context().progress(0.5)
    assert capsys.readouterr().out == "::progress 3/1000000 files\n::progress 0.5\n"


@given(
    st.floats(0, 1e14) | st.integers(0, 10**14),
    st.none() | st.floats(0, 1e14),
    st.text(st.characters(), max_size=300),
)
def test_every_report_is_a_line_that_the_daemon_reads(current: float, total: float | None, message: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        toban.step.progress(current, total, message)
    (segment,) = LineFilter().feed(printed.getvalue().encode())
    assert isinstance(segment.line, Progress)
    assert segment.line.current == pytest.approx(current, abs=1e-6)
    assert segment.line.total == pytest.approx(total or 0, abs=1e-6)


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), 1e15])
def test_no_other_number_is_reported(number: float, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="give a number from 0 to 999999999999999"):
        toban.step.progress(1, number)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.FatalError("x"), {"toban.error_class": "FATAL"}),
        (errors.ValidationError("x"), {"toban.error_class": "NON_RETRYABLE"}),
        (errors.WorkflowError("x"), {"toban.error_class": "NON_RETRYABLE"}),
        (errors.NetworkError("x"), {"toban.error_class": "RETRYABLE_TRANSIENT"}),
        (errors.StorageError("x"), {"toban.error_class": "RETRYABLE_TRANSIENT"}),
        (errors.AIDriverError("x"), {"toban.error_class": "RETRYABLE_TRANSIENT"}),
        (errors.WorkflowTimeoutError("x"), {"toban.error_class": "RETRYABLE_TRANSIENT"}),
        (errors.RateLimitError("x"), {"toban.error_class": "RETRYABLE_RATE_LIMIT"}),
        (
            errors.RateLimitError("x", retry_after=1.5),
            {"toban.error_class": "RETRYABLE_RATE_LIMIT", "toban.retry_after": "1.5s"},
        ),
        (
            errors.RateLimitError(retry_after=2_000_000),
            {"toban.error_class": "RETRYABLE_RATE_LIMIT", "toban.retry_after": "2000000s"},
        ),
        (errors.RateLimitError(retry_after=-1), {"toban.error_class": "RETRYABLE_RATE_LIMIT"}),
        (ValueError("x"), {}),
    ],
)
def test_what_exceptions_say_of_themselves(output: Path, error: Exception, expected: dict[str, str]) -> None:
    output.touch()
    step_context.say_class(error)
    assert handed_on(output) == expected


def test_any_exception_may_say_it(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class OwnError(Exception):
        toban_error_class: object = ErrorClass.FATAL

    class WrongError(Exception):
        toban_error_class = "TERRIBLE"

    output.touch()
    step_context.say_class(WrongError())
    assert handed_on(output) == {}
    assert "'TERRIBLE', not one of RETRYABLE_TRANSIENT" in capsys.readouterr().err
    step_context.say_class(OwnError())
    assert handed_on(output) == {"toban.error_class": "FATAL"}


def test_the_classes_are_those_of_the_format() -> None:
    assert set(step_context.CLASSES) == {each.value for each in ErrorClass}
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.StepError)]
    assert len(kinds) >= 11
    assert {each.toban_error_class for each in kinds} <= set(step_context.CLASSES)


@pytest.mark.parametrize("name", ["runner.py", "step_context.py", "errors.py", "workflow_result.py", "__init__.py"])
def test_old_interpreters_can_read_it(name: str) -> None:
    ast.parse((HERE / name).read_text("utf-8"), feature_version=(3, 8))
