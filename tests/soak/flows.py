"""The workflows of the soak: of every kind, most of them with a schedule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
EVENTS = ("order.paid", "page.changed", "disk.full")
STEP = {"run": "x", "timeout": "30m"}
RETRIED = {**STEP, "on_failure": "retry", "max_retries": 2, "retry": {"delay": "30s"}}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"steps": {"a": STEP}},
    "chain": {"steps": {"a": RETRIED, "b": {**STEP, "depends_on": ["a"], "on_failure": "continue"}}},
    "queued": {"overlap": "queue", "max_active_runs": 1, "timeout": "1h", "steps": {"a": STEP}},
    "replaced": {"overlap": "replace", "steps": {"a": STEP}},
    "items": {"steps": {"a": {**STEP, "for_each": [1, 2, 3], "max_parallel": 2, "on_failure": "continue"}}},
    "parent": {"steps": {"c": {"job_type": "workflow", "target": "leaf", "on_failure": "continue"}}},
    "skips": {"steps": {"a": STEP, "b": {**STEP, "depends_on": ["a"], "when": "false"}}, "on_failure": dict(STEP)},
    "waits": {"steps": {"w": {"wait": {"for": "90m"}}, "b": {**STEP, "depends_on": ["w"]}}},
    "locked": {"locks": ["pool"], "overlap": "queue", "timeout": "3h", "steps": {"a": STEP}},
    "secretive": {"steps": {"a": {**STEP, "env": {"PASSWORD": "{{ secrets.db_password }}"}}}},
}
WEIGHTS = {"plain": 40, "chain": 20, "queued": 6, "replaced": 4, "items": 5, "parent": 6, "skips": 6, "waits": 5}
WEIGHTS |= {"locked": 4, "secretive": 4}
UNSCHEDULED: dict[str, dict[str, Any]] = {
    "leaf": {"overlap": "allow", "steps": {"a": STEP}},
    "gate": {
        "overlap": "allow",
        "timeout": "12d",
        "steps": {
            "agree": {"job_type": "approval", "timeout": "10d", "on_failure": "continue"},
            "b": {**STEP, "depends_on": ["agree"]},
        },
    },
    "asked": {
        "overlap": "allow",
        "params": {"note": {"type": "string", "default": ""}, "token": {"type": "string", "secret": True}},
        "steps": {"a": {**RETRIED, "stdin": "{{ params.token }}"}},
    },
    "on-paid": {"on": {"event": "order.paid", "condition": "event.payload.amount > 50"}, "steps": {"a": STEP}},
    "on-page": {
        "on": [{"event": "page.changed", "debounce": "10m", "key": "event.payload.page"}],
        "steps": {"a": STEP},
    },
    "on-disk": {"on": [{"event": "disk.full", "throttle": {"limit": 1, "per": "6h"}}], "steps": {"a": STEP}},
    "on-failed": {
        "on": {"event": "RUN_FAILED", "condition": "event.payload.workflow == 'flow-1'"},
        "steps": {"a": STEP},
    },
    "reminded": {"overlap": "allow", "steps": {"a": STEP}},
}


@dataclass(slots=True)
class Rule:
    """A schedule of a workflow, stored from `since` until `until`."""

    written: dict[str, Any]
    since: datetime
    until: datetime | None = None


@dataclass(slots=True)
class Flow:
    """A workflow; `rules` are the schedules that it has and had, oldest first: it has one at a time."""

    name: str
    kind: str
    notes: int = 0
    rules: list[Rule] = field(default_factory=list)

    def text(self) -> str:
        made = dict(KINDS.get(self.kind) or UNSCHEDULED[self.kind])
        if self.rules:
            made["schedule"] = [self.rules[-1].written]
        return json.dumps({"name": self.name, "description": f"note {self.notes}", **made})

    def reschedule(self, chance: Random, at: datetime, rule: dict[str, Any] | None = None) -> None:
        if self.rules:
            self.rules[-1].until = at
        self.rules.append(Rule(rule or random_rule(chance, at, often=1), at))

    def forget(self, before: datetime) -> None:
        self.rules = [rule for rule in self.rules if rule.until is None or rule.until > before]


def flows(count: int, chance: Random, at: datetime) -> Sequence[Flow]:
    """The first day of the soak. About one run per workflow and day."""
    made = [Flow(name=kind, kind=kind) for kind in UNSCHEDULED]
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    for number in range(count - len(made)):
        flow = Flow(name=f"flow-{number}", kind=chance.choices(kinds, weights)[0])
        flow.reschedule(chance, at, random_rule(chance, at, often=0 if number % 16 else 4))
        made.append(flow)
    return made


def random_rule(chance: Random, at: datetime, *, often: int) -> dict[str, Any]:
    """`often`: runs a day; 0: at most one."""
    minute, hour = chance.randrange(60), chance.randrange(24)
    rule: dict[str, Any] = {"timezone": chance.choice(ZONES), "misfire": chance.choice(["skip", "run_once", "run_all"])}
    if often > 1:
        every = chance.choice([2, 4, 4, 6])
        if chance.random() < 0.2:
            return {"every": f"{every}h", "start": (at + timedelta(minutes=minute)).isoformat(), "misfire": "run_once"}
        return {**rule, "cron": f"{minute} */{every} * * *"}
    if not often and chance.random() < 0.2:
        return {**rule, "cron": f"{minute} {hour} * * {chance.randrange(7)}"}
    # Many between one and four in the morning, when clocks change.
    return {**rule, "cron": f"{minute} {chance.choice([hour, 1, 2, 2, 3])} * * *"}
