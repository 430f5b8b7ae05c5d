"""The expression language, CEL; the only module that uses its library.

TemplateNames are resolved before CEL sees an expression: each reference becomes a variable whose name carries its type
(`params.day + "x"` is compiled as `toban_s0 + "x"`). One environment then serves every workflow, equal expressions
share one program, any step id or parameter name can be referenced, and the compiler still checks all types. The library
is loaded when the first real expression is compiled; a template that only names a value never needs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toban.definition.expressions.template_names import TemplateNames, ValueKind
from toban.definition.expressions.templates import Expression, Fault

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
LOOPED_MOST = 2_000
"""Maximum length of a list or map in an expression whose time grows faster than linearly.

Evaluation blocks the daemon, and the library cannot be interrupted: `map` and `filter` copy their list for each
element, so that 2,000 elements take some 0.1 s, and 9,000 take 3 s.
"""

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_OVERLOAD = re.compile(r"found no matching overload for '(.+?)' applied to '\((.*)\)'")
_UNDECLARED = re.compile(r"undeclared reference to '(.+?)' \(in container ''\)")
_SELECT = re.compile(r"expression of type '(.+?)' cannot be the operand of a select operation")
_EXPECTING = re.compile(r" expecting (?:\{.*\}|\S+)$")
_STATUS = re.compile(r"^[A-Z_]+: ")
_NO_KEY = re.compile(r'Key not found in map : (".*")', re.DOTALL)
_NO_OVERLOAD = re.compile(r"No matching overloads found : (\S+?)\((.*)\)")
_LOOP = re.compile(r"\.\s*(?:map|filter|exists|exists_one|all)\s*\(")
_COSTLY = re.compile(r"\.\s*(?:map|filter|matches)\s*\(|\bin\b")
_PATTERN = re.compile(r"""\.\s*matches\s*\(\s*([rR]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))\s*\)""")
_MEANT = {'unknown name "base_dir"': "write run.base_dir"}
_KINDS = {
    "STRING": ValueKind.STRING,
    "INT": ValueKind.INT,
    "UINT": ValueKind.INT,
    "DOUBLE": ValueKind.DOUBLE,
    "BOOL": ValueKind.BOOL,
    "LIST": ValueKind.LIST,
    "MAP": ValueKind.MAP,
}
_NO_VALUE = {"BYTES", "TIMESTAMP", "DURATION", "TYPE"}


class EvaluationError(Exception):
    """A program failed on these values."""


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A compiled expression; `kind` is its static type, DYN where it has none."""

    compiled: Any
    kind: ValueKind
    costly: bool = False

    def run(self, values: dict[str, Any]) -> Any:
        """The plain Python value; raises EvaluationError. Values are by variable name."""
        if self.costly:
            check_length(max(map(longest, values.values()), default=0))
        try:
            return _plain(self.compiled.eval(data=values))
        except RuntimeError as error:
            raise _failed(error) from None


def _plain(result: Any) -> Any:
    from cel_expr_python import cel

    if result.type() == cel.Type.ERROR:
        raise EvaluationError(_reason(str(result.value())))
    return result.plain_value()


def _failed(error: RuntimeError) -> EvaluationError:
    return EvaluationError(_reason(str(error).split(" [", 1)[0]))


def _reason(text: str) -> str:
    text = _STATUS.sub("", text)
    if match := _NO_KEY.fullmatch(text):
        return f"there is no field {match[1]}"
    if match := _NO_OVERLOAD.fullmatch(text):
        types = match[2].replace("int64", "int")
        number = {"int", "double"} >= set(types.split(", "))
        hint = ": make both the same with double(…) or int(…)" if number else ""
        return f"{_operator(match[1])} cannot be applied to ({types}){hint}"
    if text == "Applying SELECT to non-message type":
        return "the value has no fields"
    if text == "Iteration budget exceeded":
        return "it visits more than 10,000 elements: compute it in a step instead"
    return text


def is_costly(text: str) -> bool:
    """Whether the evaluation time of an expression grows faster than its lists."""
    loops = len(_LOOP.findall(text))
    return loops > 1 or (loops == 1 and _COSTLY.search(text) is not None)


