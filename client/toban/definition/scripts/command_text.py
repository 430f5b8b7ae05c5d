"""The command of a step as one line for people."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, assert_never

from toban.definition.errors import RenderError
from toban.definition.expressions.evaluation import Evaluator, Scope
from toban.definition.expressions.templates import Expression, parse_template
from toban.definition.model.step_model import JobType, Step
from toban.definition.model.wait_spec import Wait
from toban.definition.model.workflow import Workflow
from toban.definition.scalars.durations import format_duration
from toban.definition.scalars.values import to_json, to_text
from toban.definition.scripts import powershell_text
from toban.definition.scripts.script import Form, Slot, assemble
from toban.definition.scripts.script_languages import LANGUAGES

MAX_COMMAND_LENGTH = 1000
_BEFORE_THE_RUN = frozenset({"params", "run", "event", "env"})


def command_line(step: Step) -> str:
    """The step as the author wrote it: values are not filled in, so none is shown."""
    return _one_line(step, step.target.strip(), [str(arg) for arg in step.args], "")


def preview(workflow: Workflow, step: Step, scope: Scope, *, cheap_only: bool = False) -> str:
    """The step with every template filled in whose value is known before the run.

    Templates that depend on other steps, items or iterations stay as written, and so do those without a value in the
    scope, such as the id of a run that does not exist yet. Raises RenderError for a template that has a value and
    fails, and CostlyError with `cheap_only`.
    """
    return _Filled(workflow, step, Evaluator(workflow, scope, cheap_only=cheap_only), _Before(workflow, scope)).line()


def recorded(workflow: Workflow, step: Step, evaluator: Evaluator) -> str:
    """The step as it runs, for its record: templates are filled in with the values that `evaluator` has rendered."""
    try:
        return _Filled(workflow, step, evaluator.again(), _recordable).line()
    except RenderError:  # its values are too large to be repeated
        return command_line(step)


def _recordable(expression: Expression) -> bool:
    """Whether a record may have its value. Values of the environment may be secret: their templates stay as written."""
    return all(ref.root != "env" for ref in expression.refs)


def _one_line(step: Step, target: str, args: list[str], call: str) -> str:
    match step.job_type:
        case JobType.SHELL:
            command = " ".join([target, *map(shlex.quote, args)])
        case JobType.EXEC:
            command = shlex.join([target, *args])
        case JobType.CMD:
            command = " ".join([target, *(f'"{arg}"' if " " in arg else arg for arg in args)])
        case JobType.POWERSHELL:
            command = " ".join([target, *(powershell_text.quote(arg) for arg in args)])
        case JobType.PYTHON:
            command = target + call
        case JobType.WORKFLOW:
            command = f"workflow {target}{call}"
        case JobType.APPROVAL:
            command = "approval"
        case JobType.WAIT:
            command = _wait_line(step.wait)
        case _:
            assert_never(step.job_type)
    line = " ⏎ ".join(part for part in (row.strip() for row in command.splitlines()) if part)
    return line if len(line) <= MAX_COMMAND_LENGTH else line[: MAX_COMMAND_LENGTH - 1] + "…"


def _wait_line(wait: Wait | None) -> str:
    assert wait is not None
    if wait.duration is not None:
        duration = wait.duration
        return f"wait for {duration if isinstance(duration, str) else format_duration(duration)}"
    if wait.until:
        return f"wait until {wait.until}"
    if wait.file:
        return f"wait for the file {wait.file}"
    return f"wait for the event {' or '.join(wait.events)}"


class _Before:
    """Whether an expression has a value before the run."""

    def __init__(self, workflow: Workflow, scope: Scope) -> None:
        self._workflow = workflow
        self._scope = scope

    def __call__(self, expression: Expression) -> bool:
        for ref in expression.refs:
            if ref.root not in _BEFORE_THE_RUN:
                return False
            if ref.root == "run" and (not ref.names or ref.names[0] not in self._scope.run):
                return False
            # Values of the workflow's env may use other values.
            if ref.root == "env" and not all(map(self, parse_template(self._env(ref.names[0])).expressions)):
                return False
        return True

    def _env(self, name: str) -> str:
        return self._workflow.env.get(name, "")


class _Filled:
    """Fills in the values of the expressions that are `known`."""

    def __init__(
        self, workflow: Workflow, step: Step, evaluator: Evaluator, known: Callable[[Expression], bool]
    ) -> None:
        self._workflow = workflow
        self._step = step
        self._evaluator = evaluator
        self._known = known

    def line(self) -> str:
        step = self._step
        try:
            args = [self._argument(value, index) for index, value in enumerate(step.args)]
            return _one_line(step, self._target().strip(), args, self._call())
        except ValueError as error:
            raise RenderError(f"cannot render step {step.id}: {error}") from None

    def _target(self) -> str:
        step = self._step
        where = f"target of step {step.id}"
        if (language := LANGUAGES.get(step.job_type)) is None:
            return self._text(step.target, where)

        def fill(slot: Slot) -> str:
            expression = slot.expression
            if not self._known(expression):
                return step.target[expression.start : expression.end]
            value = self._evaluator.expression_text(expression, where)
            return _quoting(step.job_type)(value) if slot.form is Form.QUOTED else value

        return assemble(language.read(step.target), fill)

    def _argument(self, value: Any, index: int) -> str:
        return to_text(self._value(value, f"args[{index}] of step {self._step.id}"))

    def _call(self) -> str:
        """`(1, day="today")`: the arguments of a function or the parameters of a child."""
        step = self._step
        of_step = f"of step {step.id}"
        if step.job_type not in (JobType.PYTHON, JobType.WORKFLOW) or not (step.args or step.kwargs):
            return ""
        shown = [self._json(value, f"args {of_step}") for value in step.args]
        shown += [f"{name}={self._json(value, f'kwargs.{name} {of_step}')}" for name, value in step.kwargs.items()]
        return f"({', '.join(shown)})"

    def _json(self, value: Any, where: str) -> str:
        if isinstance(value, str) and (whole := parse_template(value).whole) is not None:
            return to_json(self._value(value, where)) if self._known(whole) else value
        return to_json(self._value(value, where))

    def _value(self, value: Any, where: str) -> Any:
        match value:
            case str() if "{{" in value:
                whole = parse_template(value).whole
                if whole is not None and self._known(whole):
                    return self._evaluator.expression(whole, where)
                return self._text(value, where)
            case list() | tuple():
                return [self._value(item, where) for item in value]
            case dict():
                return {key: self._value(item, where) for key, item in value.items()}
            case _:
                return value

    def _text(self, text: str, where: str) -> str:
        if "{{" not in text:
            return text
        return "".join(
            part
            if isinstance(part, str)
            else self._evaluator.expression_text(part, where)
            if self._known(part)
            else text[part.start : part.end]
            for part in parse_template(text).parts
        )


def _quoting(kind: JobType) -> Callable[[str], str]:
    return powershell_text.quote if kind is JobType.POWERSHELL else shlex.quote
