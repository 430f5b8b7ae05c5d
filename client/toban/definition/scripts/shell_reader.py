"""Parses a POSIX shell script to find the context of its templates, and its simple commands.

Quotes, comments, here-documents, command substitution and arithmetic determine the replacement of a template. Where no
form is right, or where shells disagree, the template is a fault that says what to write instead. A template in a
comment is part of the comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from toban.definition.scripts import shell_text as texts
from toban.definition.scripts.script import Form, Script, UnreadableError, remembered
from toban.definition.scripts.shell_expansions import ExpansionReader, HereDocument

_KEYWORD = re.compile(r"(case(?!\s*[|)])|esac|if|then|else|elif|do|while|until|!|\{|\[\[)(?=[\s;&|()<>]|\Z)")
_IN = re.compile(r"in(?=[\s;&|()<>]|\Z)")
_REDIRECTION = re.compile(r"<<<|>>|[<>][&>|]?")
_ORDINARY = re.compile(r"[^\s\\'\"`$#(){};&|<>]+")


def read_script(text: str) -> Script:
    """Splits a shell script at its templates."""
    if "{{" not in text:
        return Script((text,), (), ())
    return _read(text)


@remembered
def _read(text: str) -> Script:
    reader = _Reader(text)
    return reader.script(_Commands(reader, closed=False, why="").read)


@dataclass(slots=True)
class SimpleCommand:
    """One command: the spans of its words without redirections, and the end of its last word or redirection."""

    words: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOutline:
    """The simple commands of a script, those of substitutions included.

    `single`: the script is one simple command. `positional`: it uses `$1`,
    `$@` or the like. `complete`: it could be read to its end.
    """

    text: str
    commands: tuple[SimpleCommand, ...]
    single: bool
    positional: bool
    complete: bool


def outline(text: str) -> ShellOutline:
    """The commands of a script, with or without templates."""
    reader = _Reader(text)
    complete = True

    def read() -> None:
        nonlocal complete
        try:
            _Commands(reader, closed=False, why="").read()
        except UnreadableError:
            complete = False
            raise

    reader.script(read)
    commands = tuple(command for command in reader.commands if command.words)
    top = [each for each in commands if not any(a <= each.words[0][0] < b for a, b in reader.nested)]
    return ShellOutline(
        text=text,
        commands=commands,
        single=complete and len(top) == 1 and not reader.compound,
        positional=reader.positional,
        complete=complete,
    )


class _Reader(ExpansionReader):
    """One pass over a shell script."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.commands: list[SimpleCommand] = []
        self.compound = False
        """Whether there is more than one simple command: an operator or a reserved word."""

    def substitution(self, why: str) -> None:
        compound = self.compound
        _Commands(self, closed=True, why=why).read()
        self.compound = compound