def check_length(length: int) -> None:
    """Checks the length of a list or map that a costly expression sees; raises EvaluationError."""
    if length > LOOPED_MOST:
        raise EvaluationError(
            f"it sees a list or map of {length:,} elements: with map and filter, or with one loop or "
            f"search in another, at most {LOOPED_MOST:,} are allowed; compute it in a step instead"
        )


def longest(value: Any) -> int:
    """The length of the longest list or map in a value."""
    match value:
        case Mapping():
            return max(len(value), max(map(longest, value.values()), default=0))
        case list() | tuple():
            return max(len(value), max(map(longest, value), default=0))
        case _:
            return 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """The compiler's errors, with offsets in the text that contains the template."""

    faults: tuple[Fault, ...]


def compile_unchecked(text: str) -> Any:
    """A program for `Prepared.value`, of an expression that was checked before; raises EvaluationError.

    Without type information, which takes memory: this is for very many expressions.
    """
    try:
        return _untyped().compile(text, disable_check=True)
    except RuntimeError as error:
        raise EvaluationError(_messages(str(error))[0][0]) from None


@lru_cache(maxsize=1)
def _untyped() -> Any:
    return _new_environment({})


class Prepared:
    """Values by their names, converted once for any number of programs. They must not be changed afterwards."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._activation = _untyped().Activation(values)

    def value(self, compiled: Any) -> Any:
        """The program's result for the values; raises EvaluationError."""
        try:
            result = compiled.eval(self._activation)
            found = result.value()
            # Called very often: skip the conversion of booleans.
            if found is True or found is False:
                return found
            return _plain(result)
        except RuntimeError as error:
            raise _failed(error) from None


def variables(expression: Expression, kinds: Sequence[ValueKind]) -> dict[str, int]:
    """Variable name → index of the first reference that it replaces."""
    names: dict[str, int] = {}
    for index, name in enumerate(_names(expression, tuple(kinds))):
        names.setdefault(name, index)
    return names


def _names(expression: Expression, kinds: tuple[ValueKind, ...]) -> list[str]:
    """One variable name per reference; equal references share one."""
    seen: dict[tuple[str, tuple[str, ...]], str] = {}
    names = []
    for ref, kind in zip(expression.refs, kinds, strict=True):
        key = (ref.root, ref.names)
        seen.setdefault(key, f"toban_{kind.value}{len(seen)}")
        names.append(seen[key])
    return names


def compile_expression(
    expression: Expression, kinds: Sequence[ValueKind], knows: str = TemplateNames.knows
) -> CompiledExpression | Rejected:
    """Compiles with one kind per reference; `knows` lists the known names."""
    names = _names(expression, tuple(kinds))
    text, starts = _rewrite(expression, names)
    compiled = _compile(text, _slots(len(names)))
    if isinstance(compiled, CompiledExpression):
        return compiled
    faults = []
    for message, line, column in compiled:
        index = _index(text, line, column)
        if message.startswith("unknown name"):
            called = text.startswith("(", index)
            known = _MEANT.get(message, knows)
            message = message.replace("name", "function", 1) if called else f"{message}: {known}"
        faults.append(Fault(message, expression.offset + _original(index, starts)))
    return Rejected(tuple(faults))


