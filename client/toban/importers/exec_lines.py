"""Parses command lines of systemd services: prefixes, quotes, variables and specifiers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from toban.importers.import_model import ImportProblem

_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}
_ESCAPE = re.compile(
    r"""\\(?:(?P<char>[abfnrtvs\\"'])|(?P<octal>[0-3][0-7]{2})|x(?P<byte>[0-9A-Fa-f]{2})"""
    r"""|u(?P<short>[0-9A-Fa-f]{4})|U(?P<long>[0-9A-Fa-f]{8}))"""
)
_SEPARATOR = re.compile(r"(?P<escape>\\?);(?=[ \t\r\n]|\Z)")
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<braced>\w+)\})", re.ASCII)
_WORD_VARIABLE = re.compile(r"\$(?![${])(?P<name>.*)", re.DOTALL)
_SPACE = " \t\r\n"
_LAST_CHARACTER = 0x10FFFF
_Unescape = Callable[[str, int], tuple[bytes, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommand:
    """A program and its arguments. `may_fail`: its failure is ignored. `privileged`: it runs as root."""

    program: str
    arguments: tuple[str, ...]
    may_fail: bool = False
    privileged: bool = False


def read_commands(text: str, *, env: Mapping[str, str], specifiers: Mapping[str, str]) -> list[ExecCommand]:
    """The commands of one line; `;` alone separates several. Raises ImportProblem for one without a counterpart."""
    commands: list[ExecCommand] = []
    words: list[str] = []
    at = _begin(text, 0)
    while at < len(text):
        if (found := _SEPARATOR.match(text, at)) and not found["escape"]:
            if words:
                commands.append(_command(words, env, specifiers))
            words, at = [], found.end()
        elif found:
            words.append(";")
            at = found.end()
        else:
            word, at = _word(text, at, _lenient)
            words.append(word)
        at = _begin(text, at)
    if words:
        commands.append(_command(words, env, specifiers))
    return commands


def split_words(text: str) -> Iterator[str]:
    """The words of an assignment, without their quotes.

    Raises ImportProblem if a quote is not closed or an escape is unknown: systemd would ignore the assignment.
    """
    return _words(text, _strict)


def _words(text: str, unescape: _Unescape, *, open_end: bool = False) -> Iterator[str]:
    at = _begin(text, 0)
    while at < len(text):
        word, at = _word(text, at, unescape, open_end=open_end)
        yield word
        at = _begin(text, at)


def _begin(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _word(text: str, at: int, unescape: _Unescape, *, open_end: bool = False) -> tuple[str, int]:
    """The word that starts there, and where it ends. `open_end`: the end of the text closes a quote."""
    word, quote = bytearray(), ""
    while at < len(text) and (quote or text[at] not in _SPACE):
        char = text[at]
        if char == "\\":
            meant, at = unescape(text, at)
            word += meant
            continue
        at += 1
        if char == quote:
            quote = ""
        elif char in "\"'" and not quote:
            quote = char
        else:
            word += char.encode()
    if quote and not open_end:
        raise ImportProblem(f"a quote is not closed: {text}")
    try:
        return word.decode(), at
    except UnicodeDecodeError:
        raise ImportProblem(f"the bytes of an escape are not UTF-8: {text}") from None


def _known(text: str, at: int) -> tuple[bytes, int] | None:
    """The value of an escape, and where it ends; None for one that systemd does not know."""
    match = _ESCAPE.match(text, at)
    if match is None:
        return None
    if match["char"]:
        return _ESCAPES[match["char"]].encode(), match.end()
    if single := match["octal"] or match["byte"]:
        code = int(single, 8 if match["octal"] else 16)
        return (bytes([code]), match.end()) if code else None
    code = int(match["short"] or match["long"], 16)
    if not 0 < code <= _LAST_CHARACTER:
        return None
    return chr(code).encode(errors="surrogatepass"), match.end()


def _lenient(text: str, at: int) -> tuple[bytes, int]:
    """As in command lines: an unknown escape stays as it is."""
    return _known(text, at) or (text[at : at + 2].encode(), at + 2)


def _strict(text: str, at: int) -> tuple[bytes, int]:
    """As in assignments, which systemd ignores if an escape is unknown."""
    if (known := _known(text, at)) is None:
        raise ImportProblem(f'the escape "{text[at : at + 2]}" is not known: {text}')
    return known


def _plain(text: str, at: int) -> tuple[bytes, int]:
    r"""As in the value of a variable: a `\` removes the special meaning of the next character."""
    return text[at + 1 : at + 2].encode(), at + 2


def expand_specifiers(text: str, specifiers: Mapping[str, str]) -> str:
    """The text with `%n` and other specifiers replaced; raises ImportProblem for one that is unknown here."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in specifiers:
            raise ImportProblem(f"the specifier {match[0]} has no value here: {text}")
        return specifiers[match[1]]

    return re.sub(r"%(.?)", value, text)


def _command(words: list[str], env: Mapping[str, str], specifiers: Mapping[str, str]) -> ExecCommand:
    program = words[0]
    prefix = program[: len(program) - len(program.lstrip("-@:+!|"))]
    program = expand_specifiers(program[len(prefix) :], specifiers)
    rest = words[1:]
    if "|" in prefix:
        raise ImportProblem(f"the prefix | has no counterpart: {words[0]}")
    if "@" in prefix:
        if not rest or rest[0].rpartition("/")[2] != program.rpartition("/")[2]:
            raise ImportProblem(f"the prefix @ gives the program another name: {words[0]}")
        rest = rest[1:]
    if not program or "$" in program:
        raise ImportProblem(f'cannot read the program "{words[0]}"')
    arguments: list[str] = []
    for word in rest:
        expanded = expand_specifiers(word, specifiers)
        arguments += [expanded] if ":" in prefix else _expanded(expanded, env)
    return ExecCommand(
        program=program,
        arguments=tuple(arguments),
        may_fail="-" in prefix,
        privileged="+" in prefix or "!" in prefix,
    )


def _expanded(word: str, env: Mapping[str, str]) -> list[str]:
    """A word `$NAME` becomes the words of its value, split by its quotes; `${NAME}` is the value within a word."""

    def value(name: str) -> str:
        if name not in env:
            raise ImportProblem(f"the variable {name} is not among Environment=: {word}")
        return env[name]

    if match := _WORD_VARIABLE.fullmatch(word):
        return list(_words(value(match["name"]), _plain, open_end=True))
    return [_VARIABLE.sub(lambda m: value(m["braced"]) if m["braced"] else "$", word)]
