"""Creates workflows from the entries of a crontab."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition import format_duration
from toban.definition.timing.cron import parse_cron
from toban.definition.timing.zones import check_zone
from toban.importers.crontab import Line, read_crontab
from toban.importers.crontab_times import REBOOT, cron_times
from toban.importers.import_model import (
    Imported,
    ImportedNames,
    ImportProblem,
    RefusedEntry,
    WorkflowDraft,
    literal,
    valid_name,
)

# Variables that cron itself reads, and those that a crontab cannot change.
_FOR_CRON = frozenset(
    {
        "SHELL",
        "CRON_TZ",
        "MAILTO",
        "MAILFROM",
        "RANDOM_DELAY",
        "CONTENT_TYPE",
        "CONTENT_TRANSFER_ENCODING",
        "LOGNAME",
        "USER",
    }
)
_STEP_SHELLS = ("/bin/sh", "/usr/bin/sh")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
# Words before the actual command.
_WRAPPERS = frozenset(
    {
        "nice",
        "ionice",
        "nohup",
        "sudo",
        "exec",
        "env",
        "time",
        "timeout",
        "flock",
        "chronic",
        "setsid",
        "command",
        "sh",
        "bash",
        "dash",
        "python",
        "python3",
        "perl",
        "ruby",
        "php",
        "node",
    }
)
_GUARDS = frozenset({"cd", "test", "[", "[[", "sleep", "umask", "set", "export", ".", "source"})


def import_crontab(
    text: str,
    *,
    file: str,
    system: bool,
    zone: str,
    home: Callable[[str], str],
    owner: str = "",
) -> Imported:
    """The workflows of a crontab.

    `zone` is the machine's time zone. `home` returns the home directory of a user, that of the importing user for '',
    and '' for an unknown user. `owner` is the user of a crontab without users.
    """
    lines, refused = read_crontab(text, file=file, system=system)
    drafts: list[WorkflowDraft] = []
    names = ImportedNames()
    for line in lines:
        where = f"{file}:{line.number}"
        name = names.free(command_name(line.command))
        try:
            drafts.append(_draft(line, name, where, zone, line.user or owner, home))
            names.take(name)
        except ImportProblem as problem:
            refused.append(RefusedEntry(where=where, reason=str(problem)))
    refused.sort(key=lambda each: int(each.where.rpartition(":")[2]))
    return Imported(drafts=tuple(drafts), refused=tuple(refused))


def looks_like_system(text: str, known: Callable[[str], bool]) -> bool:
    """Whether all commands would begin with a user name, followed by more text."""
    lines, _ = read_crontab(text, file="", system=False)
    first = [line.command.split(maxsplit=1) for line in lines]
    return bool(first) and all(len(words) == 2 and known(words[0]) for words in first)


def command_name(command: str) -> str:
    """A workflow name for a command: the name of its program or script."""
    for part in re.split(r"&&|\|\||[;|\n]", command):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            words = part.split()
        words = [word for word in words if word not in ("(", "{", "!")]
        if not words or posixpath.basename(words[0].lstrip("(")) in _GUARDS:
            continue
        for word in words:
            base = posixpath.basename(word.lstrip("(").rstrip(")"))
            if base in _WRAPPERS or base.startswith("-") or _ASSIGNMENT.fullmatch(word):
                continue
            if base[:1].isdigit():  # of `nice 10`, `timeout 5m`
                continue
            name = valid_name(os.path.splitext(base)[0], otherwise="")
            if name:
                return name
    return "cron-job"


def _draft(line: Line, name: str, where: str, machine: str, user: str, home: Callable[[str], str]) -> WorkflowDraft:
    settings = line.settings
    notes: list[str] = []
    comments = [f"Imported from {where}"]
    zone = settings.get("CRON_TZ", "")
    if zone:
        try:
            check_zone(zone)
        except ValueError as error:
            raise ImportProblem(f"CRON_TZ: {error}") from None
        notes.append("CRON_TZ is read as cronie reads it: other crons fire by the machine's clock")
    theirs = None
    schedule: dict[str, Any] = {"cron": line.when, "misfire": "skip"}
    if line.when != REBOOT:
        theirs = cron_times(line.when, ZoneInfo(zone or machine))
        try:
            parse_cron(line.when)
        except ValueError as error:
            raise ImportProblem(str(error)) from None
    if delay := settings.get("RANDOM_DELAY", ""):
        if not delay.isdecimal():
            raise ImportProblem(f'RANDOM_DELAY: expected minutes, found "{delay}"')
        if line.when == REBOOT:
            notes.append("RANDOM_DELAY is left out: it runs right after a boot")
        else:
            schedule["jitter"] = format_duration(int(delay) * 60)
    if settings.get("MAILTO"):
        comments.append(f"cron mailed its output to {settings['MAILTO']}")
        notes.append(f"nothing is mailed to {settings['MAILTO']}: `toban logs {name}` has the output")
    if "TZ" in settings:
        notes.append("TZ is for the command only, as in cron: its times are not those of that zone")
    if line.quiet:
        notes.append("the - before the time has no effect here: every run is recorded")
    if not user:
        notes.append("it runs as the daemon's user: --user names the owner of the crontab")
    step = _step(line, user, home, comments)
    document: dict[str, Any] = {
        "name": name,
        "description": " ".join(line.comments)[:500] or f"cron: {line.command.strip()}"[:500],
    }
    if zone:
        document["timezone"] = zone
    # Cron starts another one even while the last still runs.
    document |= {"schedule": schedule, "overlap": "allow", "steps": [{"name": name, **step}]}
    return WorkflowDraft(
        name=name,
        where=where,
        document=document,
        comments=comments,
        notes=notes,
        zone=ZoneInfo(zone or machine),
        theirs=theirs,
    )


def _step(line: Line, user: str, home: Callable[[str], str], comments: list[str]) -> dict[str, Any]:
    shell = line.settings.get("SHELL", "") or _STEP_SHELLS[0]
    if not shell.startswith("/"):
        raise ImportProblem(f'SHELL: expected an absolute path, found "{shell}"')
    step: dict[str, Any] = {}
    if shell in _STEP_SHELLS and "{{" not in line.command:
        # Cron runs the rest of a line after a command of it has failed.
        step |= {"run": line.command, "errexit": False}
    else:
        # In a script the braces could be in quotes, where no template is allowed; an argument has none.
        step |= {
            "job_type": "exec",
            "target": literal(shell),
            "args": ["-c", literal(line.command)],
        }
    if line.stdin:
        step["stdin"] = literal(line.stdin)
    env = _environment(line.settings, shell)
    if env:
        step["env"] = env
    directory = line.settings.get("HOME", "") or home(user)
    if directory:
        step["workspace"] = literal(directory)
        comments.append("cron starts commands in the home directory, and so does workspace")
    else:
        comments.append(f"cron started it in the home directory of {user or 'its user'}: set workspace")
    if user:
        step["user"] = user
    return step


def _environment(settings: Mapping[str, str], shell: str) -> dict[str, str]:
    env = {name: literal(value) for name, value in settings.items() if name not in _FOR_CRON}
    if shell not in _STEP_SHELLS:
        env["SHELL"] = literal(shell)
    for name in env:
        if not _ENV_NAME.fullmatch(name):
            raise ImportProblem(f'the variable "{name}" above it: not a name that env can have')
        if name.startswith("TOBAN_"):
            raise ImportProblem(f'the variable "{name}" above it: Toban reserves such names')
    return env