def _rewrite(expression: Expression, names: list[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """The text for the compiler, and (start in it, end in it, start in the source) of each name."""
    source = expression.source
    out: list[str] = []
    length = position = 0
    moved = []
    for ref, name in zip(expression.refs, names, strict=True):
        out += [source[position : ref.start], name]
        length += ref.start - position
        moved.append((length, length + len(name), ref.start))
        length += len(name)
        position = ref.end
        moved.append((length, -1, ref.end))
    out.append(source[position:])
    return "".join(out), moved


def _original(index: int, moved: list[tuple[int, int, int]]) -> int:
    """The position in the source of a character of the rewritten text."""
    base, origin, end = 0, 0, -1
    for start, stop, source in moved:
        if start > index:
            break
        base, origin, end = start, source, stop
    return origin if end >= 0 else origin + index - base


def _index(text: str, line: int, column: int) -> int:
    if line < 1 or column < 1:
        return 0
    lines = text.split("\n")
    return sum(len(row) + 1 for row in lines[: line - 1]) + column - 1


def _slots(count: int) -> int:
    """How many variables of each kind an environment needs; few sizes, so few environments."""
    size = 16
    while size < count:
        size *= 4
    return size


@lru_cache(maxsize=8)
def _environment(slots: int) -> Any:
    return _new_environment({f"toban_{kind.value}{index}": kind for kind in ValueKind for index in range(slots)})


def _new_environment(names: Mapping[str, ValueKind]) -> Any:
    from cel_expr_python import cel

    types = cel.Type
    kinds = {
        ValueKind.STRING: types.STRING,
        ValueKind.INT: types.INT,
        ValueKind.DOUBLE: types.DOUBLE,
        ValueKind.BOOL: types.BOOL,
        ValueKind.LIST: types.List(types.DYN),
        ValueKind.MAP: types.Map(types.STRING, types.DYN),
        ValueKind.TEXTS: types.Map(types.STRING, types.STRING),
        ValueKind.DYN: types.DYN,
    }
    return cel.NewEnv(variables={name: kinds[kind] for name, kind in names.items()})


@lru_cache(maxsize=2048)
def _compile(text: str, slots: int) -> CompiledExpression | tuple[tuple[str, int, int], ...]:
    try:
        compiled = _environment(slots).compile(text)
        # This may raise too, such as for a map whose keys are lists.
        returned = compiled.return_type().name()
    except RuntimeError as error:
        return _messages(str(error))
    if returned.split("<", 1)[0].upper() in _NO_VALUE:
        what = returned.split("<", 1)[0].lower()
        return ((f"the expression gives a {what}: turn it into text with string(…)", 1, 1),)
    if faults := _bad_patterns(text):
        return faults
    kind = _KINDS.get(returned.split("<", 1)[0].upper(), ValueKind.DYN)
    return CompiledExpression(compiled, kind, is_costly(text))


def _bad_patterns(text: str) -> tuple[tuple[str, int, int], ...]:
    """Errors in literal patterns of `matches`, each with line and column."""
    faults = []
    for found in _PATTERN.finditer(text):
        try:
            _plain(compile_unchecked(f"''.matches({found[1]})").eval(data={}))
        except (EvaluationError, RuntimeError) as error:
            before = text[: found.start(1)]
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            faults.append((f"the pattern {found[1]} cannot be read: {error}", line, column))
    return tuple(faults)


def _messages(text: str) -> tuple[tuple[str, int, int], ...]:
    found = [(line, column, message) for line, column, message in _ERROR.findall(text)]
    if not found:
        return ((f"the expression is refused: {_STATUS.sub('', text).split(' [', 1)[0]}", 1, 1),)
    syntax = [entry for entry in found if "Syntax error" in entry[2] or "recursion" in entry[2]]
    # After one syntax error the parser's further messages are noise. An invalid operand (*error*) also makes its
    # operator invalid, which is not reported again.
    kept = syntax[:1] or [entry for entry in found if "*error*" not in entry[2]] or found[:1]
    return tuple((_readable(message), int(line), int(column)) for line, column, message in kept)


def _readable(message: str) -> str:
    message = message.removesuffix(" [INVALID_ARGUMENT]")
    if match := _OVERLOAD.search(message):
        return f"type error: {_operator(match[1])} cannot be applied to ({match[2]})"
    if match := _SELECT.search(message):
        return f"type error: a value of type {match[1]} has no fields"
    if match := _UNDECLARED.search(message):
        return f'unknown name "{match[1]}"'
    if "recursion" in message:
        return "the expression is nested too deeply: compute it in a step instead"
    if "Syntax error" in message:
        message = _EXPECTING.sub("", message.split("Syntax error: ", 1)[1])
        message = message.replace("'<EOF>'", "the end of the expression")
        message = re.sub(r"^(mismatched|extraneous) input", "unexpected", message)
        return f"syntax error: {message}"
    return message


def _operator(name: str) -> str:
    shown = name.replace("_", "").replace("@", "") if not name.isidentifier() else f"{name}( )"
    return {"[]": "[ ]", "?:": "? :"}.get(shown, shown)
