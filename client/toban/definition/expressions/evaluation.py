"""Evaluates the templates and conditions of one step with the values of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from toban.definition.errors import CostlyError, RenderError
from toban.definition.expressions.cel import (
    EvaluationError,
    Rejected,
    compile_expression,
    variables,
)
from toban.definition.expressions.expression_cost import is_cheap
from toban.definition.expressions.template_names import ValueKind, kind_of, param_kind
from toban.definition.expressions.templates import WHOLE, Expression, Ref, parse_bare, parse_template
from toban.definition.model.step_model import Step
from toban.definition.model.workflow import Workflow
from toban.definition.scalars.values import checked_value, describe, to_json, to_text
from toban.limits import MAX_ITEMS, MIB, check_items, weight

COUNTED: Final = 1_000_000_000
_MOST_RENDERED: Final = 8 * MIB
"""Maximum size in bytes of all rendered values of one step. A process accepts far less."""
_MOST_SEEN_CHEAPLY: Final = 8 * MIB
"""Bytes of all values that templates see, counted per use, up to which evaluation is cheap."""
_PER_EXPRESSION: Final = 1024
"""Bytes that each program counts in addition, for its compilation."""
_LONGEST_SHOWN = 80
NO_EVENT: Final[Mapping[str, Any]] = {
    "id": "",
    "type": "",
    "payload": {},
    "source": "",
    "source_run": "",
    "source_step": "",
    "depth": 0,
    "at": "",
    "coalesced": 0,
}
"""`event` in a run that no event started."""


MASK: Final = "***"
"""In place of a secret."""


class _NoItem:
    """No item: None would be a valid item."""

    def __repr__(self) -> str:
        return "NO_ITEM"

    def __reduce__(self) -> str:
        """Unpickles to the same object."""
        return "NO_ITEM"


NO_ITEM: Final = _NoItem()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The values that the templates of a step may use.

    `steps` needs only the fields that `references` returned; those of a step with `for_each` are lists. `env` has
    values for names that the workflow's own env does not set; the workflow's win. `item` is that of an instance,
    `secrets` and secret parameters are placeholders,
    which the caller replaces in the environment, the standard input and the files of the process. `iteration` counts
    from 1, and `check` has the result of the last completion check. `event` is the one that started
    the run.
    """

    params: dict[str, Any]
    run: dict[str, Any]
    env: dict[str, str]
    steps: dict[str, dict[str, Any]]
    item: Any = NO_ITEM
    iteration: int = 0
    check: dict[str, Any] = field(default_factory=dict)
    event: Mapping[str, Any] = field(default_factory=lambda: NO_EVENT)
    secrets: Mapping[str, str] = field(default_factory=dict)


