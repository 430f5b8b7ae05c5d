"""Command lines of systemd services: prefixes, quotes, variables and specifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toban.importing.model import ImportProblem

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
            "\\": "\\", '"': '"', "'": "'", "s": " "}  # fmt: skip
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<braced>\w+)\})", re.ASCII)
_WORD_VARIABLE = re.compile(r"\$(?P<name>[A-Za-z_]\w*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program and its arguments. `may_fail`: its failure does not count. `privileged`: it runs as root."""

    program: str
    arguments: tuple[str, ...]
    may_fail: bool = False
    privileged: bool = False


def read_commands(
    text: str, *, env: Mapping[str, str], specifiers: Mapping[str, str]
) -> list[Command]:
    """The commands of one line; `;` alone separates several. Raises ImportProblem for what cannot be said here."""
    commands: list[Command] = []
    words: list[tuple[str, bool]] = []
    for word, quoted in (*split_words(text), (";", False)):
        if word == ";" and not quoted:
            if words:
                commands.append(_command(words, env, specifiers))
            words = []
        else:
            words.append((";" if word == "\\;" else word, quoted))
    return commands


def split_words(text: str) -> Iterator[tuple[str, bool]]:
    """The words, and whether any of a word was quoted. Raises ImportProblem if a quote is not closed."""
    word, quote, quoted, begun = "", "", False, False
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            following = text[at]
            at += 1
            begun = True
            if following == "x" and re.fullmatch("[0-9a-fA-F]{2}", text[at : at + 2]):
                word += chr(int(text[at : at + 2], 16))
                at += 2
            else:
                word += _ESCAPES.get(following, char + following)
        elif quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "\"'" and not word:
            quote, quoted, begun = char, True, True
        elif char in " \t\n":
            if begun:
                yield word, quoted
            word, quoted, begun = "", False, False
        else:
            word += char
            begun = True
    if quote:
        raise ImportProblem(f"a quote is not closed: {text}")
    if begun:
        yield word, quoted


def expand_specifiers(text: str, specifiers: Mapping[str, str]) -> str:
    """The text with `%n` and the like replaced; raises ImportProblem for one that cannot be known here."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in specifiers:
            raise ImportProblem(f"the specifier {match[0]} has no value here: {text}")
        return specifiers[match[1]]

    return re.sub(r"%(.?)", value, text)


def _command(
    words: list[tuple[str, bool]], env: Mapping[str, str], specifiers: Mapping[str, str]
) -> Command:
    program = words[0][0]
    prefix = program[: len(program) - len(program.lstrip("-@:+!|"))]
    program = expand_specifiers(program[len(prefix) :], specifiers)
    rest = words[1:]
    if "|" in prefix:
        raise ImportProblem(f"the prefix | has no counterpart: {words[0][0]}")
    if "@" in prefix:
        if not rest or rest[0][0].rpartition("/")[2] != program.rpartition("/")[2]:
            raise ImportProblem(f"the prefix @ gives the program another name: {words[0][0]}")
        rest = rest[1:]
    if not program or "$" in program:
        raise ImportProblem(f'cannot read the program "{words[0][0]}"')
    arguments: list[str] = []
    for word, _ in rest:
        expanded = expand_specifiers(word, specifiers)
        arguments += [expanded] if ":" in prefix else _expanded(expanded, env)
    return Command(
        program=program,
        arguments=tuple(arguments),
        may_fail="-" in prefix,
        privileged="+" in prefix or "!" in prefix,
    )


def _expanded(word: str, env: Mapping[str, str]) -> list[str]:
    """A word `$NAME` becomes the words of its value, `${NAME}` stands for the value in a word."""

    def value(name: str) -> str:
        if name not in env:
            raise ImportProblem(f"the variable {name} is not among Environment=: {word}")
        return env[name]

    if match := _WORD_VARIABLE.fullmatch(word):
        return value(match["name"]).split()
    return [_VARIABLE.sub(lambda m: value(m["braced"]) if m["braced"] else "$", word)]
