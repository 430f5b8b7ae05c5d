"""Makes steps of a systemd service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition import format_duration, format_size
from toban.importing.exec_lines import (
    Command,
    expand_specifiers,
    read_commands,
    split_words,
)
from toban.importing.model import ImportProblem, literal, unique, valid_name
from toban.importing.units import Unit, parse_bytes, parse_span

_TYPES = ("simple", "exec", "oneshot", "idle")
# What is made use of, and what changes nothing for a process that a daemon supervises and whose output it keeps.
_TAKEN = frozenset(
    {"Type", "ExecStart", "ExecStartPre", "ExecStartPost", "Environment", "User", "WorkingDirectory",
     "TimeoutStartSec", "TimeoutStopSec", "TimeoutSec", "RuntimeMaxSec", "Nice", "MemoryMax",
     "TasksMax", "CPUQuota", "SuccessExitStatus"}
)  # fmt: skip
_HARMLESS = frozenset(
    {"StandardOutput", "StandardError", "SyslogIdentifier", "MemoryAccounting", "CPUAccounting",
     "TasksAccounting", "IOAccounting"}
)  # fmt: skip
_NOTED = {
    "EnvironmentFile": "EnvironmentFile={0} is not read: what it sets belongs in env",
}
_UNIT_HARMLESS = frozenset(
    {"Description", "Documentation", "DefaultDependencies", "Before", "Conflicts"}
)
_UNIT_NOTED = frozenset({"After", "Wants"})
_ALWAYS_OFF = {
    "Restart": ("no",),
    "RemainAfterExit": ("no", "false", "off", "0"),
    "KillMode": ("control-group",),
}
_OFF = ("no", "false", "off", "0", "n", "f")
# A wall that is not put up needs no counterpart.
_WALLS = ("Private", "Protect", "Restrict", "Lock", "NoNewPrivileges", "MemoryDeny")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a service, in their order."""

    steps: list[dict[str, Any]]
    notes: list[str]
    dropped: list[str]


def specifiers_of(name: str) -> dict[str, str]:
    """What `%n` and the like mean in a unit of the system's manager."""
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    known = {
        "%": "%", "n": name, "N": stem, "p": prefix, "P": prefix, "i": instance, "I": instance,
        "t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc",
        "h": "/root", "u": "root", "U": "0",
    }  # fmt: skip
    if "-" in instance or "\\" in instance:
        del known["I"]  # it stands for something else
    return known


def steps_of(service: Unit, *, ignored: Collection[str], home: Callable[[str], str]) -> Steps:
    """Raises ImportProblem with every directive that has no counterpart, but for those that are `ignored`."""
    kind = service.last(
        "Service", "Type", "simple" if service.all("Service", "ExecStart") else "oneshot"
    )
    if kind not in _TYPES:
        raise ImportProblem(f"Type={kind} has no counterpart: a step ends with its process")
    notes, dropped = _unmapped(service, ignored)
    specifiers = specifiers_of(service.name)
    env = _environment(service, specifiers)
    common = _common(service, kind, specifiers, env, home, notes)
    steps: list[dict[str, Any]] = []
    for key in ("ExecStartPre", "ExecStart", "ExecStartPost"):
        for line in service.all("Service", key):
            for command in read_commands(line, env=env, specifiers=specifiers):
                name = unique(_step_name(command), [step["name"] for step in steps])
                steps.append({"name": name, **_step(command, common)})
    if not service.all("Service", "ExecStart"):
        raise ImportProblem(f"{service.name} has no ExecStart")
    return Steps(steps=steps, notes=notes, dropped=dropped)


def _unmapped(service: Unit, ignored: Collection[str]) -> tuple[list[str], list[str]]:
    """What to say about directives that are left out; raises ImportProblem if one may not be."""
    notes: list[str] = []
    dropped: list[str] = []
    wrong: list[str] = []
    for (section, key), values in service.values.items():
        if not values or section == "Install" or section.startswith("X-"):
            continue
        shown = f"{key}={values[-1]}"
        known = _TAKEN | _HARMLESS if section == "Service" else _UNIT_HARMLESS
        if key in ignored:
            dropped.append(shown)
        elif section == "Unit" and key in _UNIT_NOTED:
            notes.append(f"{shown} is not kept: a schedule waits for no other unit")
        elif section == "Service" and key in _NOTED:
            notes += [_NOTED[key].format(value) for value in values]
        elif _is_off(key, values[-1].lower()):
            continue
        elif section not in ("Unit", "Service") or key not in known:
            wrong.append(shown)
    if wrong:
        raise ImportProblem(f"no counterpart: {', '.join(wrong)}")
    return notes, dropped


def _is_off(key: str, value: str) -> bool:
    return value in _ALWAYS_OFF.get(key, ()) or (key.startswith(_WALLS) and value in _OFF)


def _environment(service: Unit, specifiers: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for line in service.all("Service", "Environment"):
        for word, _ in split_words(line):
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
    """What all steps have."""
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
    if user:
        common["user"] = user
    whole = service.last("Service", "TimeoutSec")
    # Only the start of a oneshot service is all that it does.
    limit = (
        service.last("Service", "TimeoutStartSec", whole)
        if kind == "oneshot"
        else service.last("Service", "RuntimeMaxSec")
    )
    if limit and (seconds := parse_span(limit)):
        common["timeout"] = format_duration(seconds)
    stop = service.last("Service", "TimeoutStopSec", whole)
    if stop and (grace := parse_span(stop)) is not None:
        common["kill_grace"] = format_duration(grace)
    if codes := service.last("Service", "SuccessExitStatus"):
        if not all(code.isdecimal() for code in codes.split()):
            raise ImportProblem(f"SuccessExitStatus={codes}: only numbers have a counterpart")
        common["success_codes"] = sorted({0, *map(int, codes.split())})
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


def _step(command: Command, common: Mapping[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = {"job_type": "exec", "target": literal(command.program)}
    if command.arguments:
        step["args"] = [literal(argument) for argument in command.arguments]
    step |= common
    if command.privileged and "user" in common:
        step["user"] = "root"
    if command.may_fail:
        step["on_failure"] = "continue"
    return step


def _step_name(command: Command) -> str:
    return valid_name(command.program.rpartition("/")[2], otherwise="step")
