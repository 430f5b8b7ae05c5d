"""Parses a POSIX shell script to find the context of its templates.

Quotes, comments, here-documents, command substitution and arithmetic determine the replacement of a template. Where no
form is right, or where shells disagree, the template is a fault that says what to write instead. A template in a
comment is part of the comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from toban.definition.expressions.templates import Expression, Fault
from toban.definition.scripts import shell_text as texts
from toban.definition.scripts.script import Form, Script, ScriptReader, UnreadableError, remembered

_KEYWORD = re.compile(r"(case(?!\s*[|)])|esac|if|then|else|elif|do|while|until|!|\{|\[\[)(?=[\s;&|()<>]|\Z)")
_IN = re.compile(r"in(?=[\s;&|()<>]|\Z)")
_REDIRECTION = re.compile(r"<<<|>>|[<>][&>|]?")
_ORDINARY = re.compile(r"[^\s\\'\"`$#(){};&|<>]+")
_OLD_ARITHMETIC = re.compile(r"\$\[[^]\n\"]*\{\{")
_DELIMITER_END = frozenset(" \t\n;&|()<>")
_SPECIAL_PARAMETERS = frozenset("#?@*!-$0123456789")


def read_script(text: str) -> Script:
    """Splits a shell script at its templates."""
    if "{{" not in text:
        return Script((text,), (), ())
    return _read(text)


@remembered
def _read(text: str) -> Script:
    reader = _Reader(text)
    return reader.script(_Commands(reader, closed=False, why="").read)


@dataclass(frozen=True, slots=True)
class _HereDocument:
    delimiter: str
    strip_tabs: bool
    quoted: bool


class _Reader(ScriptReader):
    """One pass over a shell script."""

    def backslash(self) -> None:
        if self.looking_at("{{", 1):
            message = "there is a backslash right before the template: remove it, or write '\\\\'"
            self.faults.append(Fault(message, self.at))
            self.at += 1
        else:
            self.at += 2

    def single_quotes(self) -> None:
        start = self.at
        self.at += 1
        inside: list[Expression] = []
        while self.at < len(self.text) and not self.looking_at("'"):
            if self.looking_at("{{"):
                self.quoted_template(inside)
            else:
                self.at += 1
        self.at += 1
        self.faults += texts.quoted_by_hand(self.text, start, self.at, inside)

    def double_quotes(self, why: str) -> None:
        start = self.at
        self.at += 1
        inside: list[Expression] = []
        while self.at < len(self.text) and not self.looking_at('"'):
            if self.looking_at("{{"):
                self.quoted_template(inside)
            elif self.looking_at("\\"):
                self.at += 1 if self.looking_at("{{", 1) else 2
            else:
                self.expansion_or_character(why)
        self.at += 1
        self.faults += texts.quoted_by_hand(self.text, start, self.at, inside)

    def expansion_or_character(self, why: str) -> None:
        """One expansion or character inside double quotes, here-documents or arithmetic."""
        if self.looking_at("$"):
            self.dollar(why, quoted=True)
        elif self.looking_at("`"):
            self.opaque("`", texts.IN_BACKQUOTES)
        else:
            self.at += 1

    def opaque(self, closer: str, why: str) -> None:
        """Text whose contents do not matter, since no template is allowed in it."""
        self.at += 1
        while self.at < len(self.text) and not self.looking_at(closer):
            if self.looking_at("{{"):
                self.template(Form.QUOTED, why)
            else:
                self.at += 2 if self.looking_at("\\") and closer != "'" else 1
        self.at += 1

    def dollar(self, why: str, *, quoted: bool) -> None:
        """Any expansion that starts with a dollar sign."""
        self.deeper()
        after = self.text[self.at + 1 : self.at + 2]
        if self.looking_at("{{", 1):
            message = "there is a dollar sign right before the template: write {{ … }} without it"
            self.faults.append(Fault(f"{message}, or \\$ for a real dollar sign", self.at))
            self.at += 1
        elif self.looking_at("((", 1):
            self.arithmetic(why)
        elif after == "(":
            self.at += 2
            _Commands(self, closed=True, why=why).read()
        elif after == "{":
            self.parameter(quoted)
        elif _OLD_ARITHMETIC.match(self.text, self.at):
            self.at += 1
            self.opaque("]", texts.IN_BRACKETS)
        elif after == "'" and not quoted:
            self.dollar_quotes()
        else:
            self.at += 2 if after in _SPECIAL_PARAMETERS else 1
        self.depth -= 1

    def dollar_quotes(self) -> None:
        end = self.text.find("'", self.at + 2)
        if end > 0 and self.text[end - 1] == "\\":
            message = "$'…\\'…' means different things to different shells: write it otherwise"
            raise UnreadableError(message, self.at)
        self.at += 1
        self.single_quotes()

    def parameter(self, quoted: bool) -> None:
        """`${ … }`; its own quotes and expansions only matter for finding the end."""
        self.at += 2
        while self.at < len(self.text) and not self.looking_at("}"):
            if self.looking_at("{{"):
                self.template(Form.QUOTED, texts.IN_BRACES)
            elif self.looking_at("\\"):
                self.at += 2
            elif self.looking_at("'") and not quoted:
                self.opaque("'", texts.IN_BRACES)
            elif self.looking_at('"'):
                self.double_quotes(texts.IN_BRACES)
            elif self.looking_at("$"):
                self.dollar(texts.IN_BRACES, quoted=quoted)
            else:
                self.expansion_or_character(texts.IN_BRACES)
        self.at += 1

    def arithmetic(self, why: str) -> None:
        start = self.at
        self.at += 3
        depth = 0
        while self.at < len(self.text):
            if self.looking_at("{{"):
                self.template(Form.NUMBER, why)
            elif self.looking_at("\\"):
                self.at += 2
            elif self.looking_at(")") and depth == 0:
                if not self.looking_at("))"):
                    break
                self.at += 2
                return
            else:
                depth += self.looking_at("(") - self.looking_at(")")
                self.expansion_or_character(why)
        message = "$(( is not closed by )): for a subshell in a substitution write $( ("
        raise UnreadableError(message, start)

    def here_document_operator(self) -> _HereDocument:
        """`<<WORD`; leaves the position after the word."""
        self.at += 2
        strip_tabs = self.looking_at("-")
        self.at += strip_tabs
        while self.looking_at(" ") or self.looking_at("\t"):
            self.at += 1
        word: list[str] = []
        quoted = False
        while self.at < len(self.text) and self.text[self.at] not in _DELIMITER_END:
            char = self.text[self.at]
            if self.looking_at("{{"):
                self.template(Form.QUOTED, texts.IN_DELIMITER)
            elif char == "\\":
                quoted = True
                word.append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char in "'\"":
                quoted = True
                end = self.text.find(char, self.at + 1)
                end = len(self.text) if end < 0 else end
                word.append(self.text[self.at + 1 : end])
                self.at = end + 1
            else:
                word.append(char)
                self.at += 1
        return _HereDocument("".join(word), strip_tabs, quoted)

    def here_document_body(self, document: _HereDocument, why: str) -> None:
        """From the start of its first line to after its delimiter."""
        if document.quoted:
            why = texts.quoted_delimiter(document.delimiter)
        line_start = True
        while self.at < len(self.text):
            if line_start and self.ends_here(document):
                return
            line_start = self.looking_at("\n")
            if self.looking_at("{{"):
                self.template(Form.BARE, why)
            elif document.quoted:
                self.at += 1
            elif self.looking_at("\\"):
                self.backslash()
            else:
                self.expansion_or_character(why)

    def ends_here(self, document: _HereDocument) -> bool:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line = self.text[self.at : end]
        if (line.lstrip("\t") if document.strip_tabs else line) != document.delimiter:
            return False
        self.at = min(end + 1, len(self.text))
        return True


class _Commands:
    """The words and operators of one list of commands, up to its end."""

    def __init__(
        self,
        reader: _Reader,
        *,
        closed: bool,
        why: str,
        pending: list[_HereDocument] | None = None,
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

    def read(self) -> None:
        reader = self.reader
        text = reader.text
        while reader.at < len(text):
            char = text[reader.at]
            if char == "\n":
                reader.at += 1
                self.next_word(command=True)
                for document in self.pending:
                    reader.here_document_body(document, self.why)
                self.pending.clear()
            elif char in " \t":
                reader.at += 1
                self.word = False
            elif reader.looking_at("\\\n"):
                reader.at += 2
            elif char == "#" and not self.word:
                end = text.find("\n", reader.at)
                reader.at = len(text) if end < 0 else end
            elif char in ";&|":
                reader.at += 1
                self.next_word(command=True)
            elif char == "(":
                self.subshell()
            elif char == ")":
                reader.at += 1
                self.next_word(command=True)
                if self.closed and not self.cases:
                    break
            elif char in "<>":
                self.redirection()
            else:
                self.part_of_a_word(char)
        if self.pending and self.closed and not self.shares_line:
            message = "a here-document must be complete before the ) that follows it"
            raise UnreadableError(message, reader.at - 1)

    def next_word(self, *, command: bool) -> None:
        self.command, self.word = command, False

    def subshell(self) -> None:
        reader = self.reader
        if reader.looking_at("(("):
            raise UnreadableError(texts.DOUBLE_PARENS, reader.at)
        reader.at += 1
        reader.deeper()
        _Commands(reader, closed=True, why=self.why, pending=self.pending).read()
        reader.depth -= 1
        self.next_word(command=True)

    def redirection(self) -> None:
        reader = self.reader
        if reader.looking_at("<<") and not reader.looking_at("<<<"):
            self.pending.append(reader.here_document_operator())
        elif match := _REDIRECTION.match(reader.text, reader.at):
            reader.at = match.end()
        self.next_word(command=False)

    def part_of_a_word(self, char: str) -> None:
        reader = self.reader
        if not self.word and self.reserved_word():
            return
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
        reader.at = keyword.end()
        word = keyword[1]
        self.cases = max(0, self.cases + (word == "case") - (word == "esac"))
        self.awaiting_in = word == "case"
        self.in_test = word == "[["
        self.next_word(command=word not in ("case", "esac", "[["))
        return True
