"""Parses the parts of a shell script below its commands: quotes, expansions, arithmetic and here-documents."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass

from toban.definition.expressions.templates import Expression, Fault
from toban.definition.scripts import shell_text as texts
from toban.definition.scripts.script import Form, ScriptReader, UnreadableError

_OLD_ARITHMETIC = re.compile(r"\$\[[^]\n\"]*\{\{")
_DELIMITER_END = frozenset(" \t\n;&|()<>")
_SPECIAL_PARAMETERS = frozenset("#?@*!-$0123456789")
_POSITIONAL = re.compile(r"\$(?:[1-9@*#]|\{[#!]?[1-9@*]|\{#\})")


@dataclass(frozen=True, slots=True)
class HereDocument:
    """The operator of a here-document."""

    delimiter: str
    strip_tabs: bool
    quoted: bool


class ExpansionReader(ScriptReader):
    """Reads quotes and expansions, and notes where commands are nested and whether `$1`, `$2`, … are used."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nested: list[tuple[int, int]] = []
        self.positional = False

    @abstractmethod
    def substitution(self, why: str) -> None:
        """Reads the commands of `$( … )`, up to its end."""

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
        start = self.at
        self.at += 1
        while self.at < len(self.text) and not self.looking_at(closer):
            if self.looking_at("{{"):
                self.template(Form.QUOTED, why)
            else:
                self.at += 2 if self.looking_at("\\") and closer != "'" else 1
        self.at += 1
        if closer == "`":
            self.positional = self.positional or _POSITIONAL.search(self.text, start, self.at) is not None

    def dollar(self, why: str, *, quoted: bool) -> None:
        """Any expansion that starts with a dollar sign."""
        self.deeper()
        start = self.at
        self.positional = self.positional or _POSITIONAL.match(self.text, start) is not None
        after = self.text[self.at + 1 : self.at + 2]
        if self.looking_at("{{", 1):
            message = "there is a dollar sign right before the template: write {{ … }} without it"
            self.faults.append(Fault(f"{message}, or \\$ for a real dollar sign", self.at))
            self.at += 1
        elif self.looking_at("((", 1):
            self.arithmetic(why)
        elif after == "(":
            self.at += 2
            self.substitution(why)
            self.nested.append((start, self.at))
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

    def here_document_operator(self) -> HereDocument:
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
        return HereDocument("".join(word), strip_tabs, quoted)

    def here_document_body(self, document: HereDocument, why: str) -> None:
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

    def ends_here(self, document: HereDocument) -> bool:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line = self.text[self.at : end]
        if (line.lstrip("\t") if document.strip_tabs else line) != document.delimiter:
            return False
        self.at = min(end + 1, len(self.text))
        return True
