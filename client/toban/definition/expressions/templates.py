"""Parses `{{ … }}` templates and bare expressions, and finds their references. No evaluation.

A reference is a root (`params`, `run`, `event`, `env`, `secrets`, `steps`, …) and the names after it, written with dots
or with a literal in brackets: `steps.fetch.stdout`, `steps["apply-repo-a"].stdout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_EXPRESSION_BYTES = 8 * 1024
# Longer texts are not cached, so that the cache stays small.
LONGEST_REMEMBERED = 16 * 1024

# The number of names that make a value of each root.
ROOTS = {
    "params": 1,
    "run": 1,
    "event": 1,
    "env": 1,
    "secrets": 1,
    "steps": 2,
    "item": 0,
    "iteration": 0,
    "check": 1,
}
FORMS = {
    "params": "params.<name>",
    "run": "run.<field>",
    "event": "event.<field>",
    "env": "env.<NAME>",
    "secrets": "secrets.<NAME>",
    "steps": "steps.<id>.<field>",
    "check": "check.<field>",
}
WHOLE = frozenset({"params", "run", "event"})
"""Roots that are also values themselves: mappings of all their names."""
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_PLAIN_STRING = re.compile(r"'[^'\\]+'|\"[^\"\\]+\"")
_RESERVED = re.compile(r"toban_[a-z][0-9]+")
_TOO_LONG = f"the expression is longer than {MAX_EXPRESSION_BYTES // 1024} KiB: compute it in a step instead"

_STRINGS = "|".join(
    (
        r"[rR][bB]?'''.*?'''|[rR][bB]?\"\"\".*?\"\"\"",
        r"[bB][rR]'''.*?'''|[bB][rR]\"\"\".*?\"\"\"",
        r"(?:[rR][bB]?|[bB][rR])'[^'\r\n]*'|(?:[rR][bB]?|[bB][rR])\"[^\"\r\n]*\"",
        r"[bB]?'''(?:\\.|[^\\])*?'''|[bB]?\"\"\"(?:\\.|[^\\])*?\"\"\"",
        r"[bB]?'(?:\\.|[^'\\\r\n])*'|[bB]?\"(?:\\.|[^\"\\\r\n])*\"",
    )
)
_TOKEN = re.compile(
    rf"(?P<space>\s+|//(?:(?!}}}})[^\n])*)|(?P<string>{_STRINGS})"
    r"|(?P<number>0x[0-9a-fA-F]+u?|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?u?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]*`)|(?P<mark>.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference; start and end are offsets in the expression's source."""

    root: str
    names: tuple[str, ...]
    start: int
    end: int

    def __str__(self) -> str:
        return self.root + "".join(f".{name}" if name.isidentifier() else f'["{name}"]' for name in self.names)


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem in a template; `offset` counts in the text that contains the template."""

    message: str
    offset: int


@dataclass(frozen=True, slots=True)
class Expression:
    """The expression between `{{` and `}}`, or with `bare` a whole text.

    `source` is the compiled text (the inside of `raw(…)` for a raw template) and starts at `offset` of the surrounding
    text; the template itself spans `start` to `end`. `path` has the names after the reference if the expression is only
    one reference with names, else None.
    """

    source: str
    offset: int
    start: int
    end: int
    refs: tuple[Ref, ...]
    path: tuple[str, ...] | None
    raw: bool
    faults: tuple[Fault, ...]
    bare: bool = False

    @property
    def is_reference(self) -> bool:
        """Whether it is one reference and nothing else."""
        return self.path == () and not self.raw


@dataclass(frozen=True, slots=True)
class Template:
    """A text cut into literal parts and expressions."""

    parts: tuple[str | Expression, ...]
    faults: tuple[Fault, ...]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(part for part in self.parts if isinstance(part, Expression))

    @property
    def whole(self) -> Expression | None:
        """The expression, if the template is the whole value and so keeps its type."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0]
        return None


def parse_template(text: str) -> Template:
    """Splits a text at its templates; `faults` has their problems."""
    return _remembered(text) if len(text) <= LONGEST_REMEMBERED else _parse(text)


@lru_cache(maxsize=2048)
def _remembered(text: str) -> Template:
    return _parse(text)


def _parse(text: str) -> Template:
    parts: list[str | Expression] = []
    faults: list[Fault] = []
    position = 0
    while (start := text.find("{{", position)) >= 0:
        scanned = scan_expression(text, start)
        if isinstance(scanned, Fault):
            faults.append(scanned)
            break
        if start > position:
            parts.append(text[position:start])
        parts.append(scanned)
        faults.extend(scanned.faults)
        position = scanned.end
    if position < len(text):
        parts.append(text[position:])
    return Template(tuple(parts), tuple(faults))


@lru_cache(maxsize=1024)
def parse_bare(text: str) -> Expression:
    """The expression of a whole text; its `faults` has its problems."""
    tokens: list[Token] = []
    faults: list[Fault] = []
    if len(text.encode()) > MAX_EXPRESSION_BYTES:
        faults.append(Fault(_TOO_LONG, 0))
    else:
        tokens = [
            Token(match.lastgroup or "", match.group(), match.start(), match.end())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "space"
        ]
        faults += _bare_faults(text, tokens)
    refs, path = _references(tokens, 0, faults)
    return Expression(text, 0, 0, len(text), refs, path, False, tuple(faults), bare=True)


