"""From a step and the values of a run to what is started."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from toban.definition import cmd_text, powershell_text
from toban.definition.errors import RenderError
from toban.definition.evaluate import Evaluator, Scope, failed
from toban.definition.expressions import Expression, parse_template
from toban.definition.languages import LANGUAGES
from toban.definition.model import JobType, Step, Workflow
from toban.definition.script import Form, Slot, assemble
from toban.definition.values import checked_text, to_text

# What Linux accepts for one string, its final NUL included.
MAX_STRING_BYTES = 128 * 1024 - 1
MAX_TOTAL_BYTES = 1024 * 1024
# The arguments of a python step travel as one string with a name before it.
MAX_CALL_BYTES = MAX_STRING_BYTES - 64
MAX_COMMAND_LENGTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A step ready to be started.

    A python step has no argv; its `call` says what to call with which arguments, as JSON can hold it. The
    last word of a cmd step is a line that cmd must get as it stands; the first of a powershell step is
    the name of the program on Windows.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    workspace: str | None
    call: dict[str, Any] | None


def references(step: Step) -> dict[str, frozenset[str]]:
    """Which fields of which steps the templates of a step use, such as {"fetch": {"stdout"}}."""
    found: dict[str, set[str]] = {}
    for expression in _expressions(step):
        for ref in expression.refs:
            if ref.root == "steps":
                found.setdefault(ref.names[0], set()).add(ref.names[1])
    return {name: frozenset(fields) for name, fields in found.items()}


def _expressions(step: Step) -> Iterator[Expression]:
    if "{{" in step.target:
        if (language := LANGUAGES.get(step.job_type)) is not None:
            yield from (slot.expression for slot in language.read(step.target).slots)
        else:
            yield from parse_template(step.target).expressions
    for value in (step.args, step.kwargs, step.env, step.workspace):
        for text in _texts(value):
            if "{{" in text:
                yield from parse_template(text).expressions


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)


def render(workflow: Workflow, step: Step, scope: Scope) -> Rendered:
    """What to start for a step; raises RenderError, which no retry can cure."""
    evaluator = Evaluator(workflow.params, scope)
    env = {
        name: evaluator.text(value, f"env.{name} of the workflow")
        for name, value in workflow.env.items()
    }
    evaluator.env = {**scope.env, **env}
    of_step = f"of step {step.id}"
    env |= {
        name: evaluator.text(value, f"env.{name} {of_step}") for name, value in step.env.items()
    }
    workspace = step.workspace
    if workspace is not None:
        workspace = evaluator.text(workspace, f"workspace {of_step}")
        if not workspace:
            raise RenderError(f"cannot render workspace {of_step}: it is empty")
    argv: tuple[str, ...] = ()
    call: dict[str, Any] | None = None
    match step.job_type:
        case JobType.SHELL:
            script = _script(step, evaluator, env)
            argv = ("/bin/sh", "-c", script, "sh", *_arguments(step, evaluator))
        case JobType.EXEC:
            target = evaluator.text(step.target, f"target {of_step}")
            if not target:
                raise RenderError(f"cannot render target {of_step}: it is empty")
            argv = (target, *_arguments(step, evaluator))
        case JobType.CMD:
            argv = ("cmd.exe", "/d", "/s", "/c", _cmd_line(step, evaluator, env))
        case JobType.POWERSHELL:
            argv = _powershell(step, evaluator, env)
        case JobType.PYTHON:
            call = {
                "target": step.target,
                "args": evaluator.value(step.args, f"args {of_step}"),
                "kwargs": evaluator.value(step.kwargs, f"kwargs {of_step}"),
            }
        case _:
            assert_never(step.job_type)
    _check_sizes(step, argv, env, workspace, call)
    return Rendered(argv=argv, env=env, workspace=workspace, call=call)


def _script(step: Step, evaluator: Evaluator, env: dict[str, str]) -> str:
    """The script with references to variables, which are added to `env`."""
    language = LANGUAGES[step.job_type]
    script = language.read(step.target)
    where = f"{'run' if step.job_type is JobType.SHELL else 'target'} of step {step.id}"
    if script.faults:
        raise RenderError(f"cannot render {where}: {script.faults[0].message}")
    names: dict[str, str] = {}

    def fill(slot: Slot) -> str:
        expression = slot.expression
        if slot.form is Form.RAW:
            return evaluator.expression_text(expression, where)
        source = expression.source.strip()
        if source not in names:
            names[source] = f"TOBAN_V{len(names) + 1}"
            env[names[source]] = evaluator.expression_text(expression, where)
        if slot.form is Form.NUMBER:
            # Shells evaluate what stands in arithmetic, so nothing but an integer may get there.
            number = evaluator.expression(expression, where)
            if isinstance(number, bool) or not isinstance(number, int):
                raise RenderError(f"cannot render {where}: only integers may stand inside $(( ))")
        try:
            return language.reference(slot.form, names[source], env[names[source]])
        except ValueError as error:
            raise failed(expression, where, str(error)) from None

    return assemble(script, fill)


def _cmd_line(step: Step, evaluator: Evaluator, env: dict[str, str]) -> str:
    words = [_script(step, evaluator, env).strip()]
    for index, value in enumerate(_arguments(step, evaluator)):
        try:
            words.append(cmd_text.quote_argument(value))
        except ValueError as error:
            message = f"cannot render args[{index}] of step {step.id}: {error}"
            raise RenderError(message) from None
    line = " ".join(words)
    try:
        cmd_text.check_line(line, env)
    except ValueError as error:
        raise RenderError(f"cannot render target of step {step.id}: {error}") from None
    return line


def _powershell(step: Step, evaluator: Evaluator, env: dict[str, str]) -> tuple[str, ...]:
    words = [_script(step, evaluator, env).strip()]
    for index, value in enumerate(_arguments(step, evaluator), start=1):
        name = f"TOBAN_A{index}"
        env[name] = value
        words.append(powershell_text.reference(Form.QUOTED, name, value))
    try:
        return powershell_text.arguments(" ".join(words))
    except ValueError as error:
        raise RenderError(f"cannot render target of step {step.id}: {error}") from None


def _arguments(step: Step, evaluator: Evaluator) -> Iterator[str]:
    for index, value in enumerate(step.args):
        where = f"args[{index}] of step {step.id}"
        try:
            yield to_text(evaluator.value(value, where))
        except ValueError as error:
            raise RenderError(f"cannot render {where}: {error}") from None


def _check_sizes(
    step: Step,
    argv: tuple[str, ...],
    env: dict[str, str],
    workspace: str | None,
    call: dict[str, Any] | None,
) -> None:
    total = 0
    strings = [(f"argument {index}", text) for index, text in enumerate(argv)]
    strings += [(f"env.{name}", f"{name}={value}") for name, value in env.items()]
    if workspace is not None:
        strings.append(("workspace", workspace))
    for what, text in strings:
        size = _size(text, f"{what} of step {step.id}")
        if size > MAX_STRING_BYTES:
            raise RenderError(
                f"cannot start step {step.id}: {what} has {size:,} bytes, but at most "
                f"{MAX_STRING_BYTES:,} are possible: pass it in a file"
            )
        total += size + 1
    if call is not None:
        total += _check_call(step, call)
    if total > MAX_TOTAL_BYTES:
        raise RenderError(
            f"cannot start step {step.id}: its arguments and environment have {total:,} bytes, but "
            f"at most {MAX_TOTAL_BYTES:,} are possible: pass them in a file"
        )


def _check_call(step: Step, call: dict[str, Any]) -> int:
    """The call travels as one string, however its JSON is written: measure the longest form."""
    try:
        size = len(json.dumps(call, allow_nan=False))
    except ValueError:
        message = "a number that is not finite has no form in JSON"
        raise RenderError(f"cannot render args and kwargs of step {step.id}: {message}") from None
    if size > MAX_CALL_BYTES:
        raise RenderError(
            f"cannot start step {step.id}: its args and kwargs have {size:,} bytes as JSON, but at "
            f"most {MAX_CALL_BYTES:,} are possible: pass them in a file"
        )
    return size


def _size(text: str, where: str) -> int:
    try:
        return len(checked_text(text).encode())
    except ValueError as error:
        raise RenderError(f"cannot render {where}: {error}") from None


def command_line(step: Step) -> str:
    """One line for people, as the author wrote it: values are not filled in, so none is shown."""
    script, args = step.target.strip(), [str(arg) for arg in step.args]
    match step.job_type:
        case JobType.SHELL:
            command = " ".join([script, *map(shlex.quote, args)])
        case JobType.EXEC:
            command = shlex.join([step.target, *args])
        case JobType.CMD:
            command = " ".join([script, *(f'"{arg}"' if " " in arg else arg for arg in args)])
        case JobType.POWERSHELL:
            command = " ".join([script, *(powershell_text.quote(arg) for arg in args)])
        case JobType.PYTHON:
            command = step.target
        case _:
            assert_never(step.job_type)
    line = " ⏎ ".join(part for part in (row.strip() for row in command.splitlines()) if part)
    return line if len(line) <= MAX_COMMAND_LENGTH else line[: MAX_COMMAND_LENGTH - 1] + "…"
