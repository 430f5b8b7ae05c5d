"""Replacements for templates in a shell script, and the faults where none is allowed.

The shell does not parse the result of an expansion, so a reference to a variable is enough to separate data from code.
"""

from __future__ import annotations

from toban.definition.expressions.templates import Expression, Fault
from toban.definition.scripts.script import LONGEST_ADVICE, Form, literal_braces

IN_BACKQUOTES = "inside backquotes, where quoting is unclear: use $( … ) instead"
IN_BRACES = "inside ${ … }, where quoting is unclear: put it into a variable first"
DOUBLE_PARENS = "(( is read differently by different shells: use $(( … )), or write ( ("
IN_BRACKETS = "inside $[ … ], which shells read differently: use $(( … )) instead"
IN_TEST = "inside [[ … ]], which is not POSIX shell: use [ … ] instead"
IN_DELIMITER = "in the delimiter of a here-document: use a fixed word"


def reference(form: Form, name: str, _value: str) -> str:
    """The script's reference to the variable `name`, safe for any value."""
    match form:
        case Form.QUOTED:
            return f'"${{{name}}}"'
        case Form.BARE:
            return f"${{{name}}}"
        case _:
            return f"(${{{name}}})"


def quoted_by_hand(text: str, start: int, end: int, inside: list[Expression]) -> list[Fault]:
    """Faults for templates in the author's own quotes, with the text to write instead.

    The quotes are at `start` and `end - 1` of the script.
    """
    quote = text[start]
    name = "single" if quote == "'" else "double"
    advice = literal_braces(text[start + 1 : end - 1], inside)
    if not advice:
        advice = f"it is quoted by itself, write {_unquoted(text, start, end, inside)}"
    message = f"the template is inside {name} quotes: {advice}"
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
    if len(advice) > LONGEST_ADVICE or "\n" in advice:
        return f"{quote}…{quote}{{{{ … }}}}{quote}…{quote}"
    return advice


def quoted_delimiter(delimiter: str) -> str:
    """The fault for a template in a here-document with a quoted delimiter."""
    return (
        f"in a here-document whose delimiter {delimiter} is quoted, so nothing in it is expanded: "
        f'remove the quotes around {delimiter}, or write {{{{ raw("{{{{") }}}} for literal braces'
    )
