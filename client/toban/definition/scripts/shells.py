"""The shells that run `shell` steps: their names, their options, and the `#!` line of a script."""

from __future__ import annotations

import posixpath
import re

DEFAULT_SHELL = "sh"
_SH = "/bin/sh"
_BASH = re.compile(r"bash[0-9.-]*")
_SHEBANG = re.compile(r"\s*#!\s*(?P<program>\S+)(?:[ \t]+(?P<rest>[^\n]*))?")
# Programs that would misread references to variables, or `-c`.
_NO_POSIX_SHELLS = re.compile(
    r"(?:fish|t?csh|nu|elvish|xonsh|pwsh|powershell|cmd|env|busybox|python[0-9.]*|perl|ruby|node|php|lua)(?:\.exe)?"
)
_SHELL_NAMES = re.compile(r"(?:ba|da|a|k|mk|z|pdk|ya)?sh[0-9.-]*")
PATTERN = r"sh|bash|/\S+"


def check_shell(value: str) -> str:
    """A valid `shell`. Raises ValueError."""
    if "{{" in value:
        raise ValueError("a template cannot choose the shell: write sh, bash or a path")
    if not re.fullmatch(PATTERN, value):
        shown = value.split()[0] if value.split() else ""
        if shown in ("sh", "bash") or shown.startswith("/"):
            raise ValueError(f'write {shown} without options, and put "set …" into the script')
        raise ValueError(f'expected sh, bash or an absolute path such as /usr/bin/zsh, found "{value}"')
    name = posixpath.basename(value)
    if _NO_POSIX_SHELLS.fullmatch(name):
        raise ValueError(f'"{name}" is no POSIX shell: use job_type exec, python or powershell')
    return value


def shell_command(shell: str, script: str, args: tuple[str, ...], *, errexit: bool) -> tuple[str, ...]:
    """The words that run a script. `shell` may be empty, for the default."""
    shell = shell or DEFAULT_SHELL
    program = _SH if shell == DEFAULT_SHELL else shell
    name = posixpath.basename(shell)
    options: tuple[str, ...] = ()
    if errexit:
        options = ("-e", "-o", "pipefail") if is_bash(shell) else ("-e",)
    return (program, *options, "-c", script, name, *args)


def is_bash(shell: str) -> bool:
    return _BASH.fullmatch(posixpath.basename(shell)) is not None


def wrong_interpreter(script: str, shell: str) -> str:
    """Why the `#!` line of a script does not fit its shell; empty if it does, or if there is none."""
    found = _SHEBANG.match(script)
    if found is None:
        return ""
    program, rest = found["program"], (found["rest"] or "").split()
    if posixpath.basename(program) == "env":
        rest = [word for word in rest if not word.startswith("-") and "=" not in word]
        program = rest[0] if rest else program
    wanted = posixpath.basename(program)
    actual = posixpath.basename(shell or DEFAULT_SHELL)
    if wanted == actual:
        return ""
    line = found[0].strip()
    if not _SHELL_NAMES.fullmatch(wanted):
        advice = "save the script as a file and run that, or use another job_type"
    elif wanted in ("sh", "bash"):
        advice = f'write "shell: {wanted}", or remove the line'
    else:
        path = program if program.startswith("/") else f"/usr/bin/{wanted}"
        advice = f'write "shell: {path}", or remove the line'
    return f"the script starts with {line}, but the step runs it with {shell or DEFAULT_SHELL}: {advice}"
