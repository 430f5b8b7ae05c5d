"""Creates steps from a systemd service."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from toban.definition import format_duration, format_size
from toban.importers.exec_lines import (
    ExecCommand,
    expand_specifiers,
    read_commands,
    split_words,
)
from toban.importers.import_model import ImportedNames, ImportProblem, literal, valid_name
from toban.importers.systemd_units import Unit, parse_bytes, parse_span

_TYPES = ("simple", "exec", "oneshot", "idle")
# Directives that are imported, and those without effect on a process that a daemon supervises and whose output it
# stores.
_TAKEN = frozenset(
    {
        "Type",
        "ExecStart",
        "ExecStartPre",
        "ExecStartPost",
        "Environment",
        "User",
        "WorkingDirectory",
        "TimeoutStartSec",
        "TimeoutStopSec",
        "TimeoutSec",
        "RuntimeMaxSec",
        "Nice",
        "MemoryMax",
        "TasksMax",
        "CPUQuota",
        "SuccessExitStatus",
    }
)
_HARMLESS = frozenset({"SyslogIdentifier", "MemoryAccounting", "CPUAccounting", "TasksAccounting", "IOAccounting"})
_NOTED = {
    "EnvironmentFile": "EnvironmentFile={0} is not read: what it sets belongs in env",
}
_UNIT_HARMLESS = frozenset({"Description", "Documentation", "DefaultDependencies", "Before", "Conflicts"})
_UNIT_NOTED = frozenset({"After", "Wants"})
_OFF = ("no", "false", "off", "0", "n", "f")
_OUTPUTS = ("StandardOutput", "StandardError")
_KEPT = ("inherit", "journal", "syslog", "kmsg")
_NOT_ELSEWHERE = ("null", "journal+console", "syslog+console", "kmsg+console")
_ALWAYS_OFF = {
    "Restart": ("no",),
    "RemainAfterExit": _OFF,
    "DynamicUser": _OFF,
    "KillMode": ("control-group",),
    "StandardInput": ("null",),
    "StandardOutput": _KEPT,
    "StandardError": _KEPT,
}
# A restriction that is off needs no counterpart.
_WALLS = ("Private", "Protect", "Restrict", "Lock", "NoNewPrivileges", "MemoryDeny")
# The default of systemd, and a duration that means "no limit".
_STOP_TIME = "90s"
_ENDLESS = "3650d"
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")
# They differ in the units of a user.
_OF_ROOT = {
    "t": "/run",
    "S": "/var/lib",
    "C": "/var/cache",
    "L": "/var/log",
    "E": "/etc",
    "h": "/root",
    "u": "root",
    "U": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSteps:
    """The steps of a service, in order."""

    steps: list[dict[str, Any]]
    notes: list[str]


def specifiers_of(name: str, *, of_a_user: bool = False) -> dict[str, str]:
    """The values of `%n` and other specifiers in a unit of the system's manager; for a user's unit some are unknown."""
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    known = {"%": "%", "n": name, "N": stem, "p": prefix, "i": instance}
    for letter, text in (("P", prefix), ("I", instance)):
        with suppress(UnicodeDecodeError):
            known[letter] = _unescaped(text)
    return known if of_a_user else known | _OF_ROOT


def _unescaped(text: str) -> str:
    """The path or text that part of a unit's name encodes. Raises UnicodeDecodeError."""
    data = text.replace("-", "/").encode()
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), data).decode()


def steps_of(service: Unit, *, home: Callable[[str], str]) -> ServiceSteps:
    """Raises ImportProblem with every directive that has no counterpart."""
    kind = service.last("Service", "Type", "simple" if service.all("Service", "ExecStart") else "oneshot")
    if kind not in _TYPES:
        raise ImportProblem(f"Type={kind} has no counterpart: a step ends with its process")
    notes = _unmapped(service, kind)
    specifiers = specifiers_of(service.name, of_a_user=service.of_a_user)
    env = _environment(service, specifiers)
    common = _common(service, kind, specifiers, env, home, notes)
    steps: list[dict[str, Any]] = []
    names = ImportedNames()
    for key in ("ExecStartPre", "ExecStart", "ExecStartPost"):
        for line in service.all("Service", key):
            for command in read_commands(line, env=env, specifiers=specifiers):
                name = names.free(_step_name(command))
                names.take(name)
                steps.append({"name": name, **_step(command, common)})
    if not service.all("Service", "ExecStart"):
        raise ImportProblem(f"{service.name} has no ExecStart")
    return ServiceSteps(steps=steps, notes=notes)


