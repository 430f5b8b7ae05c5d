"""Scripts with templates, split into text and slots.

Data never becomes code: a template is replaced by a reference to an environment variable. The form of the reference
depends on the language and on its position in the script; the reader of each language determines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from toban.definition.expressions.templates import (
    LONGEST_REMEMBERED,
    Expression,
    Fault,
    scan_expression,
)

MAX_NESTING = 50
LONGEST_ADVICE = 100


class Form(Enum):
    """The form of a value in the script."""

    QUOTED = auto()  # a separate word, with any contents
    BARE = auto()  # where quotes would be text, or exist already
    OPEN = auto()  # outside of all quotes, in a language that could not remove them again
    NUMBER = auto()  # in arithmetic, integers only
    RAW = auto()  # the text itself


@dataclass(frozen=True, slots=True)
class Slot:
    """A position in the script for the value of an expression."""

    expression: Expression
    form: Form


@dataclass(frozen=True, slots=True)
class Script:
    """A script split into text and slots.

    Invalid positions have no slot; their expressions are in `misplaced`, so that their references can still be checked.
    """

    parts: tuple[str | Slot, ...]
    misplaced: tuple[Expression, ...]
    faults: tuple[Fault, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))


def assemble(script: Script, fill: Callable[[Slot], str]) -> str:
    """The script to run."""
    return "".join(part if isinstance(part, str) else fill(part) for part in script.parts)


def remembered(read: Callable[[str], Script]) -> Callable[[str], Script]:
    """`read` with a cache, because the same step is rendered many times."""
    remember = lru_cache(maxsize=1024)(read)

    def look(text: str) -> Script:
        return remember(text) if len(text) <= LONGEST_REMEMBERED else read(text)

    return look


class UnreadableError(Exception):
    """The rest of the script cannot be parsed."""

    def __init__(self, message: str, offset: int) -> None:
        self.fault = Fault(message, offset)
        super().__init__(message)


class ScriptReader:
    """One pass over a script of any language. `why` is the reason why no template is allowed here."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.copied = 0
        self.parts: list[str | Slot] = []
        self.misplaced: list[Expression] = []
        self.faults: list[Fault] = []
        self.depth = 0

    def script(self, read: Callable[[], None]) -> Script:
        """The result after `read` has parsed the text."""
        try:
            read()
        except UnreadableError as stop:
            self.faults.append(stop.fault)
        self.parts.append(self.text[self.copied :])
        parts = tuple(part for part in self.parts if part != "")
        return Script(parts, tuple(self.misplaced), tuple(self.faults))

    def looking_at(self, text: str, ahead: int = 0) -> bool:
        return self.text.startswith(text, self.at + ahead)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise UnreadableError("the script is nested too deeply: use a script file", self.at)

    def template(self, form: Form, why: str) -> None:
        """Takes the template at the current position."""
        expression = self.expression()
        self.faults.extend(expression.faults)
        if expression.raw:
            self.fill(expression, Form.RAW)
        elif why:
            self.faults.append(Fault(f"the template is {why}", expression.start))
            self.misplaced.append(expression)
        else:
            self.fill(expression, form)

    def quoted_template(self, inside: list[Expression]) -> None:
        """Takes a template in the author's quotes; reported at the closing quote."""
        expression = self.expression()
        if expression.raw:
            self.faults.extend(expression.faults)
            self.fill(expression, Form.RAW)
        else:
            self.misplaced.append(expression)
            inside.append(expression)

    def expression(self) -> Expression:
        scanned = scan_expression(self.text, self.at)
        if isinstance(scanned, Fault):
            raise UnreadableError(scanned.message, scanned.offset)
        self.at = scanned.end
        return scanned

    def fill(self, expression: Expression, form: Form) -> None:
        self.parts += [self.text[self.copied : expression.start], Slot(expression, form)]
        self.copied = expression.end


def literal_braces(literal: str, inside: list[Expression]) -> str:
    """A hint for braces in quotes that were not meant as templates; empty if they were."""
    if not inside or any(expression.refs for expression in inside):
        return ""
    if len(literal) <= LONGEST_ADVICE and not set(literal) & set('"\\\n'):
        return f'for literal braces write {{{{ "{literal}" }}}} without the quotes'
    return "for literal braces put them into an expression without the quotes"
