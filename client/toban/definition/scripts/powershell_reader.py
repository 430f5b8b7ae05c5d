"""Parses a PowerShell script to find the context of its templates.

A template becomes a reference to an environment variable, which PowerShell expands in double quotes and outside of
quotes, and never parses again. Misreading a script can therefore not turn data into code; the reader finds the
positions where nothing would be expanded, or where PowerShell would see two words. A template in a comment is part of
the comment.
"""

from __future__ import annotations

import re

from toban.definition.expressions.templates import Expression, Fault, scan_expression
from toban.definition.scripts.powershell_text import arguments
from toban.definition.scripts.script import (
    LONGEST_ADVICE,
    Form,
    Script,
    ScriptReader,
    literal_braces,
    remembered,
)

# PowerShell treats typographic quotes as quotes.
_SINGLE = "'\u2018\u2019\u201a\u201b"
_DOUBLE = '"\u201c\u201d\u201e'
_OPENS_WORD = frozenset(" \t\r\n(,;{|&")
_CLOSES_WORD = frozenset(" \t\r\n),;}|")
_TOKEN_START = frozenset(" \t\r\n(){},;|&=")
_HERE_STRING = re.compile(r"@(?P<quote>['\"\u2018-\u201e])[ \t]*\r?\n")
_VERBATIM = re.compile(r"--%(?=\s|\Z)")

_IN_BRACES = "inside ${ … }, where only the name of a variable is allowed: use it elsewhere"
_IN_HERE_STRING = "in a here-string with single quotes, where nothing is expanded: use double quotes"
_IN_VERBATIM = "after --%, where nothing is expanded: remove --%"


@remembered
def read_powershell(text: str) -> Script:
    """Splits a PowerShell script at its templates."""
    reader = _Reader(text)
    script = reader.script(lambda: reader.code(closed=False))
    try:
        arguments(text)
    except ValueError as error:
        return Script(script.parts, script.misplaced, (*script.faults, Fault(str(error), 0)))
    return script


class _Reader(ScriptReader):
    """One pass over a PowerShell script."""

    def code(self, *, closed: bool) -> None:
        """Commands, up to their closing parenthesis."""
        self.deeper()
        open_parentheses = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            at_start = self.at == 0 or self.text[self.at - 1] in _TOKEN_START
            if self.looking_at("{{"):
                self.word()
            elif char == "`":
                self.backtick()
            elif char == "@" and (here := _HERE_STRING.match(self.text, self.at)):
                self.here_string(here)
            elif char in _SINGLE:
                self.single_quotes()
            elif char in _DOUBLE:
                self.double_quotes()
            elif self.looking_at("<#"):
                end = self.text.find("#>", self.at + 2)
                self.at = len(self.text) if end < 0 else end + 2
            elif char == "#" and at_start:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif at_start and _VERBATIM.match(self.text, self.at):
                self.verbatim()
            elif char == "$":
                self.dollar()
            elif char == ")" and closed and not open_parentheses:
                self.at += 1
                break
            else:
                open_parentheses = max(0, open_parentheses + (char == "(") - (char == ")"))
                self.at += 1
        self.depth -= 1

    def word(self) -> None:
        """A template outside of quotes, which must be a separate word."""
        ahead = scan_expression(self.text, self.at)
        why = ""
        if isinstance(ahead, Expression):
            begin = self.at
            while begin and self.text[begin - 1] not in _OPENS_WORD:
                begin -= 1
            end = ahead.end
            while end < len(self.text) and self.text[end] not in _CLOSES_WORD:
                end += 1
            before, after = self.text[begin : self.at], self.text[ahead.end : end]
            # An assignment needs no space; an option such as --out= is not always one word.
            if after or (before and (before[0] == "-" or before[-1] != "=")):
                why = f"next to other text: {_whole_word(self.text[begin:end])}"
        self.template(Form.QUOTED, why)

    def backtick(self) -> None:
        if self.looking_at("{{", 1):
            message = "there is a backtick right before the template: remove it"
            self.faults.append(Fault(message, self.at))
            self.at += 1
        else:
            self.at += 2

    def single_quotes(self) -> None:
        start = self.at
        inside: list[Expression] = []
        self.at += 1
        while self.at < len(self.text):
            if self.looking_at("{{"):
                self.quoted_template(inside)
            elif self.text[self.at] not in _SINGLE:
                self.at += 1
            elif self.text[self.at + 1 : self.at + 2] in tuple(_SINGLE):
                self.at += 2
            else:
                break
        literal = self.text[start + 1 : self.at]
        self.at += 1
        advice = literal_braces(literal, inside)
        if not advice:
            shown = literal if _may_be_shown(literal) else "…"
            advice = f'nothing is expanded there, write "{shown}"'
        message = f"the template is inside single quotes: {advice}"
        self.faults += [Fault(message, expression.start) for expression in inside]

    def double_quotes(self) -> None:
        self.at += 1
        while self.at < len(self.text):
            if self.text[self.at] not in _DOUBLE:
                self.expandable()
            elif self.text[self.at + 1 : self.at + 2] in tuple(_DOUBLE):
                self.at += 2
            else:
                break
        self.at += 1

    def expandable(self) -> None:
        """One token inside double quotes."""
        if self.looking_at("{{"):
            self.template(Form.BARE, "")
        elif self.looking_at("`"):
            self.backtick()
        elif self.looking_at("$("):
            self.at += 2
            self.code(closed=True)
        elif self.looking_at("$"):
            self.dollar()
        else:
            self.at += 1

    def here_string(self, opening: re.Match[str]) -> None:
        """`@" … "@` or `@' … '@`, which end only at the start of a line."""
        single = opening["quote"] in _SINGLE
        quotes = _SINGLE if single else _DOUBLE
        self.at = opening.end()
        while self.at < len(self.text):
            line_start = self.text[self.at - 1] == "\n"
            if line_start and self.text[self.at] in quotes and self.looking_at("@", 1):
                self.at += 2
                return
            if not single:
                self.expandable()
            elif self.looking_at("{{"):
                self.template(Form.BARE, _IN_HERE_STRING)
            else:
                self.at += 1

    def verbatim(self) -> None:
        """`--%`, which passes the rest of the line unchanged."""
        while self.at < len(self.text) and self.text[self.at] not in "\n|":
            if self.looking_at("{{"):
                self.template(Form.QUOTED, _IN_VERBATIM)
            else:
                self.at += 1

    def dollar(self) -> None:
        if self.looking_at("{{", 1):
            message = "there is a dollar sign right before the template: write {{ … }} without it"
            self.faults.append(Fault(message, self.at))
            self.at += 1
        elif self.looking_at("{", 1):
            self.at += 2
            while self.at < len(self.text) and not self.looking_at("}"):
                if self.looking_at("{{"):
                    self.template(Form.BARE, _IN_BRACES)
                else:
                    self.at += 2 if self.looking_at("`") else 1
            self.at += 1
        else:
            self.at += 1


def _whole_word(word: str) -> str:
    shown = word if _may_be_shown(word) else "…{{ … }}…"
    return f'put the whole word in double quotes, "{shown}"'


def _may_be_shown(literal: str) -> bool:
    return len(literal) <= LONGEST_ADVICE and not set(literal) & set(f"{_DOUBLE}{_SINGLE}$`\n")
