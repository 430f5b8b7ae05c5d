"""Prose is never data: no code of the domain, the engine or the CLI decides by a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKED = ("daemon/toband/domain", "daemon/toband/engine", "client/toban/cli")
METHODS = (
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "find",
    "index",
    "split",
)
ALLOWED = {
    ("client/toban/cli/args/time_options.py", " ago"),  # what people type
    ("client/toban/cli/args/import_machine.py", "Failed to parse calendar"),  # what systemd-analyze prints
    ("client/toban/cli/error_report.py", "cannot "),  # only to not write it twice
}


def decisions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that the code compares with something, and their lines."""
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and node.value is not None
    }

    def texts(node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name) if name in named:
                yield from texts(named[name])
            case ast.Tuple(elts=inner) | ast.List(elts=inner) | ast.Set(elts=inner):
                for each in inner:
                    yield from texts(each)
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[inner]):
                yield from texts(inner)
            case ast.Dict(keys=keys):
                for key in keys:
                    if key is not None:
                        yield from texts(key)
            case _:
                pass

    for node in ast.walk(tree):
        operands: list[ast.AST] = []
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
            case ast.Call(func=ast.Attribute(attr=name), args=arguments) if name in METHODS:
                operands = list(arguments)
            case ast.MatchValue(value=value):
                operands = [value]
            case _:
                pass
        for operand in operands:
            for text in texts(operand):
                yield operand.lineno, text  # type: ignore[attr-defined]


def is_prose(text: str) -> bool:
    return " " in text.strip("\n") and any(character.isalpha() for character in text)


def found_in(path: str, source: str) -> list[str]:
    return [
        f"{path}:{line}: {text!r}"
        for line, text in decisions(ast.parse(source))
        if is_prose(text) and (path, text) not in ALLOWED
    ]


@pytest.mark.parametrize("package", CHECKED)
def test_nothing_is_decided_by_a_sentence(package: str) -> None:
    found = []
    for file in sorted((ROOT / package).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        found += found_in(path, file.read_text(encoding="utf-8"))
    assert found == [], "use an enum, a flag or a field instead of a text for people"


@pytest.mark.parametrize(
    "source",
    [
        'if reason == "timed out": pass',
        'if "nobody was there" != reason: pass',
        'TEXT = "timed out"\nif reason == TEXT: pass',
        'if reason in ("when", "not chosen"): pass',
        'KNOWN = frozenset({"not chosen"})\nif reason not in KNOWN: pass',
        'if "no counterpart: " in reason: pass',
        'owner.removesuffix(" (removed)")',
        'reason.startswith(("event ", "x"))',
        'match reason:\n    case "timed out":\n        pass',
    ],
)
def test_a_decision_by_a_sentence_is_found(source: str) -> None:
    assert len(found_in("some.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        'if reason == "timeout": pass',
        "if reason is Reason.TIMED_OUT: pass",
        'error = "timed out" if late else ""',
        'text.split(" ")',
        'raise ValueError("cannot do it")',
    ],
)
def test_other_texts_are_not(source: str) -> None:
    assert found_in("some.py", source) == []
