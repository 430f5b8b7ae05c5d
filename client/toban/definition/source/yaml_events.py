"""Parses YAML text to events with ruamel's own reader, scanner and parser, combined directly.

`YAML().parse()` does the same at twice the cost: it goes through two property look-ups per token and checks for simple
keys that cannot exist. The subclasses here do that faster and change nothing else; a test compares their events with
ruamel's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ruamel.yaml.docinfo import DocInfo
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.parser import Parser
from ruamel.yaml.reader import Reader, ReaderError
from ruamel.yaml.scanner import Scanner

YAML_VERSION = (1, 2)


class YamlSyntaxError(Exception):
    """The text is not YAML from here on; line and column count from 0."""

    def __init__(self, message: str, line: int, column: int) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(message)


class _Loader:
    """The settings object that ruamel's parts expect."""

    comment_handling = None
    processing_version = YAML_VERSION

    def __init__(self) -> None:
        self.doc_infos = [DocInfo()]


class _Reader(Reader):
    def forward(self, length: int = 1) -> None:
        start = self.pointer
        end = start + length
        passed = self.buffer[start:end]
        if "\n" in passed or "\r" in passed or "\ufeff" in passed:
            super().forward(length)
            return
        self.pointer = end
        self.index += length
        self.column += length


class _Scanner(Scanner):
    reader: Any = None
    scanner_processing_version = YAML_VERSION

    def __init__(self, loader: _Loader, reader: _Reader) -> None:
        self.reader = reader
        super().__init__(loader)

    def need_more_tokens(self) -> bool:
        if self.done:
            return False
        if not self.tokens:
            return True
        if not self.possible_simple_keys:
            return False
        self.stale_possible_simple_keys()
        return bool(self.next_possible_simple_key() == self.tokens_taken)

    def check_token(self, *choices: Any) -> bool:
        while self.need_more_tokens():
            self.fetch_more_tokens()
        return bool(self.tokens) and (not choices or isinstance(self.tokens[0], choices))


class _Parser(Parser):
    scanner: Any = None
    resolver = _Loader

    def __init__(self, loader: _Loader, scanner: _Scanner) -> None:
        self.scanner = scanner
        super().__init__(loader)


def events(text: str) -> Iterator[Any]:
    """The events of all documents in order; raises YamlSyntaxError at the first syntax error."""
    loader = _Loader()
    reader: _Reader | None = None
    try:
        reader = _Reader(text, loader=loader)
        parser = _Parser(loader, _Scanner(loader, reader))
        while parser.check_event():
            yield parser.get_event()
    except ReaderError as error:
        line, column = line_and_column(text, error.position)
        message = f"found the character U+{error.character:04X}, which YAML does not allow"
        raise YamlSyntaxError(message, line, column) from None
    except MarkedYAMLError as error:
        raise _syntax_problem(text, error) from None
    except YAMLError as error:
        raise YamlSyntaxError(f"not valid YAML: {error}", 0, 0) from None
    except (ValueError, OverflowError):
        # The scanner itself fails on an escape beyond Unicode and on a version of thousands of digits.
        message = "not valid YAML: found an escape or a version that is out of range"
        line, column = (reader.line, reader.column) if reader is not None else (0, 0)
        raise YamlSyntaxError(message, line, column) from None


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """Both from 0."""
    before = text[:index]
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)


def _syntax_problem(text: str, error: Any) -> YamlSyntaxError:
    mark = error.problem_mark or error.context_mark
    message = str(error.problem or error.context or "syntax error").strip()
    if error.context and error.problem:
        message = f"{message} {str(error.context).strip()}"
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    message = f"not valid YAML: {message}"
    lines = text.split("\n")
    shown = lines[line] if line < len(lines) else ""
    if "\\t" in message and "\t" in shown:
        message += "; indent with spaces, not tabs"
    elif "{{" in shown:
        message += "; a value that starts with {{ must be in quotes"
    return YamlSyntaxError(message, line, column)