class _Commands:
    """The words and operators of one list of commands, up to its end."""

    def __init__(
        self,
        reader: _Reader,
        *,
        closed: bool,
        why: str,
        pending: list[HereDocument] | None = None,
    ) -> None:
        """`pending` are the here-documents of the same line that a subshell shares."""
        self.reader = reader
        self.closed = closed
        self.why = why
        self.shares_line = pending is not None
        self.pending = [] if pending is None else pending
        self.cases = 0  # open `case`s, whose patterns end in a parenthesis of their own
        self.awaiting_in = False
        self.in_test = False
        self.command = True  # a command may start here, so reserved words count
        self.word = False  # inside a word, where # is no comment
        self.word_start = 0
        self.target = False  # the next word belongs to a redirection
        self.simple = SimpleCommand()

    def read(self) -> None:
        reader = self.reader
        text = reader.text
        while reader.at < len(text):
            char = text[reader.at]
            if char == "\n":
                self.end_command()
                reader.at += 1
                self.next_word(command=True)
                for document in self.pending:
                    reader.here_document_body(document, self.why)
                self.pending.clear()
            elif char in " \t":
                self.end_word()
                reader.at += 1
            elif reader.looking_at("\\\n"):
                reader.at += 2
            elif char == "#" and not self.word:
                end = text.find("\n", reader.at)
                reader.at = len(text) if end < 0 else end
            elif char in ";&|":
                self.end_command()
                reader.compound = True
                reader.at += 1
                self.next_word(command=True)
            elif char == "(":
                self.subshell()
            elif char == ")":
                self.end_command()
                reader.at += 1
                self.next_word(command=True)
                if self.closed and not self.cases:
                    break
            elif char in "<>":
                self.redirection()
            else:
                self.part_of_a_word(char)
        self.end_command()
        if self.pending and self.closed and not self.shares_line:
            message = "a here-document must be complete before the ) that follows it"
            raise UnreadableError(message, reader.at - 1)

    def next_word(self, *, command: bool) -> None:
        self.command, self.word = command, False

    def end_word(self) -> None:
        """Notes the word before the current position, if there is one."""
        if not self.word:
            return
        self.word = False
        if self.target:
            self.target = False
        else:
            self.simple.words.append((self.word_start, min(self.reader.at, len(self.reader.text))))
        self.simple.end = self.reader.at

    def end_command(self) -> None:
        self.end_word()
        self.target = False
        if self.simple.words:
            self.reader.commands.append(self.simple)
            self.simple = SimpleCommand()

    def subshell(self) -> None:
        reader = self.reader
        if reader.looking_at("(("):
            raise UnreadableError(texts.DOUBLE_PARENS, reader.at)
        self.end_command()
        reader.compound = True
        reader.at += 1
        reader.deeper()
        _Commands(reader, closed=True, why=self.why, pending=self.pending).read()
        reader.depth -= 1
        self.next_word(command=True)

    def redirection(self) -> None:
        reader = self.reader
        if self.word and reader.text[self.word_start : reader.at].isdigit():
            self.word = False  # the number of a file
        self.end_word()
        if reader.looking_at("<<") and not reader.looking_at("<<<"):
            self.pending.append(reader.here_document_operator())
            self.simple.end = reader.at
        elif match := _REDIRECTION.match(reader.text, reader.at):
            reader.at = match.end()
            self.target = True
        self.next_word(command=False)

    def part_of_a_word(self, char: str) -> None:
        reader = self.reader
        if not self.word and self.reserved_word():
            return
        if not self.word:
            self.word_start = reader.at
        self.command, self.word = False, True
        if reader.looking_at("{{"):
            reader.template(Form.QUOTED, self.why or (texts.IN_TEST if self.in_test else ""))
        elif char == "\\":
            reader.backslash()
        elif char == "'":
            reader.single_quotes()
        elif char == '"':
            reader.double_quotes(self.why)
        elif char == "`":
            reader.opaque("`", texts.IN_BACKQUOTES)
        elif char == "$":
            reader.dollar(self.why, quoted=False)
        elif match := _ORDINARY.match(reader.text, reader.at):
            reader.at = match.end()
        else:
            reader.at += 1

    def reserved_word(self) -> bool:
        """Takes a reserved word, if there is one here and it counts."""
        reader = self.reader
        if self.awaiting_in and (found := _IN.match(reader.text, reader.at)):
            reader.at = found.end()
            self.awaiting_in = False
            self.next_word(command=True)
            return True
        if self.in_test and reader.looking_at("]]"):
            self.in_test = False
        keyword = _KEYWORD.match(reader.text, reader.at) if self.command else None
        if keyword is None:
            return False
        self.end_command()
        reader.compound = True
        reader.at = keyword.end()
        word = keyword[1]
        self.cases = max(0, self.cases + (word == "case") - (word == "esac"))
        self.awaiting_in = word == "case"
        self.in_test = word == "[["
        self.next_word(command=word not in ("case", "esac", "[["))
        return True