class Evaluator:
    """Evaluates templates; every failure is a RenderError.

    With `cheap_only` it raises CostlyError before any evaluation that may take long.
    """

    def __init__(self, workflow: Workflow, scope: Scope, *, cheap_only: bool = False) -> None:
        self._workflow = workflow
        self._scope = scope
        self._cheap_only = cheap_only
        self._left = _MOST_RENDERED
        self._left_to_see = _MOST_SEEN_CHEAPLY
        self._env: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def again(self) -> Evaluator:
        """An evaluator with a limit of its own that has the values of this one, and does not evaluate them again."""
        other = Evaluator(self._workflow, self._scope, cheap_only=self._cheap_only)
        other._env, other._values = self._env, self._values
        return other

    def workflow_env(self) -> dict[str, str]:
        """The workflow's own env, for `env` in templates and for the environment of steps."""
        return {name: self._env_value(name) for name in self._workflow.env}

    def _env_value(self, name: str) -> str:
        if name not in self._env:
            self._env[name] = self.text(self._workflow.env[name], f"env.{name} of the workflow")
        return self._env[name]

    def text(self, text: str, where: str) -> str:
        """A text with its templates replaced by their values."""
        if "{{" not in text:
            return text
        template = parse_template(text)
        if template.faults:
            raise RenderError(f"cannot render {where}: {template.faults[0].message}")
        return "".join(part if isinstance(part, str) else self.expression_text(part, where) for part in template.parts)

    def value(self, value: Any, where: str) -> Any:
        """Plain data with its templates evaluated; a template that is a whole text keeps its type."""
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

    def bare(self, text: str, where: str) -> Any:
        """The value of a text that is one expression."""
        expression = parse_bare(text)
        if expression.faults:
            raise failed(expression, where, expression.faults[0].message)
        return self.expression(expression, where)

    def expression_text(self, expression: Expression, where: str) -> str:
        try:
            return to_text(self.expression(expression, where))
        except ValueError as error:
            raise failed(expression, where, str(error)) from None

    def expression(self, expression: Expression, where: str) -> Any:
        """The value of one expression."""
        try:
            source = expression.source
            if source not in self._values:
                self._values[source] = checked_value(self._evaluate(expression))
            value = self._values[source]
            self._spend(weight(value, self._left))
        except (ValueError, EvaluationError) as error:
            raise failed(expression, where, str(error)) from None
        except (MemoryError, RecursionError) as error:
            reason = "it needs too much memory" if isinstance(error, MemoryError) else "it is nested too deeply"
            raise failed(expression, where, f"{reason}: compute it in a step instead") from None
        return value

    def _spend(self, size: int) -> None:
        """Raises ValueError if the rendered values of the step are too large."""
        self._left -= size
        if self._left < 0:
            raise ValueError(
                f"the templates of one step may produce at most {_MOST_RENDERED // MIB} MiB in all: "
                "pass large data in a file"
            )

    def _evaluate(self, expression: Expression) -> Any:
        kinds: list[ValueKind] = []
        for ref in expression.refs:
            kind = kind_of(ref, self._workflow)
            if kind is None:
                raise ValueError(f"{ref} is unknown")
            kinds.append(kind)
        if expression.path is not None:
            return _select(self._look_up(expression.refs[0], kinds[0]), expression)
        program = compile_expression(expression, kinds)
        if isinstance(program, Rejected):
            raise ValueError(program.faults[0].message)
        values = {
            name: self._look_up(expression.refs[index], kinds[index])
            for name, index in variables(expression, kinds).items()
        }
        if self._cheap_only:
            self._check_cost(expression, values)
        return program.run({name: checked_value(value) for name, value in values.items()})

    def _check_cost(self, expression: Expression, values: Mapping[str, Any]) -> None:
        size = weight(values, _MOST_SEEN_CHEAPLY)
        self._left_to_see -= size + _PER_EXPRESSION
        if self._left_to_see < 0 or not is_cheap(expression.source, size):
            raise CostlyError(expression.source)

    def _look_up(self, ref: Ref, kind: ValueKind) -> Any:
        if ref.root in WHOLE and not ref.names:
            return self._whole(ref.root)
        value = _declared(self._found(ref), kind)
        # A step with `for_each` that did not run has no list.
        if kind is ValueKind.LIST and ref.root == "steps" and not isinstance(value, (list, tuple)):
            return []
        return value

    def _whole(self, root: str) -> dict[str, Any]:
        """All that a root has, as its fields give it."""
        match root:
            case "params":
                kinds = {name: param_kind(param) for name, param in self._workflow.params.items()}
                shown = {n: _declared(value, kinds.get(n, ValueKind.DYN)) for n, value in self._scope.params.items()}
                return shown | {n: MASK for n in shown if n in kinds and self._workflow.params[n].secret}
            case "event":
                return {name: self._scope.event.get(name, empty) for name, empty in NO_EVENT.items()}
            case _:
                return dict(self._scope.run)

    def _found(self, ref: Ref) -> Any:
        scope = self._scope
        holder: Mapping[str, Any]
        match ref.root:
            case "params":
                holder = scope.params
            case "run":
                holder = scope.run
            case "event":
                # Those of earlier releases have fewer fields.
                holder = {**NO_EVENT, **scope.event}
            case "env":
                if ref.names[0] in self._workflow.env:
                    return self._env_value(ref.names[0])
                holder = scope.env
            case "secrets":
                holder = scope.secrets
            case "item":
                holder = {} if scope.item is NO_ITEM else {"item": scope.item}
            case "iteration":
                holder = {"iteration": scope.iteration} if scope.iteration else {}
            case "check":
                holder = scope.check
            case _:
                holder = scope.steps.get(ref.names[0], {})
        name = ref.names[-1] if ref.names else ref.root
        if name not in holder:
            raise ValueError(f"{ref} has no value in this run")
        return holder[name]


