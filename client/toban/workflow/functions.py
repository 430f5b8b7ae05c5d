"""Functions as steps, and functions that define workflows."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

from toban.workflow.deferred_values import NotKnownYet, StepRef, StepResult, Value
from toban.workflow.draft import Draft, current, drafted, plain
from toban.workflow.function_params import workflow_params
from toban.workflow.mistakes import InvalidWorkflow, Mistake, Place, raised_at

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from toban.definition import Problem
    from toban.workflow.fields import PythonStepFields, StepFields, WorkflowFields

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Parameters that a step gets without arguments.
_PROVIDED: Final = ("event", "context", "emitter")
_OTHER_LINE: Final = re.compile(r" \(known: see line [0-9]+\)\Z")
_MANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class StepFunction(Generic[_P, _R]):
    """A function that workflows can call as a python step. Outside of a workflow a call is a plain call."""

    def __init__(self, function: Callable[_P, _R], fields: PythonStepFields) -> None:
        self.function: Final = function
        self._fields: Final = fields
        functools.update_wrapper(self, function)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        draft = current()
        if draft is None:
            return self.function(*args, **kwargs)
        # The function runs later: its result is a value of the definition, whatever its type will be.
        return self._add(draft, args, kwargs)  # type: ignore[return-value]

    def with_options(self, **fields: Unpack[PythonStepFields]) -> StepFunction[_P, _R]:
        """The same function, with other fields for the steps that call it."""
        return StepFunction(self.function, {**self._fields, **fields})

    def _add(self, draft: Draft, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepResult:
        name = getattr(self.function, "__name__", "step")
        fields: dict[str, Any] = {"job_type": "python", "target": "", **self._fields}
        try:
            fields["target"] = _target(self.function)
            fields |= _arguments(self.function, args, kwargs)
        except TypeError as error:
            draft.report(f"steps.{name}", str(error))
        return StepResult(draft.add(name, fields))


@overload
def step(function: Callable[_P, _R], /) -> StepFunction[_P, _R]: ...


@overload
def step(**fields: Unpack[PythonStepFields]) -> Callable[[Callable[_P, _R]], StepFunction[_P, _R]]: ...


def step(function: Callable[..., Any] | None = None, /, **fields: Unpack[PythonStepFields]) -> Any:
    """Makes a function of a module a step of the workflows that call it.

        @step(timeout="5m", max_retries=2)
        def fetch(day: str) -> dict[str, int]: ...

    In a workflow a call adds the step and returns its future result, which later steps can get as an argument, as a
    whole or in part (`result["rows"]`); they then depend on it. Parameters named event, context and emitter may be left
    out.
    """
    if function is not None:
        return StepFunction(function, {})
    return lambda function: StepFunction(function, fields)


def add_step(id: str, /, **fields: Unpack[StepFields]) -> StepRef:  # noqa: A002 - the field's name
    """Adds a step of any kind to the workflow that is being defined: its id, and its fields as in a YAML definition.

        add_step("upload", run=f"./upload.sh {table['path']}", timeout="5m")

    Raises RuntimeError outside of a workflow.
    """
    return _defining("add_step").add(id, {**fields, "id": id})


@contextmanager
def finally_steps() -> Iterator[None]:
    """Steps that are added in this block run when all others have ended, whatever happened.

    Raises RuntimeError outside of a workflow.
    """
    with _defining("finally_steps").in_finally():
        yield


def template(expression: str) -> Any:
    """The value of an expression, such as `run.dir` or `params.rows * 2`."""
    return Value(expression)


class Workflow:
    """A workflow whose steps a function adds. The function is called when the definition is needed, not before.

    The clients take it as a definition: `toban.apply_definitions([nightly])`. So does `toban apply FILE.py`.
    """

    def __init__(self, function: Callable[..., Any], fields: WorkflowFields) -> None:
        self.function: Final = function
        self._fields: Final = fields
        code = inspect.unwrap(function).__code__
        self._place: Final = Place(file=code.co_filename, line=code.co_firstlineno)
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise TypeError(
            f'a workflow cannot be called: start it with toban.run("{self.name}"), or `toban run {self.name}`'
        )

    @property
    def name(self) -> str:
        """The id of the workflow: the name of the function unless the fields have another."""
        return self._fields.get("id") or self._fields.get("name") or self.function.__name__

    @property
    def file(self) -> str:
        """The Python file."""
        return self._place.file

    @property
    def base_dir(self) -> str:
        """The directory from which the modules of its steps are imported."""
        return _module(self.function)[1]

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """The definition as plain data. Raises InvalidWorkflow."""
        return self._built[0]

    @property
    def source(self) -> str:
        """As `to_yaml`, for the clients."""
        return self.to_yaml()

    def to_yaml(self) -> str:
        """The definition as YAML, validated. Raises InvalidWorkflow with all mistakes."""
        errors = [each for each in self.mistakes if not each.warning]
        if errors:
            raise InvalidWorkflow(self.name, errors)
        return self._text

    @functools.cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """What is wrong with the definition, in the order of the lines, with warnings."""
        return self.mistakes_with(None)

    def mistakes_with(self, jobs: Mapping[str, str] | None) -> tuple[Mistake, ...]:
        """The same, with the sources of the jobs that steps may use; a job that is not among them is a mistake."""
        from toban.definition import parse  # not needed inside of a step

        try:
            text = self._text
        except InvalidWorkflow as error:
            return error.mistakes
        found = [self._mistake(problem) for problem in parse(text, file=self.file, jobs=jobs).problems]
        return tuple(sorted(found, key=lambda each: each.place.line))

    def locate(self, path: str) -> tuple[str, int]:
        """The Python file and line that a field of the definition comes from."""
        section, _, rest = path.partition(".")
        place = self._place
        if section in ("steps", "finally"):
            place = self._built[1].places.get(rest.partition(".")[0], place)
        return place.file, place.line

    @functools.cached_property
    def _text(self) -> str:
        from toban.definition.source.yaml_writer import yaml_text

        return yaml_text(self.document)

    @functools.cached_property
    def _built(self) -> tuple[dict[str, Any], Draft]:
        try:
            params = workflow_params(self.function)
            fields = plain(dict(self._fields))
        except TypeError as error:
            raise InvalidWorkflow(self.name, [Mistake(place=self._place, path="", message=str(error))]) from None
        try:
            draft = drafted(self.function, {name: Value(f"params.{name}") for name in params})
        except Exception as error:
            place = raised_at(error) or self._place
            raise InvalidWorkflow(self.name, [Mistake(place=place, path="", message=_said(error))]) from error
        if draft.mistakes:
            raise InvalidWorkflow(self.name, draft.mistakes)
        document: dict[str, Any] = {"name": self.function.__name__}
        if self.function.__doc__:
            document["description"] = inspect.cleandoc(self.function.__doc__)
        document |= fields
        if params:
            document["params"] = plain(params)
        document["steps"] = draft.steps
        if draft.finally_steps:
            document["finally"] = draft.finally_steps
        return document, draft

    def _mistake(self, problem: Problem) -> Mistake:
        file, line = self.locate(problem.path)
        return Mistake(
            place=Place(file=file, line=line),
            path=problem.path,
            # Its lines are those of the YAML text.
            message=_OTHER_LINE.sub("", problem.message),
            warning=problem.warning,
        )


@overload
def workflow(function: Callable[..., None], /) -> Workflow: ...


@overload
def workflow(**fields: Unpack[WorkflowFields]) -> Callable[[Callable[..., None]], Workflow]: ...


def workflow(function: Callable[..., None] | None = None, /, **fields: Unpack[WorkflowFields]) -> Any:
    """Makes a workflow of a function that adds its steps. Its parameters are those of the workflow.

    @workflow(schedule="0 3 * * *", timeout="1h")
    def nightly(day: str = "today", rows: Annotated[int, "how many"] = 10) -> None:
        \"\"\"Fetches the data of a day and publishes a report.\"\"\"
        table = fetch(day, rows)
        publish(table)
    """
    if function is not None:
        return Workflow(function, {})
    return lambda function: Workflow(function, fields)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, NotKnownYet) else f"{type(error).__name__}: {error}"


def _defining(name: str) -> Draft:
    draft = current()
    if draft is None:
        raise RuntimeError(f"{name} can be called in the function of a workflow only")
    return draft


def _module(function: Callable[..., Any]) -> tuple[str, str]:
    """The module of a function as a step imports it, and the directory to import it from."""
    name = function.__module__
    file = os.path.abspath(inspect.unwrap(function).__code__.co_filename)
    directory, base = os.path.split(file)
    if name == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        # `python -m package.module` has the name of the module, `python module.py` has none.
        name = spec.name if spec is not None else os.path.splitext(base)[0]
    levels = name.count(".") + (base == "__init__.py")
    for _ in range(levels):
        directory = os.path.dirname(directory)
    return name, directory


def _target(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise TypeError(f"a step cannot call {name or function!r}: define the function at the top level of a module")
    return f"{_module(function)[0]}:{name}"


def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`args` and `kwargs` of the step: by name where that is possible. Raises TypeError."""
    signature = inspect.signature(function)
    name = function.__name__
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"cannot call {name}{signature}: {error}") from None
    positional: list[Any] = []
    named: dict[str, Any] = {}
    by_position = any(
        parameter.kind is inspect.Parameter.VAR_POSITIONAL and key in bound.arguments
        for key, parameter in signature.parameters.items()
    )
    for key, parameter in signature.parameters.items():
        if key not in bound.arguments:
            if parameter.default is inspect.Parameter.empty and key not in _PROVIDED and parameter.kind not in _MANY:
                raise TypeError(f"cannot call {name}{signature}: missing a value for {key!r}")
            continue
        value = bound.arguments[key]
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                positional += value
            case inspect.Parameter.VAR_KEYWORD:
                named |= value
            case inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            case inspect.Parameter.POSITIONAL_OR_KEYWORD if by_position:
                positional.append(value)
            case _:
                named[key] = value
    return {key: value for key, value in (("args", positional), ("kwargs", named)) if value}