def _bare_faults(text: str, tokens: list[Token]) -> Iterator[Fault]:
    if not tokens:
        yield Fault("the expression is empty", 0)
        return
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.kind == "mark" and token.text in "'\"":
            yield Fault("unterminated string in the expression: add the closing quote", token.start)
            return
        if after is not None and token.text == after.text == "{" and token.end == after.start:
            shown = text.strip()
            whole = shown.startswith("{{") and shown.endswith("}}") and shown.count("{{") == 1
            advice = f"write {shown[2:-2].strip()}" if whole else "write it without {{ and }}"
            yield Fault(f"this field is an expression, not a template: {advice}", token.start)
            return


def scan_expression(text: str, start: int) -> Expression | Fault:
    """The expression whose `{{` is at `start`, or why there is none."""
    tokens: list[Token] = []
    depth = 0
    position = start + 2
    while position < len(text):
        if depth == 0 and text.startswith("}}", position):
            return _expression(text, start, position, tokens)
        match = _TOKEN.match(text, position)
        if match is None:  # pragma: no cover - the last alternative takes any character
            break
        kind = match.lastgroup or ""
        found = match.group()
        if kind == "mark":
            depth += (found == "{") - (found == "}")
            if found in "'\"":
                return Fault("unterminated string in the template: add the closing quote", position)
        if kind != "space":
            tokens.append(Token(kind, found, position, match.end()))
        position = match.end()
    return Fault('"{{" without "}}": close the template, or write {{ "{{" }} for the braces', start)


def _expression(text: str, start: int, close: int, tokens: list[Token]) -> Expression:
    end = close + 2
    begin, stop = start + 2, close
    faults: list[Fault] = []
    raw = _is_raw(tokens)
    if raw:
        begin, stop = tokens[1].end, tokens[-1].start
        tokens = tokens[2:-1]
    if not tokens:
        faults.append(Fault("the template is empty: write an expression between {{ and }}", start))
    if stop - begin > MAX_EXPRESSION_BYTES or len(text[begin:stop].encode()) > MAX_EXPRESSION_BYTES:
        faults.append(Fault(_TOO_LONG, start))
        tokens = []
    refs, path = _references(tokens, begin, faults)
    return Expression(text[begin:stop], begin, start, end, refs, path, raw, tuple(faults))


def _is_raw(tokens: list[Token]) -> bool:
    """Whether the whole is `raw( … )`: its last parenthesis closes the first."""
    if len(tokens) < 3 or tokens[0].text != "raw" or tokens[1].text != "(":
        return False
    depth = 0
    for index, token in enumerate(tokens[1:], start=1):
        if token.kind == "mark":
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                return index == len(tokens) - 1
    return False


def _references(tokens: list[Token], begin: int, faults: list[Fault]) -> tuple[tuple[Ref, ...], tuple[str, ...] | None]:
    refs: list[Ref] = []
    path: tuple[str, ...] | None = None
    bound = _bound_names(tokens)
    index = 0
    while index < len(tokens):
        token = tokens[index]
        first = index
        index += 1
        if token.kind != "name" or (first > 0 and tokens[first - 1].text == "."):
            continue
        if token.text == "raw" and index < len(tokens) and tokens[index].text == "(":
            faults.append(Fault("raw( ) must be the whole template: {{ raw(…) }}", token.start))
        elif _RESERVED.fullmatch(token.text):
            faults.append(Fault(f'the name "{token.text}" is reserved: choose another', token.start))
        elif any(token.text == name and first in span for name, span in bound):
            continue  # a macro's variable shadows other names
        elif token.text in ROOTS:
            names, index = _chain(tokens, index)
            needed = ROOTS[token.text] if names or token.text not in WHOLE else 0
            if len(names) < needed:
                message = f"{token.text} is not a value: write {FORMS[token.text]}"
                faults.append(Fault(message, token.start))
                continue
            last = names[needed - 1][1] if needed else first
            kept = tuple(name for name, _ in names[:needed])
            refs.append(Ref(token.text, kept, token.start - begin, tokens[last].end - begin))
            if first == 0 and index == len(tokens):
                path = tuple(name for name, _ in names[needed:])
            else:
                index = last + 1
    return tuple(refs), path


def _chain(tokens: list[Token], index: int) -> tuple[list[tuple[str, int]], int]:
    """The names after a root, each with the index of its last token, and where they end.

    A called name (`.size()`) is not included.
    """
    names: list[tuple[str, int]] = []
    while index + 1 < len(tokens):
        token, after = tokens[index], tokens[index + 1]
        if token.text == "." and after.kind == "name":
            called = index + 2 < len(tokens) and tokens[index + 2].text == "("
            if called:
                break
            names.append((after.text.strip("`"), index + 1))
            index += 2
        elif token.text == "[" and _PLAIN_STRING.fullmatch(after.text):
            if index + 2 >= len(tokens) or tokens[index + 2].text != "]":
                break
            names.append((after.text[1:-1], index + 2))
            index += 3
        else:
            break
    return names, index


def _bound_names(tokens: list[Token]) -> list[tuple[str, range]]:
    """Variables of macros such as `list.map(x, …)`, each with the tokens of its scope."""
    bound: list[tuple[str, range]] = []
    for index in range(1, len(tokens) - 3):
        if tokens[index].text not in _MACROS or tokens[index - 1].text != ".":
            continue
        opening, name, comma = tokens[index + 1 : index + 4]
        if opening.text != "(" or name.kind != "name" or comma.text != ",":
            continue
        depth = 0
        for end in range(index + 1, len(tokens)):
            if tokens[end].kind == "mark":
                depth += (tokens[end].text in "([{") - (tokens[end].text in ")]}")
            if depth == 0:
                bound.append((name.text, range(index + 1, end)))
                break
    return bound