def _declared(value: Any, kind: ValueKind) -> Any:
    """A number that was sent as a float or as an integer gets its declared type."""
    if kind is ValueKind.INT and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is ValueKind.DOUBLE and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def evaluate_when(workflow: Workflow, step: Step, scope: Scope, *, cheap_only: bool = False) -> bool:
    """The value of the step's `when`; true without one. Raises RenderError, and CostlyError with `cheap_only`."""
    if not step.when:
        return True
    where = f"when of step {step.id}"
    found = Evaluator(workflow, scope, cheap_only=cheap_only).bare(step.when, where)
    if not isinstance(found, bool):
        reason = f"expected true or false, found {describe(found)}"
        raise failed(parse_bare(step.when), where, reason)
    return found


def evaluate_items(workflow: Workflow, step: Step, scope: Scope, *, cheap_only: bool = False) -> tuple[Any, ...]:
    """The items of the step's `for_each`, for a mapping all combinations.

    Raises RenderError, and CostlyError with `cheap_only`.

    The last name of a mapping varies fastest.
    """
    assert step.for_each is not None
    evaluator = Evaluator(workflow, scope, cheap_only=cheap_only)
    where = f"for_each of step {step.id}"
    if not isinstance(step.for_each, dict):
        items = _list(evaluator, step.for_each, where)
        _check_count(len(items), where)
        return _checked(tuple(items), where)
    lists = {
        name: _list(evaluator, given, f"for_each.{name} of step {step.id}") for name, given in step.for_each.items()
    }
    _check_count(count_items(map(len, lists.values())), where)
    chosen = product(*lists.values())
    return _checked(tuple(dict(zip(lists, each, strict=True)) for each in chosen), where)


def _list(evaluator: Evaluator, given: Any, where: str) -> list[Any]:
    if not isinstance(given, str):
        return list(evaluator.value(given, where))
    found = evaluator.bare(given, where)
    if not isinstance(found, list):
        raise failed(parse_bare(given), where, f"expected a list, found {describe(found)}")
    return found


def _checked(items: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    """The items, if they can be stored. Raises RenderError."""
    try:
        check_items(items)
        to_json(items)
    except ValueError as error:
        raise RenderError(f"cannot evaluate {where}: {error}") from None
    return items


def count_items(lengths: Iterable[int]) -> int:
    """The number of combinations of lists of these lengths, or any number above COUNTED."""
    count = 1
    for length in lengths:
        # An empty list leaves no combinations.
        count = min(count, COUNTED + 1) * length
    return min(count, COUNTED + 1)


def shown_count(count: int) -> str:
    return f"more than {COUNTED:,}" if count > COUNTED else f"{count:,}"


def _check_count(count: int, where: str) -> None:
    if count > MAX_ITEMS:
        message = f"it has {shown_count(count)} items, but at most {MAX_ITEMS:,} are allowed"
        raise RenderError(f"cannot evaluate {where}: {message}")


def _select(value: Any, expression: Expression) -> Any:
    """Follows the names after a reference, as the expression language would."""
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
    """The error for an expression, which is shown as the author wrote it."""
    source = " ".join(expression.source.split())
    if len(source) > _LONGEST_SHOWN:
        source = source[:_LONGEST_SHOWN] + "…"
    if expression.bare:
        return RenderError(f"cannot evaluate {where}: {source}: {reason}")
    return RenderError(f"cannot render {where}: {{{{ {source} }}}}: {reason}")
