"""The workflow that is being defined: collects the steps that its function adds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from toban.workflow.deferred_values import StepRef, StepResult, Value
from toban.workflow.mistakes import Mistake, Place, caller

# References to steps in templates and expressions.
_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_STEP: Final = re.compile(r"""\bsteps(?:\.([A-Za-z0-9_]+)|\[["']([^"']+)["']\])""")
_EXPRESSIONS: Final = ("when", "for_each")


class Draft:
    """Steps in the order in which they were added. Mistakes are collected, to be reported together."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, Any]] = {}
        self.finally_steps: dict[str, dict[str, Any]] = {}
        self.places: dict[str, Place] = {}
        self.mistakes: list[Mistake] = []
        self._finally = False

    def add(self, name: str, fields: Mapping[str, Any]) -> StepRef:
        """Adds a step whose id is `name`, or `name_2` and so on if that is taken; or `id` of the fields."""
        place = caller()
        fields = dict(fields)
        step_id = fields.pop("id", "") or self._free(name)
        section, path = self._section
        if step_id in self.places:
            known = self.places[step_id]
            message = f"the id is taken by the step in line {known.line} of {known.file}: give one of them another id"
            self.mistakes.append(Mistake(place=place, path=f"{path}.{step_id}", message=message))
            return StepRef(step_id)
        self.places[step_id] = place
        made: dict[str, Any] = {}
        needed = self._ids(fields.pop("depends_on", ()), f"{path}.{step_id}", place)
        for key, value in fields.items():
            try:
                made[key] = plain(_expression(value) if key in _EXPRESSIONS else value)
            except TypeError as error:
                self.mistakes.append(Mistake(place=place, path=f"{path}.{step_id}.{key}", message=str(error)))
        needed += [each for each in _used(made) if each in section and each not in needed]
        if needed:
            made["depends_on"] = needed
        section[step_id] = made
        return StepRef(step_id)

    def report(self, path: str, message: str) -> None:
        """A mistake in the line that is being executed."""
        self.mistakes.append(Mistake(place=caller(), path=path, message=message))

    @contextmanager
    def in_finally(self) -> Iterator[None]:
        """Steps that are added meanwhile are finally steps."""
        before, self._finally = self._finally, True
        try:
            yield
        finally:
            self._finally = before

    @property
    def _section(self) -> tuple[dict[str, dict[str, Any]], str]:
        return (self.finally_steps, "finally") if self._finally else (self.steps, "steps")

    def _free(self, name: str) -> str:
        step_id, number = name, 1
        while step_id in self.places:
            number += 1
            step_id = f"{name}_{number}"
        return step_id

    def _ids(self, given: object, path: str, place: Place) -> list[str]:
        found: list[str] = []
        for each in given if isinstance(given, list | tuple | set | frozenset) else (given,):
            match each:
                case StepRef(id=step_id) | StepResult(step=StepRef(id=step_id)) | (str() as step_id):
                    if step_id not in found:
                        found.append(step_id)
                case _:
                    message = f"expected steps, their results or ids, found {each!r}"
                    self.mistakes.append(Mistake(place=place, path=f"{path}.depends_on", message=message))
        return found


_current: ContextVar[Draft | None] = ContextVar("toban_workflow_draft", default=None)


def current() -> Draft | None:
    """The workflow that is being defined; None while none is."""
    return _current.get()


def drafted(function: Callable[..., Any], values: Mapping[str, Value]) -> Draft:
    """Calls the function of a workflow, and returns what it added. Raises what the function raises."""
    draft = Draft()
    token = _current.set(draft)
    try:
        function(**values)
    finally:
        _current.reset(token)
    return draft


def plain(value: object) -> Any:
    """A value as the definition has it: values become templates. Raises TypeError for one that is not JSON."""
    match value:
        case StepRef():
            return str(value.result)
        case Value():
            return str(value)
        case Enum():
            return plain(value.value)
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case Mapping():
            made = {}
            for key, item in value.items():
                if isinstance(key, Value) or not isinstance(key, str | int):
                    raise TypeError(f"the key {key!r} is neither a text nor a number")
                made[key] = plain(item)
            return made
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            raise TypeError(f"found a {type(value).__name__}, which is no JSON value: {value!r}")


def _expression(value: object) -> object:
    """The value of a field that has expressions, not texts with templates."""
    match value:
        case Value():
            return value.expression
        case Mapping():
            return {key: _expression(item) for key, item in value.items()}
        case _:
            return value


def _used(fields: Mapping[str, Any]) -> list[str]:
    """Ids of the steps that templates and expressions use."""
    texts = [text for key in _EXPRESSIONS for text in _strings(fields.get(key))]
    texts += [found for text in _strings(fields) for found in _TEMPLATE.findall(text)]
    return list(dict.fromkeys(dotted or quoted for text in texts for dotted, quoted in _STEP.findall(text)))


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)
        case _:
            pass
