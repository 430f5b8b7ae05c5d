"""Shell scripts with templates: what a script looks like once its templates are found.

Data never becomes code: a template is replaced by a reference to an environment variable, and the
shell does not parse what comes out of an expansion. What the reference must look like depends on where
it stands; `shell_reader` finds that out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from toban.definition.expressions import Expression, Fault

_LONGEST_ADVICE = 100

IN_BACKQUOTES = "inside backquotes, where quoting is unclear: use $( … ) instead"
IN_BRACES = "inside ${ … }, where quoting is unclear: put it into a variable first"
DOUBLE_PARENS = "(( is read differently by different shells: use $(( … )), or write ( ("
IN_BRACKETS = "inside $[ … ], which shells read differently: use $(( … )) instead"
IN_TEST = "inside [[ … ]], which is not POSIX shell: use [ … ] instead"
IN_DELIMITER = "in the delimiter of a here-document: use a fixed word"


class Form(Enum):
    """How a value appears in the script."""

    QUOTED = auto()  # "${TOBAN_V1}"
    BARE = auto()  # ${TOBAN_V1}: in a here-document, where quotes would be text
    NUMBER = auto()  # (${TOBAN_V1}): in arithmetic, integers only
    RAW = auto()  # the text itself


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the script that an expression fills."""

    expression: Expression
    form: Form


@dataclass(frozen=True, slots=True)
class Script:
    """A script cut into text and slots.

    Faulty places have no slot; their expressions are in `misplaced`, so that what they refer to can
    still be checked.
    """

    parts: tuple[str | Slot, ...]
    misplaced: tuple[Expression, ...]
    faults: tuple[Fault, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))


def assemble(script: Script, text_of: Callable[[Slot], str], name_of: Callable[[Slot], str]) -> str:
    """The script to run: raw slots become their text, all others a reference to a variable."""
    out = []
    for part in script.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        match part.form:
            case Form.QUOTED:
                out.append(f'"${{{name_of(part)}}}"')
            case Form.BARE:
                out.append(f"${{{name_of(part)}}}")
            case Form.NUMBER:
                out.append(f"(${{{name_of(part)}}})")
            case Form.RAW:
                out.append(text_of(part))
    return "".join(out)


def quoted_by_hand(text: str, start: int, end: int, inside: list[Expression]) -> list[Fault]:
    """Faults for templates in the author's own quotes, with what to write instead.

    The quotes stand at `start` and `end - 1` of the script.
    """
    quote = text[start]
    name = "single" if quote == "'" else "double"
    if inside and not any(expression.refs for expression in inside):
        advice = "for literal braces put them into an expression without the quotes"
        literal = text[start + 1 : end - 1]
        if len(literal) <= _LONGEST_ADVICE and not set(literal) & set('"\\\n'):
            advice = f'for literal braces write {{{{ "{literal}" }}}} without the quotes'
    else:
        advice = f"it is quoted by itself, write {_unquoted(text, start, end, inside)}"
    message = f"the template stands inside {name} quotes: {advice}"
    return [Fault(message, expression.start) for expression in inside]


def _unquoted(text: str, start: int, end: int, inside: list[Expression]) -> str:
    """The quoted text with its quotes closed around each template."""
    quote = text[start]
    out = []
    position = start + 1
    for expression in inside:
        before = text[position : expression.start]
        out += [f"{quote}{before}{quote}" if before else ""]
        out += [text[expression.start : expression.end]]
        position = expression.end
    rest = text[position : end - 1]
    out += [f"{quote}{rest}{quote}" if rest else ""]
    advice = "".join(out)
    if len(advice) > _LONGEST_ADVICE or "\n" in advice:
        return f"{quote}…{quote}{{{{ … }}}}{quote}…{quote}"
    return advice


def quoted_delimiter(delimiter: str) -> str:
    """Why a template may not stand in a here-document with a quoted delimiter."""
    return (
        f"in a here-document whose delimiter {delimiter} is quoted, so nothing in it is expanded: "
        f'remove the quotes around {delimiter}, or write {{{{ raw("{{{{") }}}} for literal braces'
    )
