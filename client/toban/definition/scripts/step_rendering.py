"""Renders a step with the values of a run for its launch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from toban.definition.errors import RenderError
from toban.definition.expressions.evaluation import Evaluator, Scope, failed
from toban.definition.expressions.templates import Expression, parse_bare, parse_template
from toban.definition.model.step_model import JobType, Output, Step
from toban.definition.model.workflow import Workflow
from toban.definition.scalars.artifact_paths import check_below, clean_path
from toban.definition.scalars.values import checked_text, to_text
from toban.definition.scripts import cmd_text, powershell_text
from toban.definition.scripts.command_text import recorded
from toban.definition.scripts.script import Form, Slot, assemble
from toban.definition.scripts.script_languages import LANGUAGES
from toban.definition.scripts.shell_arguments import with_args
from toban.definition.scripts.shells import shell_command

# The maximum of Linux for one string, its final NUL included.
MAX_STRING_BYTES = 128 * 1024 - 1
MAX_TOTAL_BYTES = 1024 * 1024
# The arguments of a python step are passed as one string with a name before it.
MAX_CALL_BYTES = MAX_STRING_BYTES - 64
MAX_STDIN_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A step ready to be started.

    A python step has no argv; its `call` has the function and its arguments, as JSON data. The `call` of a workflow
    step has the name of the child and, as `kwargs`, its parameters. The last word of a cmd step is a line that cmd must
    get unchanged; the first of a powershell step is the name of the program on Windows. `outputs` are those of the
    step; their paths do not lead out of the workspace, except through links. `secret_files` are texts by
    name. `command` is one line for people, without values of the environment.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    workspace: str | None
    call: dict[str, Any] | None
    stdin: str | None = None
    secret_files: dict[str, str] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    command: str = ""


def references(step: Step) -> dict[str, frozenset[str]]:
    """Which fields of which steps `render` or `render_wait` needs for a step, such as {"fetch": {"stdout"}}.

    Without those of its completion check: call this for the check too.
    """
    return _of_steps(_expressions(step))


def condition_references(step: Step) -> dict[str, frozenset[str]]:
    """Which fields of which steps `when` and `for_each` of a step use."""
    return _of_steps(_conditions(step))


def check_references(step: Step) -> frozenset[str]:
    """Which fields of the last completion check `render` needs for a step."""
    expressions = _expressions(step)
    return frozenset(ref.names[0] for e in expressions for ref in e.refs if ref.root == "check")


@dataclass(frozen=True, slots=True)
class SecretReferences:
    """The secrets, and the secret parameters, whose values a step gets."""

    secrets: frozenset[str] = frozenset()
    params: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.secrets or self.params)


_NO_SECRETS = SecretReferences()


def secret_references(workflow: Workflow, step: Step) -> SecretReferences:
    """Without those of its completion check: call this for the check too."""
    if step.job_type is JobType.WORKFLOW:
        given: tuple[Any, ...] = (step.kwargs,)
    else:
        given = (step.env, step.stdin, step.secret_files, workflow.env)
    refs = [ref for expression in _templates(given) for ref in expression.refs if ref.root in ("secrets", "params")]
    if not refs:
        return _NO_SECRETS
    params = {ref.names[0] for ref in refs if ref.root == "params" and ref.names}
    return SecretReferences(
        secrets=frozenset(ref.names[0] for ref in refs if ref.root == "secrets"),
        params=frozenset(name for name in params if name in workflow.params and workflow.params[name].secret),
    )


def _of_steps(expressions: Iterator[Expression]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for expression in expressions:
        for ref in expression.refs:
            if ref.root == "steps":
                found.setdefault(ref.names[0], set()).add(ref.names[1])
    return {name: frozenset(fields) for name, fields in found.items()}


def _conditions(step: Step) -> Iterator[Expression]:
    if step.when:
        yield parse_bare(step.when)
    given = step.for_each
    for entry in given.values() if isinstance(given, dict) else (given,):
        if isinstance(entry, str):
            yield parse_bare(entry)
        else:
            yield from _templates(entry)


def _expressions(step: Step) -> Iterator[Expression]:
    if "{{" in step.target:
        if (language := LANGUAGES.get(step.job_type)) is not None:
            yield from (slot.expression for slot in language.read(step.target).slots)
        else:
            yield from parse_template(step.target).expressions
    paths = [output.path for output in step.outputs]
    yield from _templates((step.args, step.kwargs, step.env, step.workspace, step.stdin, step.secret_files, paths))
    if step.wait is not None:
        yield from _templates((step.wait.duration, step.wait.until, step.wait.file))
        if step.wait.condition:
            yield parse_bare(step.wait.condition)


def _templates(value: Any) -> Iterator[Expression]:
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


def render(workflow: Workflow, step: Step, scope: Scope, *, cheap_only: bool = False) -> Rendered:
    """The process or call of a step; raises RenderError, which no retry can fix, and CostlyError with `cheap_only`."""
    evaluator = Evaluator(workflow, scope, cheap_only=cheap_only)
    of_step = f"of step {step.id}"
    if step.job_type is JobType.WORKFLOW:
        return _child(step, evaluator)
    env = evaluator.workflow_env()
    env |= {name: evaluator.text(value, f"env.{name} {of_step}") for name, value in step.env.items()}
    workspace = step.workspace
    if workspace is not None:
        workspace = evaluator.text(workspace, f"workspace {of_step}")
        if not workspace:
            raise RenderError(f"cannot render workspace {of_step}: it is empty")
    argv, call = _command(workflow, step, evaluator, env)
    _check_sizes(step, argv, env, workspace, call)
    return Rendered(
        argv=argv,
        env=env,
        workspace=workspace,
        call=call,
        stdin=_stdin(step, evaluator),
        secret_files={
            name: evaluator.text(text, f"secret_files.{name} {of_step}") for name, text in step.secret_files.items()
        },
        outputs=tuple(_output(step, output, evaluator) for output in step.outputs),
        command=recorded(workflow, step, evaluator),
    )


def _child(step: Step, evaluator: Evaluator) -> Rendered:
    kwargs = evaluator.value(step.kwargs, f"kwargs of step {step.id}")
    call = {"target": step.target, "kwargs": kwargs}
    _check_call(step, call, MAX_TOTAL_BYTES)
    return Rendered(argv=(), env={}, workspace=None, call=call)


def _command(
    workflow: Workflow, step: Step, evaluator: Evaluator, env: dict[str, str]
) -> tuple[tuple[str, ...], dict[str, Any] | None]:
    """The words of a process, or the call of a python step; adds variables of scripts to `env`."""
    of_step = f"of step {step.id}"
    argv: tuple[str, ...] = ()
    call: dict[str, Any] | None = None
    match step.job_type:
        case JobType.SHELL:
            if step.args and workflow.edition >= 1:
                step = replace(step, target=with_args(step.target))
            script, args = _script(step, evaluator, env), tuple(_arguments(step, evaluator))
            argv = shell_command(step.shell, script, args, errexit=workflow.errexit(step))
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
        case JobType.APPROVAL | JobType.WORKFLOW | JobType.WAIT:
            raise RenderError(f"cannot start step {step.id}: {step.job_type} steps have no process")
        case _:
            assert_never(step.job_type)
    return argv, call


def _stdin(step: Step, evaluator: Evaluator) -> str | None:
    if step.stdin is None:
        return None
    where = f"stdin of step {step.id}"
    text = evaluator.text(step.stdin, where)
    size = _size(text, where)
    if size > MAX_STDIN_BYTES:
        raise RenderError(
            f"cannot start step {step.id}: its stdin has {size:,} bytes, but at most "
            f"{MAX_STDIN_BYTES:,} are allowed: pass it in a file"
        )
    return text


def _output(step: Step, output: Output, evaluator: Evaluator) -> Output:
    where = f"path of output {output.name} of step {step.id}"
    path = evaluator.text(output.path, where)
    _size(path, where)
    try:
        return replace(output, path=clean_path(check_below(path)))
    except ValueError as error:
        raise RenderError(f"cannot render {where}: {error}") from None


def _script(step: Step, evaluator: Evaluator, env: dict[str, str]) -> str:
    """The script with references to variables, which it adds to `env`."""
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
            # Shells evaluate the contents of arithmetic, so only integers are allowed there.
            number = evaluator.expression(expression, where)
            if isinstance(number, bool) or not isinstance(number, int):
                raise RenderError(f"cannot render {where}: only integers are allowed inside $(( ))")
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
                f"{MAX_STRING_BYTES:,} are allowed: pass it in a file"
            )
        total += size + 1
    if call is not None:
        total += _check_call(step, call, MAX_CALL_BYTES)
    if total > MAX_TOTAL_BYTES:
        raise RenderError(
            f"cannot start step {step.id}: its arguments and environment have {total:,} bytes, but "
            f"at most {MAX_TOTAL_BYTES:,} are allowed: pass them in a file"
        )


def _check_call(step: Step, call: dict[str, Any], limit: int) -> int:
    """The call is passed as one string, however its JSON is written: measure the longest form."""
    try:
        size = len(json.dumps(call, allow_nan=False))
    except ValueError:
        message = "JSON has no number that is not finite"
        raise RenderError(f"cannot render args and kwargs of step {step.id}: {message}") from None
    if size > limit:
        raise RenderError(
            f"cannot start step {step.id}: its args and kwargs have {size:,} bytes as JSON, but at "
            f"most {limit:,} are allowed: pass them in a file"
        )
    return size


def _size(text: str, where: str) -> int:
    try:
        return len(checked_text(text).encode())
    except ValueError as error:
        raise RenderError(f"cannot render {where}: {error}") from None
