"""Workflows that listen to events, each with its conditions once more in Python, which know nothing of the daemon's.

There are all kinds: with and without a condition, several triggers of one workflow, fields that an event may lack, and
chains of events, from steps and from the daemon itself, with and without an end of their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ORDER, NOTE, CHAIN, LOOP = "ORDER", "NOTE", "CHAIN", "LOOP"
CLIENT_TYPES = (ORDER, NOTE, CHAIN, LOOP)
RUN_SUCCEEDED, RUN_FAILED, STEP_FAILED = "RUN_SUCCEEDED", "RUN_FAILED", "STEP_FAILED"
SCHEDULE_TRIGGERED, DAEMON_STARTED = "SCHEDULE_TRIGGERED", "DAEMON_STARTED"
DEFINITION_CHANGED, FILE_CHANGED = "DEFINITION_CHANGED", "FILE_CHANGED"
WATCHING = "watching"
"""The workflow that watches a directory."""
BOUND = "bound"
"""The workflow that listens to nothing: schedules start it."""
STEP = "only"
_EMITTING = Path(__file__).with_name("emitting_step.py")


def _any(_: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of the runs of a trigger, for each value of the field `key` of a payload; empty: for all events together.

    With `quiet` a burst of events starts one run, after `longest` at the latest; without it at most `limit` runs start
    within `per`. Times are seconds.
    """

    quiet: float = 0.0
    longest: float = 0.0
    limit: int = 0
    per: float = 0.0
    key: str = ""

    def written(self) -> dict[str, Any]:
        if self.quiet:
            made: dict[str, Any] = {"debounce": {"quiet": f"{self.quiet:g}s", "max_wait": f"{self.longest:g}s"}}
        else:
            made = {"throttle": {"limit": self.limit, "per": f"{self.per:g}s"}}
        return made | ({"key": f"event.payload.{self.key}"} if self.key else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listens:
    """An entry of `on`. `test` says of a payload what `condition` does, and raises KeyError for want of a field."""

    types: tuple[str, ...]
    condition: str = ""
    test: Callable[[Mapping[str, Any]], bool] = _any
    priority: int | None = None
    pace: Pace | None = None

    def matches(self, event_type: str, payload: Mapping[str, Any]) -> bool:
        try:
            return event_type in self.types and self.test(payload)
        except KeyError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A workflow with one step. `overlap` empty: the one of runs of events, which is `queue`."""

    name: str
    on: tuple[Listens, ...] = ()
    overlap: str = ""
    priority: int = 0
    fails: bool = False
    emits: bool = False
    """Its step emits the next event of a chain."""
    watch: str = ""
    witness: str = ""
    """The file that its step says in how many events its run stands for."""

    @property
    def pace(self) -> Pace | None:
        return next((listens.pace for listens in self.on), None)

    @property
    def takes_turns(self) -> bool:
        return self.overlap in ("", "queue")

    def priority_of(self, event_type: str, payload: Mapping[str, Any]) -> int | None:
        """Of the run that such an event starts; None: it starts none."""
        found = [
            self.priority if listens.priority is None else listens.priority
            for listens in self.on
            if listens.matches(event_type, payload)
        ]
        return max(found, default=None)

    def definition(self, edition: int = 1) -> str:
        """As a file has it; JSON is YAML. Editions differ in all that makes no difference to which events start it."""
        # What it listens to is stored anew for each: it comes to listen to another type that never happens.
        never: list[dict[str, Any]] = [{"event": f"NEVER-{edition}"}] if edition > 1 else []
        # A pace belongs to the place of its trigger.
        on: list[dict[str, Any]] = [] if self.pace else never
        for listens in self.on:
            entry: dict[str, Any] = {"event": list(listens.types)}
            if listens.condition:
                entry["condition"] = listens.condition
            if listens.priority is not None:
                entry["priority"] = listens.priority
            if listens.pace is not None:
                entry |= listens.pace.written()
            on.append(entry)
        if self.pace:
            on += never
        document: dict[str, Any] = {
            "name": self.name,
            "description": f"listens to events, edition {edition}",
            "env": {"EDITION": str(edition)},
            "priority": self.priority,
            "steps": [{"name": STEP, **self._step()}],
        }
        if on:
            document["on"] = on
        if self.overlap:
            document["overlap"] = self.overlap
        if self.watch:
            document["watch"] = self.watch
        return json.dumps(document)

    def _step(self) -> dict[str, Any]:
        if self.witness:
            return {"run": f"echo $TOBAN_RUN_ID {{{{ event.coalesced }}}} >> {self.witness}"}
        if self.emits:
            hops = "{{ event.payload.hops - 1 }}"
            arguments = [str(_EMITTING), CHAIN, hops, "{{ run.id }}"]
            return {"job_type": "exec", "target": sys.executable, "args": arguments}
        return {"job_type": "exec", "target": "false" if self.fails else "true", "args": []}


def witness_below(watched: Path) -> Path:
    """Where runs of bursts say how many events they stand for."""
    return watched.with_name("bursts")


def listeners(watched: Path) -> dict[str, Listening]:
    """By name. One of them watches a directory."""
    everyone = (
        Listening(name="all-orders", on=(Listens(types=(ORDER,)),)),
        Listening(
            name="third-orders",
            on=(
                Listens(
                    types=(ORDER,),
                    condition="event.payload.n % 3 == 0",
                    test=lambda payload: payload["n"] % 3 == 0,
                    priority=50,
                ),
            ),
            overlap="allow",
        ),
        Listening(
            name="odd-or-tagged",
            on=(
                Listens(
                    types=(ORDER,),
                    condition="event.payload.n % 2 == 1",
                    test=lambda payload: payload["n"] % 2 == 1,
                    priority=-7,
                ),
                Listens(
                    types=(ORDER, NOTE),
                    condition="event.payload.tag == 'x'",
                    test=lambda payload: payload["tag"] == "x",
                    priority=20,
                ),
            ),
            overlap="queue",
        ),
        Listening(
            name="alone",
            on=(Listens(types=(ORDER, NOTE)),),
            overlap="skip",
            priority=3,
        ),
        Listening(
            name="fails",
            on=(
                Listens(
                    types=(ORDER,),
                    condition="event.payload.n % 5 == 0",
                    test=lambda payload: payload["n"] % 5 == 0,
                ),
            ),
            fails=True,
        ),
        Listening(
            name="after-third",
            on=(
                Listens(
                    types=(RUN_SUCCEEDED,),
                    condition="event.payload.workflow == 'third-orders'",
                    test=lambda payload: payload["workflow"] == "third-orders",
                ),
            ),
        ),
        Listening(name="after-failure", on=(Listens(types=(RUN_FAILED, STEP_FAILED)),)),
        Listening(
            name="chain",
            on=(
                Listens(
                    types=(CHAIN,),
                    condition="event.payload.hops > 0",
                    test=lambda payload: payload["hops"] > 0,
                ),
            ),
            overlap="allow",
            emits=True,
        ),
        Listening(
            name="loop",
            on=(
                Listens(types=(LOOP,)),
                Listens(
                    types=(RUN_SUCCEEDED,),
                    condition="event.payload.workflow == 'loop'",
                    test=lambda payload: payload["workflow"] == "loop",
                ),
            ),
            overlap="allow",
        ),
        Listening(
            name="reminded",
            on=(
                Listens(
                    types=(SCHEDULE_TRIGGERED,),
                    condition="event.payload.action == 'reminder'",
                    test=lambda payload: payload["action"] == "reminder",
                    priority=9,
                ),
            ),
            overlap="allow",
        ),
        Listening(name="booted", on=(Listens(types=(DAEMON_STARTED,)),), overlap="allow"),
        Listening(
            name="noticed",
            on=(
                Listens(
                    types=(DEFINITION_CHANGED,),
                    condition="event.payload.action == 'updated'",
                    test=lambda payload: payload["action"] == "updated",
                ),
            ),
            overlap="allow",
        ),
        Listening(
            name=WATCHING,
            on=(
                Listens(
                    types=(FILE_CHANGED,),
                    condition=f"event.payload.workflow == '{WATCHING}'",
                    test=lambda payload: payload["workflow"] == WATCHING,
                ),
            ),
            watch=str(watched),
        ),
        Listening(name=BOUND, overlap="allow"),
        Listening(
            name="settled",
            on=(Listens(types=(ORDER,), priority=4, pace=Pace(quiet=0.3, longest=1, key="tag")),),
            witness=str(witness_below(watched)),
        ),
        Listening(
            name="seldom",
            on=(Listens(types=(ORDER, NOTE), pace=Pace(limit=2, per=1)),),
            overlap="allow",
        ),
    )
    return {each.name: each for each in everyone}
