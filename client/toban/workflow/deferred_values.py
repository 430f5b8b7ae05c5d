"""Values that are known only when a run starts, or when a step has ended: templates of the definition."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class NotKnownYet(TypeError):  # noqa: N818 - the name describes the failure
    """The function of a workflow computes with a value that is known only when a run starts."""


class Value:
    """An expression; in a text it becomes `{{ expression }}`. `value["key"]` and `value[0]` are parts of it."""

    def __init__(self, expression: str) -> None:
        self.expression: Final = expression

    def __str__(self) -> str:
        return f"{{{{ {self.expression} }}}}"

    def __repr__(self) -> str:
        return f"<value {self.expression}>"

    def __format__(self, spec: str) -> str:
        if spec:
            raise NotKnownYet(f"cannot format {self.expression} as {spec!r}: its value is known only when a run starts")
        return str(self)

    def __getitem__(self, key: str | int) -> Value:
        if not isinstance(key, str | int):
            raise TypeError(f"cannot select {key!r} of {self.expression}: expected a text or a number")
        return Value(f"{self.expression}[{json.dumps(key, ensure_ascii=False)}]")

    def _unknown(self, *_: object) -> NoReturn:
        raise NotKnownYet(
            f"the value of {self.expression} is known only when a run starts: "
            f'let a step compute with it, or write an expression, such as when="{self.expression} == 1"'
        )

    __bool__ = __iter__ = __len__ = __int__ = __float__ = __contains__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unknown
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __neg__ = _unknown
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f'{self.expression} has no attribute {name!r}: write ["{name}"] for a part of the value')


class StepRef:
    """A step of the workflow that is being defined: its result and its other values, and a name for `depends_on`."""

    def __init__(self, step_id: str) -> None:
        self.id: Final = step_id

    def __repr__(self) -> str:
        return f"<step {self.id}>"

    def _value(self, field: str) -> Any:
        return Value(f"{_step(self.id)}.{field}")

    @property
    def result(self) -> Any:
        """What a python step returned, the result of a child run, or the decision on an approval."""
        return StepResult(self)

    @property
    def outputs(self) -> Any:
        """What it wrote to $TOBAN_OUTPUT: a mapping of strings."""
        return self._value("outputs")

    @property
    def stdout(self) -> Any:
        """Its standard output."""
        return self._value("stdout")

    @property
    def stderr(self) -> Any:
        """Its standard error."""
        return self._value("stderr")

    @property
    def exit_code(self) -> Any:
        """Its exit code."""
        return self._value("exit_code")

    @property
    def status(self) -> Any:
        """Such as `SUCCEEDED`."""
        return self._value("status")


class StepResult(Value):
    """The result of a step, which is what the call of a step function gives while a workflow is defined."""

    def __init__(self, step: StepRef) -> None:
        super().__init__(f"{_step(step.id)}.result")
        self.step: Final = step


def _step(step_id: str) -> str:
    return f"steps.{step_id}" if _IDENTIFIER.match(step_id) else f"steps[{json.dumps(step_id)}]"
