"""Runs, steps and artifacts as Python values: enums, aware times, results and parameters without protobuf."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from toban.sdk.states import (
    ErrorClass,
    ProcessState,
    RunState,
    SkipReason,
    StepState,
    Trigger,
    WaitingFor,
    from_number,
    maybe_from_number,
)
from toban.v1 import run_pb2

_Message = TypeVar("_Message", run_pb2.Run, run_pb2.Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a step reported last; `total` is 0 if it gave none."""

    current: float
    total: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Files that a step left. `files` are their paths, at most 1,000; `count` and `bytes` are of all of them.

    A `state` other than COMPLETED: the attempt failed or was stopped, and the files may be incomplete.
    """

    step: str
    name: str
    type: str
    state: ProcessState
    count: int
    bytes: int
    files: tuple[str, ...]


class _Facts(Generic[_Message]):
    """What runs and steps have in common."""

    @property
    def message(self) -> _Message:
        """The protobuf message, with every fact. It must not be changed."""
        raise NotImplementedError

    @property
    def waiting_for(self) -> WaitingFor | None:
        """What it waits for; None if it makes progress, has ended, or waits for other steps only."""
        return maybe_from_number(WaitingFor, self.message.waiting_for)

    @property
    def started_at(self) -> datetime | None:
        """When it started; None before."""
        return _time(self.message, "started_at")

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None before."""
        return _time(self.message, "finished_at")

    @property
    def duration(self) -> timedelta | None:
        """From its start to its end; None before, and if it never started."""
        began, ended = self.started_at, self.finished_at
        return None if began is None or ended is None else ended - began

    @property
    def progress(self) -> Progress | None:
        """The progress that was reported last; None if none was."""
        found = self.message
        if not (found.progress_current or found.progress_total or found.progress_message):
            return None
        return Progress(current=found.progress_current, total=found.progress_total, message=found.progress_message)


class Step(_Facts[run_pb2.Step]):
    """One step of a run, or one instance of a `for_each` step, as it was when the run was read."""

    def __init__(self, message: run_pb2.Step) -> None:
        self._message = message

    def __repr__(self) -> str:
        return f"<Step {self.id}: {self.state}>"

    @property
    def message(self) -> run_pb2.Step:
        """The protobuf message, with every fact. It must not be changed."""
        return self._message

    @property
    def id(self) -> str:
        """As in the definition; an instance adds its number, as in `build[0]`."""
        return self._message.id

    @property
    def title(self) -> str:
        """The title for people."""
        return self._message.title

    @property
    def state(self) -> StepState:
        return from_number(StepState, self._message.state)

    @property
    def error(self) -> str:
        """For people: why it failed, is retried or was cancelled."""
        return self._message.reason

    @property
    def error_class(self) -> ErrorClass | None:
        """Whether a retry may help; None if it has not failed."""
        return maybe_from_number(ErrorClass, self._message.error_class)

    @property
    def skip_reason(self) -> SkipReason | None:
        """Why it was skipped; None if it was not."""
        return maybe_from_number(SkipReason, self._message.skip_reason)

    @property
    def exit_code(self) -> int | None:
        """Of the last attempt; None if there is none."""
        return self._message.exit_code if self._message.HasField("exit_code") else None

    @property
    def attempts(self) -> int:
        return self._message.attempts

    @property
    def result(self) -> Any:
        """What a python step returned, the result of a child run, or the decision on an approval; None if nothing."""
        return json.loads(self._message.result_json) if self._message.result_json else None

    @property
    def outputs(self) -> Mapping[str, str]:
        """The outputs that the step wrote."""
        return dict(self._message.outputs)

    @property
    def item(self) -> Any:
        """The item of an instance; None for every other step."""
        return json.loads(self._message.item_json) if self._message.item_json else None


class RunFacts(_Facts[run_pb2.Run]):
    """The facts of a run, as they were when it was read."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.state}>"

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def workflow(self) -> str:
        return self.message.workflow

    @property
    def version(self) -> int:
        """The version of the workflow."""
        return self.message.version

    @property
    def number(self) -> int:
        """The number within its workflow, counted from 1."""
        return self.message.number

    @property
    def name(self) -> str:
        """The workflow and the number, as in `nightly#12`."""
        return f"{self.workflow}#{self.number}"

    @property
    def title(self) -> str:
        """The title of the workflow; its name if it has none."""
        return self.message.workflow_title or self.workflow

    @property
    def state(self) -> RunState:
        return from_number(RunState, self.message.state)

    @property
    def ended(self) -> bool:
        """Whether the state is terminal."""
        return self.state.terminal

    @property
    def succeeded(self) -> bool:
        return self.state is RunState.SUCCEEDED

    @property
    def error(self) -> str:
        """For people: the first cause of the failure."""
        return self.message.error_message

    @property
    def trigger(self) -> Trigger:
        """What started it."""
        return from_number(Trigger, self.message.triggered_by)

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, with their defaults."""
        return {name: _plain(value) for name, value in json_format.MessageToDict(self.message.params).items()}

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.message.labels)

    @property
    def created_at(self) -> datetime | None:
        return _time(self.message, "created_at")

    @property
    def scheduled_at(self) -> datetime | None:
        """The due time; None unless a schedule started it."""
        return _time(self.message, "scheduled_at")

    @property
    def steps(self) -> Mapping[str, Step]:
        """The steps by id, in the order of the definition, each followed by its instances. Empty in lists."""
        return {step.id: Step(step) for step in self.message.steps}

    @property
    def failed_steps(self) -> Mapping[str, Step]:
        """The steps that failed, by id."""
        return {name: step for name, step in self.steps.items() if step.state is StepState.FAILED}


def artifact_of(found: run_pb2.StepArtifact) -> Artifact:
    """The artifact in a message."""
    return Artifact(
        step=found.step,
        name=found.artifact.name,
        type=found.artifact.type,
        state=from_number(ProcessState, found.artifact.state),
        count=found.artifact.files,
        bytes=found.artifact.bytes,
        files=tuple(file.path for file in found.files),
    )


def updated(known: run_pb2.Run, change: run_pb2.Run) -> run_pb2.Run:
    """The run after a change, which has only the steps that changed and may lack large parameters."""
    made = run_pb2.Run()
    made.CopyFrom(change)
    if change.params_bytes:
        made.params.CopyFrom(known.params)
        made.params_bytes = 0
    steps = {step.id: step for step in known.steps}
    for step in change.steps:
        if step.item_bytes and step.id in steps:
            step.item_json, step.item_bytes = steps[step.id].item_json, steps[step.id].item_bytes
        steps[step.id] = step
    del made.steps[:]
    made.steps.extend(sorted(steps.values(), key=_position))
    return made


def _position(step: run_pb2.Step) -> tuple[int, int]:
    return step.index, step.instance if step.HasField("instance") else -1


def _time(message: Message, name: str) -> datetime | None:
    if not message.HasField(name):
        return None
    found: datetime = getattr(message, name).ToDatetime(tzinfo=UTC)
    return found


def _plain(value: Any) -> Any:
    """Numbers of a Struct are doubles: whole ones were integers, or mean the same."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return value
