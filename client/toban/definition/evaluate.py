"""Evaluates the templates of one step with the values of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition.cel import EvaluationError, Rejected, compile_expression, variables
from toban.definition.errors import RenderError
from toban.definition.expressions import Expression, Ref, parse_template
from toban.definition.model import Param
from toban.definition.names import Kind, kind_of
from toban.definition.values import checked_value, describe, to_text

_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the templates of a step may see.

    `steps` needs to hold only what `references` asked for. `env` gives values for names that the
    workflow's own env does not set; the workflow's win.
    """

    params: dict[str, Any]
    run: dict[str, Any]
    env: dict[str, str]
    steps: dict[str, dict[str, Any]]


class Evaluator:
    """Turns templates into values; everything that goes wrong is a RenderError."""

    def __init__(self, params: Mapping[str, Param], scope: Scope) -> None:
        self._declared = params
        self._scope = scope
        self.env: Mapping[str, str] = scope.env

    def text(self, text: str, where: str) -> str:
        """A text with its templates replaced by what they stand for."""
        if "{{" not in text:
            return text
        template = parse_template(text)
        if template.faults:
            raise RenderError(f"cannot render {where}: {template.faults[0].message}")
        return "".join(
            part if isinstance(part, str) else self.expression_text(part, where)
            for part in template.parts
        )

    def value(self, value: Any, where: str) -> Any:
        """Plain data with its templates evaluated; one that is a whole text keeps its type."""
        match value:
            case str() if "{{" in value:
                whole = parse_template(value).whole
                return self.expression(whole, where) if whole else self.text(value, where)
            case list() | tuple():
                return [self.value(item, f"{where}[{i}]") for i, item in enumerate(value)]
            case dict():
                return {key: self.value(item, f"{where}.{key}") for key, item in value.items()}
            case _:
                return value

    def expression_text(self, expression: Expression, where: str) -> str:
        try:
            return to_text(self.expression(expression, where))
        except ValueError as error:
            raise failed(expression, where, str(error)) from None

    def expression(self, expression: Expression, where: str) -> Any:
        """The value of one expression."""
        try:
            return checked_value(self._evaluate(expression))
        except (ValueError, EvaluationError) as error:
            raise failed(expression, where, str(error)) from None

    def _evaluate(self, expression: Expression) -> Any:
        kinds: list[Kind] = []
        for ref in expression.refs:
            kind = kind_of(ref, self._declared)
            if kind is None:
                raise ValueError(f"{ref} is unknown")
            kinds.append(kind)
        if expression.path is not None:
            return _select(self._look_up(expression.refs[0], kinds[0]), expression)
        program = compile_expression(expression, kinds)
        if isinstance(program, Rejected):
            raise ValueError(program.faults[0].message)
        return program.run(
            {
                name: checked_value(self._look_up(expression.refs[index], kinds[index]))
                for name, index in variables(expression, kinds).items()
            }
        )

    def _look_up(self, ref: Ref, kind: Kind) -> Any:
        name = ref.names[-1]
        holder: Mapping[str, Any]
        match ref.root:
            case "params":
                holder = self._scope.params
            case "run":
                holder = self._scope.run
            case "env":
                holder = self.env
            case _:
                holder = self._scope.steps.get(ref.names[0], {})
        if name not in holder:
            raise ValueError(f"{ref} has no value in this run")
        value = holder[name]
        # A number that was transported as a float, or as an integer, is still what was declared.
        if kind is Kind.INT and isinstance(value, float) and value.is_integer():
            return int(value)
        if kind is Kind.DOUBLE and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return value


def _select(value: Any, expression: Expression) -> Any:
    """Follow the names after a reference, as the expression language would."""
    shown = str(expression.refs[0])
    for name in expression.path or ():
        if not isinstance(value, Mapping):
            raise ValueError(f'{shown} has no field "{name}": it is {describe(value)}')
        if name not in value:
            raise ValueError(f'{shown} has no field "{name}"')
        value = value[name]
        shown = f"{shown}.{name}"
    return value


def failed(expression: Expression, where: str, reason: str) -> RenderError:
    """What to raise for an expression, shown as the author wrote it."""
    source = " ".join(expression.source.split())
    if len(source) > _LONGEST_SHOWN:
        source = source[:_LONGEST_SHOWN] + "…"
    return RenderError(f"cannot render {where}: {{{{ {source} }}}}: {reason}")