def _unmapped(service: Unit, kind: str) -> list[str]:
    """Notes about directives that are left out; raises ImportProblem if one must not be."""
    notes: list[str] = []
    wrong: list[str] = []
    for (section, key), values in service.values.items():
        if not values or section == "Install" or section.startswith("X-"):
            continue
        shown = f"{key}={values[-1]}"
        known = _TAKEN | _HARMLESS if section == "Service" else _UNIT_HARMLESS
        if section == "Unit" and key in _UNIT_NOTED:
            notes.append(f"{shown} is not kept: a schedule waits for no other unit")
        elif section == "Service" and key in _NOTED:
            notes += [_NOTED[key].format(value) for value in values]
        elif _is_off(key, values[-1].lower()):
            continue
        elif key in _OUTPUTS and values[-1] in _NOT_ELSEWHERE:
            notes.append(f"{shown}: here the output is kept, and nothing else is done with it")
        elif key == "ExecStartPost" and kind != "oneshot":
            wrong.append(f"{shown}, which Type={kind} starts beside the main process")
        elif section not in ("Unit", "Service") or key not in known:
            wrong.append(shown)
    if wrong:
        raise ImportProblem(f"no counterpart: {', '.join(wrong)}", ignorable=True)
    return notes


def _is_off(key: str, value: str) -> bool:
    return value in _ALWAYS_OFF.get(key, ()) or (key.startswith(_WALLS) and value in _OFF)


def _environment(service: Unit, specifiers: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for line in service.all("Service", "Environment"):
        for word in split_words(line):
            name, equals, value = expand_specifiers(word, specifiers).partition("=")
            if not equals:
                raise ImportProblem(f"Environment={line}: expected NAME=value")
            env[name] = value
    return env


def _common(
    service: Unit,
    kind: str,
    specifiers: Mapping[str, str],
    env: Mapping[str, str],
    home: Callable[[str], str],
    notes: list[str],
) -> dict[str, Any]:
    """The fields that all steps share."""
    common: dict[str, Any] = {}
    user = expand_specifiers(service.last("Service", "User"), specifiers)
    directory = expand_specifiers(service.last("Service", "WorkingDirectory", "/"), specifiers)
    if directory.startswith("-"):
        directory = directory[1:]
        notes.append(f"WorkingDirectory=-{directory}: here the directory must exist")
    if directory == "~":
        directory = home(user or "root")
        if not directory:
            raise ImportProblem(f"WorkingDirectory=~: the home of {user or 'root'} is not known")
    common["workspace"] = literal(directory)
    if env:
        common["env"] = {name: literal(value) for name, value in env.items()}
    if not user and service.of_a_user:
        notes.append("it is a user's unit: it runs as the daemon's user unless a step has a user")
    elif not user:
        user = "root"
        notes.append("there is no User=: it runs as root, as in systemd, for which the daemon must be root")
    if user:
        common["user"] = user
    whole = service.last("Service", "TimeoutSec")
    # Only for a oneshot service does the start include all of its work.
    limit = (
        service.last("Service", "TimeoutStartSec", whole)
        if kind == "oneshot"
        else service.last("Service", "RuntimeMaxSec")
    )
    if limit and (seconds := parse_span(limit)):
        common["timeout"] = format_duration(seconds)
    if grace := parse_span(service.last("Service", "TimeoutStopSec", whole or _STOP_TIME)):
        common["kill_grace"] = format_duration(grace)
    else:
        common["kill_grace"] = _ENDLESS
        notes.append("the stop has no end in systemd: kill_grace is ten years, which is practically none")
    if codes := " ".join(service.all("Service", "SuccessExitStatus")).split():
        if not all(code.isdecimal() for code in codes):
            raise ImportProblem(f"SuccessExitStatus={' '.join(codes)}: only numbers have a counterpart")
        common["success_codes"] = sorted({0, *map(int, codes)})
    if resources := _resources(service):
        common["resources"] = resources
    return common


def _resources(service: Unit) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    memory = service.last("Service", "MemoryMax")
    if memory and (size := parse_bytes(memory)) is not None:
        resources["memory"] = format_size(size)
    if nice := service.last("Service", "Nice"):
        resources["nice"] = _number("Nice", nice)
    tasks = service.last("Service", "TasksMax")
    if tasks and tasks != "infinity":
        resources["pids"] = _number("TasksMax", tasks)
    if quota := service.last("Service", "CPUQuota"):
        resources["cpu"] = _number("CPUQuota", quota.removesuffix("%")) / 100
    return resources


def _number(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ImportProblem(f"{key}={text} has no counterpart") from None


def _step(command: ExecCommand, common: Mapping[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = {"job_type": "exec", "target": literal(command.program)}
    if command.arguments:
        step["args"] = [literal(argument) for argument in command.arguments]
    step |= common
    if command.privileged and "user" in common:
        step["user"] = "root"
    if command.may_fail:
        step["on_failure"] = "continue"
    return step


def _step_name(command: ExecCommand) -> str:
    return valid_name(command.program.rpartition("/")[2], otherwise="step")
