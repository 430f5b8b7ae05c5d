"""PowerShell scripts with templates: what stands in for a value, and how a script is handed over."""

from __future__ import annotations

import re

from toban.definition.scripts.script import Form

# The name on Windows; elsewhere the daemon puts the path of pwsh in its place.
PROGRAM = "powershell.exe"
# One argument holds the whole script. -EncodedCommand would save the quoting, but Windows PowerShell
# then writes errors as XML to a stderr that is no terminal.
OPTIONS = ("-NoLogo", "-NoProfile", "-NonInteractive", "-Command")
# What a command line of Windows takes, less the program and its options.
MAX_LENGTH = 32_000
# By itself PowerShell makes 1 of every failure. As in a shell, the last command decides. The empty
# line ends a last line that a backtick would continue.
_EXIT = (
    "\n\nif ($?) { exit 0 } "
    "elseif ((Test-Path Variable:LASTEXITCODE) -and $LASTEXITCODE) { exit $LASTEXITCODE } "
    "else { exit 1 }"
)
_PLAIN = re.compile(r"[\w./:\\=+]+")
_ESCAPED = re.compile(r'["\\]')


def reference(form: Form, name: str, _value: str) -> str:
    """How the script refers to the variable `name`, whatever it holds."""
    return f"${{env:{name}}}" if form is Form.BARE else f'"${{env:{name}}}"'


def arguments(script: str) -> tuple[str, ...]:
    """The program and its arguments for a script; raises ValueError for one that is too long."""
    text = script.strip() + _EXIT
    length = len(text) + len(_ESCAPED.findall(text))
    if length > MAX_LENGTH:
        raise ValueError(f"the script has {length:,} characters, at most {MAX_LENGTH:,} are allowed: use a script file")
    return (PROGRAM, *OPTIONS, text)


def quote(value: str) -> str:
    """A value as PowerShell's own text, for people to read."""
    return value if _PLAIN.fullmatch(value) else "'" + value.replace("'", "''") + "'"
