"""Command lines of cmd.exe with templates.

cmd replaces `%NAME%` before it parses the line, so a reference alone does not separate data from code. Values with
characters that are special to cmd are therefore refused, and so are positions where even a harmless word could change
the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toban.definition.expressions.templates import Expression, Fault, scan_expression
from toban.definition.scripts.script import Form, Script, ScriptReader, UnreadableError, remembered

# The part of a line that cmd reads, after its variables are replaced.
MAX_LINE = 8191

_CODE = re.compile(r'[%!"^&|<>]')
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PARENTHESIS = re.compile(r"[()]")
_REFERENCE = re.compile(r"%(TOBAN_V[0-9]+)%")
_CONDITIONAL = re.compile(r"(?:if|for)(?![\w.\\:$#-])", re.IGNORECASE)
# Arguments with the same meaning with and without quotes.
_PLAIN_ARGUMENT = re.compile(r"[\w./:\\@+-]+")

_ONE_LINE = "cmd reads one line only: join commands with & or &&, or call a script file"
_COMMAND = "where a command begins: write the command, or put the template in double quotes"
_IN_CONDITIONAL = "in an if or for command, where a value could change what runs: put it in double quotes"
_BEFORE_REDIRECTION = "right before a redirection, which would take a digit from the value: add a space"


@remembered
def read_cmd(text: str) -> Script:
    """Splits a command line of cmd at its templates."""
    reader = _Reader(text)
    script = reader.script(reader.line)
    if len(text) > MAX_LINE:
        fault = Fault(f"the line has {len(text):,} characters: cmd reads at most {MAX_LINE:,}", 0)
        return Script(script.parts, script.misplaced, (*script.faults, fault))
    return script


class _Reader(ScriptReader):
    """One pass over a line: quotes, carets, and the starts of commands."""

    def line(self) -> None:
        quoted = False
        conditional = False
        command = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.looking_at("{{"):
                self.take(quoted=quoted, command=command, conditional=conditional)
                command = False
            elif char in "\r\n":
                if self.text[: self.at].strip() and self.text[self.at :].strip():
                    raise UnreadableError(_ONE_LINE, self.at)
                self.at += 1
            elif char == '"':
                quoted = not quoted
                command = False
                self.at += 1
            elif quoted:
                self.at += 1
            elif char == "^":
                self.caret()
                command = False
            elif char in "&|(":
                command = True
                self.at += 1
            elif char in " \t,;=@":
                self.at += 1
            elif command and (keyword := _CONDITIONAL.match(self.text, self.at)):
                conditional = True
                command = False
                self.at = keyword.end()
            else:
                command = False
                self.at += 1

    def take(self, *, quoted: bool, command: bool, conditional: bool) -> None:
        if quoted:
            self.template(Form.BARE, "")
            return
        why = _COMMAND if command else _IN_CONDITIONAL if conditional else ""
        ahead = scan_expression(self.text, self.at)
        if isinstance(ahead, Expression) and self.text[ahead.end : ahead.end + 1] in ("<", ">"):
            why = why or _BEFORE_REDIRECTION
        self.template(Form.OPEN, why)

    def caret(self) -> None:
        if self.looking_at("{{", 1):
            self.faults.append(Fault("there is a caret right before the template: remove it", self.at))
            self.at += 1
        else:
            self.at += 2


def reference(form: Form, name: str, value: str) -> str:
    """The line's reference to the variable `name`; raises ValueError if cmd could interpret its value."""
    check_text(value)
    if form is Form.OPEN and (found := _PARENTHESIS.search(value)):
        raise ValueError(
            f"the value contains {found[0]}, which may close a block of cmd: put the template in double quotes"
        )
    # cmd does not replace the reference to a variable without a value.
    return f"%{name}%" if value else ""


def check_text(value: str) -> None:
    """Raises ValueError for a value that cmd could interpret, quoted or not."""
    if found := _CODE.search(value):
        what = found[0]
    elif found := _CONTROL.search(value):
        what = "a line break" if found[0] in "\r\n" else "a control character"
    else:
        return
    raise ValueError(
        f"the value contains {what}, which cmd would act on: use job_type powershell or exec, which take any value"
    )


def quote_argument(value: str) -> str:
    """A value as one argument of the line; raises ValueError if cmd could interpret it."""
    check_text(value)
    if _PLAIN_ARGUMENT.fullmatch(value):
        return value
    # Programs treat backslashes before a quote as escapes, unless they are doubled.
    doubled = value[len(value.rstrip("\\")) :]
    return f'"{value}{doubled}"'


def check_line(line: str, env: Mapping[str, str]) -> None:
    """Raises ValueError if cmd would not read the whole line, once its variables are replaced."""
    if "\n" in line or "\r" in line:
        raise ValueError(_ONE_LINE)
    size = len(_REFERENCE.sub(lambda found: env.get(found[1], found[0]), line).encode("utf-16-le"))
    if size // 2 > MAX_LINE:
        raise ValueError(f"the line has {size // 2:,} characters: cmd reads at most {MAX_LINE:,}")
