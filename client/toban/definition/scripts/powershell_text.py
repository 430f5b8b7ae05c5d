"""PowerShell scripts with templates: references to values, and the command that runs a script."""

from __future__ import annotations

import re

from toban.definition.scripts.script import Form

# The name on Windows; elsewhere the daemon replaces it with the path of pwsh.
PROGRAM = "powershell.exe"
# The whole script is one argument. -EncodedCommand would avoid the quoting, but Windows PowerShell then writes errors
# as XML to a stderr that is no terminal.
OPTIONS = ("-NoLogo", "-NoProfile", "-NonInteractive", "-Command")
# The maximum length of a command line of Windows, less the program and its options.
MAX_LENGTH = 32_000
# On its own, PowerShell exits with 1 for every failure; here, as in a shell, the last command decides. The empty line
# ends a last line that a backtick would continue.
_EXIT = (
    "\n\nif ($?) { exit 0 } "
    "elseif ((Test-Path Variable:LASTEXITCODE) -and $LASTEXITCODE) { exit $LASTEXITCODE } "
    "else { exit 1 }"
)
_PLAIN = re.compile(r"[\w./:\\=+]+")
_ESCAPED = re.compile(r'["\\]')


def reference(form: Form, name: str, _value: str) -> str:
    """The script's reference to the variable `name`, safe for any value."""
    return f"${{env:{name}}}" if form is Form.BARE else f'"${{env:{name}}}"'


def arguments(script: str) -> tuple[str, ...]:
    """The program and its arguments for a script; raises ValueError for a script that is too long."""
    text = script.strip() + _EXIT
    length = len(text) + len(_ESCAPED.findall(text))
    if length > MAX_LENGTH:
        raise ValueError(f"the script has {length:,} characters, at most {MAX_LENGTH:,} are allowed: use a script file")
    return (PROGRAM, *OPTIONS, text)


def quote(value: str) -> str:
    """A value as a PowerShell literal, for people to read."""
    return value if _PLAIN.fullmatch(value) else "'" + value.replace("'", "''") + "'"
