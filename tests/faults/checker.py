"""Proves a history against the steps' own witness: nothing lost, nothing doubled, nothing left out, nothing untrue.

It knows nothing of how the daemon works: only what was acknowledged, what every workflow does when it is left alone,
what the steps say they did, and what the daemon says they did. Every contradiction is a defect of a named kind.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from faults.history import AttemptOnDisk, History, Printed
from faults.load import Ledger
from faults.witness import Begin, End, Witness
from faults.workload import StepModel, WorkflowModel
from helpers.daemon import process_state, run_state
from toban.v1 import run_pb2

LATE = 6.0
"""How much later than timeout and grace an end may be recorded: the machine may be busy."""
EARLY = 0.2
"""A run's timeout counts from before a process of it is made, which may take a moment; shown is when it was there."""

OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR


class Kind(Enum):
    """What can be wrong."""

    MISSING = "an acknowledged run is missing"
    UNASKED = "a run that nobody asked for"
    CONTRADICTED = "what was told before is denied"
    UNENDED = "a run did not end"
    DOUBLED = "a step was executed more often than it may be"
    SKIPPED = "a step that should have run did not"
    UNTRUE = "a state is not what happened"
    EARLY_OR_LATE = "a timeout did not hold"
    ORDER = "a step ran before its time"
    LOST = "an attempt is lost without a reason"
    LOG = "a log is not what the step wrote"
    LEFT = "a process is left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.kind.value}: {self.text}"


Excuse = Callable[[run_pb2.ProcessExecution, AttemptOnDisk | None], str]
"""Why an attempt must not be what it is; empty if it may."""


def never(_execution: run_pb2.ProcessExecution, _file: AttemptOnDisk | None) -> str:
    return "nothing happened that could explain it"


def check(
    workflows: Mapping[str, WorkflowModel],
    ledger: Ledger,
    history: History,
    witness: Witness,
    *,
    lost: Excuse = never,
    unstarted: Excuse = never,
) -> list[Defect]:
    """Everything that is wrong. `lost` and `unstarted` say which attempts may be LOST, or not be startable at all."""
    found = list(_acknowledged(ledger, history, witness))
    for run_id, run in history.runs.items():
        model = workflows.get(run.workflow)
        if model is None:
            found.append(Defect(kind=Kind.UNASKED, text=f"{run_id} is of {run.workflow}"))
            continue
        found += _Run(model, run, ledger, history, witness, lost, unstarted).defects()
    return found


def report(defects: Sequence[Defect]) -> str:
    """For people: the first ones, and how many there are of each kind."""
    kinds = Counter(defect.kind.name for defect in defects)
    counts = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
    return "\n".join([f"defects: {counts}", *map(str, defects[:20])])


def _acknowledged(ledger: Ledger, history: History, witness: Witness) -> Iterator[Defect]:
    for text in ledger.contradictions:
        yield Defect(kind=Kind.CONTRADICTED, text=text)
    for run_id, workflow in ledger.workflows.items():
        run = history.runs.get(run_id)
        if run is None:
            yield Defect(kind=Kind.MISSING, text=f"{run_id} of {workflow}")
        elif run.workflow != workflow:
            yield Defect(kind=Kind.CONTRADICTED, text=f"{run_id} is not of {workflow} any more")
    for run_id in history.runs.keys() - ledger.workflows.keys():
        yield Defect(kind=Kind.UNASKED, text=f"{run_id} was never acknowledged to anybody")
    for run_id in witness.runs() - history.runs.keys():
        yield Defect(kind=Kind.UNASKED, text=f"steps of {run_id} ran, and there is no such run")
    for run_id, state in ledger.ended.items():
        run = history.runs.get(run_id)
        if run is not None and run.state != state:
            was = run_pb2.RunState.Name(state).removeprefix("RUN_STATE_")  # type: ignore[arg-type]
            text = f"{run_id} was shown as {was} and is {run_state(run)}"
            yield Defect(kind=Kind.CONTRADICTED, text=text)


class _Run:
    """One run against its model."""

    def __init__(
        self,
        model: WorkflowModel,
        run: run_pb2.Run,
        ledger: Ledger,
        history: History,
        witness: Witness,
        lost: Excuse,
        unstarted: Excuse,
    ) -> None:
        self._model = model
        self._run = run
        self._ledger = ledger
        self._history = history
        self._witness = witness
        self._lost = lost
        self._unstarted = unstarted
        self._found: list[Defect] = []
        self._states = {step.id: _name(step) for step in run.steps}

    def defects(self) -> list[Defect]:
        if {step.id for step in self._model.steps} != set(self._states):
            self._bad(Kind.SKIPPED, f"it has the steps {sorted(self._states)}")
            return self._found
        self._check_run()
        for step in self._run.steps:
            model = self._model.step(step.id)
            assert model is not None
            self._check_step(model, step)
        self._check_order()
        self._check_logs(self._history.logs.printed(self._run.id))
        return self._found

    def _bad(self, kind: Kind, text: str) -> None:
        where = f"run {self._run.id} of {self._model.name}, {run_state(self._run)}"
        self._found.append(Defect(kind=kind, text=f"{where}: {text}"))

    # -- the run

    def _check_run(self) -> None:
        run, cause = self._run, self._run.ending.cause
        failed = [
            step.id
            for step in self._model.steps
            if self._states[step.id] == "FAILED" and not step.continues
        ]
        stopped = [s.id for s in run.steps if _stopped_by_cancel(s)]
        if run.id in self._ledger.cancel_acknowledged and not run.HasField("cancel_requested_at"):
            self._bad(Kind.CONTRADICTED, "its cancel was acknowledged, and is not known")
        match run_state(run):
            case "SUCCEEDED":
                for step in self._model.steps:
                    state = self._states[step.id]
                    if state != "SUCCEEDED" and not (state == "FAILED" and step.continues):
                        self._bad(Kind.UNTRUE, f"{step.id} is {state}")
                if cause:
                    self._bad(Kind.UNTRUE, f"it ended for {cause}")
            case "FAILED":
                if cause != "aborted" or not failed:
                    self._bad(Kind.UNTRUE, f"cause {cause!r}, failed: {failed}")
            case "CANCELLED":
                if run.id not in self._ledger.cancel_sent:
                    self._bad(Kind.UNTRUE, "nobody cancelled it")
                if cause != "cancelled" or not stopped:
                    self._bad(Kind.UNTRUE, f"cause {cause!r}, and no step was stopped by it")
            case "TIMED_OUT":
                self._check_run_timeout()
            case _:
                self._bad(Kind.UNENDED, f"steps: {self._states}")

    def _check_run_timeout(self) -> None:
        timeout = self._model.timeout
        if timeout is None:
            self._bad(Kind.UNTRUE, "its workflow has no timeout")
            return
        if self._run.ending.cause != "timed_out":
            self._bad(Kind.UNTRUE, f"cause {self._run.ending.cause!r}")
        took = self._run.finished_at.ToDatetime() - self._run.started_at.ToDatetime()
        if took < timedelta(seconds=timeout - EARLY):
            self._bad(Kind.EARLY_OR_LATE, f"it timed out after {took}")

    # -- one step

    def _check_step(self, model: StepModel, step: run_pb2.Step) -> None:
        begins = self._witness.begins_of(self._run.id, step.id)
        ends = self._witness.ends_of(self._run.id, step.id)
        processes = sorted(
            (p for p in self._history.processes[self._run.id] if p.step == step.id),
            key=lambda p: p.attempt,
        )
        self._check_count(model, processes, begins, ends)
        state = self._states[step.id]
        if state == "SKIPPED":
            self._check_skipped(step, processes, begins)
            return
        if state not in ("SUCCEEDED", "FAILED", "CANCELLED"):
            if run_state(self._run) not in ("PENDING", "RUNNING"):
                self._bad(Kind.UNTRUE, f"the run has ended, and {step.id} is {state}")
            return
        if not processes:
            self._bad(Kind.UNTRUE, f"{step.id} is {state} and has no process")
            return
        last = processes[-1]
        allowed = {
            "SUCCEEDED": ("COMPLETED",),
            "FAILED": ("FAILED", "TIMED_OUT", "LOST"),
            "CANCELLED": ("CANCELLED", "TIMED_OUT"),
        }[state]
        if process_state(last) not in allowed:
            self._bad(Kind.UNTRUE, f"{step.id} is {state}, its process {process_state(last)}")
        if state == "CANCELLED" and not self._run.ending.cause:
            self._bad(Kind.UNTRUE, f"{step.id} is CANCELLED and the run was not ending")
        for process in processes:
            self._check_process(model, process, begins, ends)

    def _check_count(
        self,
        model: StepModel,
        processes: Sequence[run_pb2.ProcessExecution],
        begins: Sequence[Begin],
        ends: Sequence[End],
    ) -> None:
        tokens = [begin.token for begin in begins]
        if len(tokens) != len(set(tokens)) or len(ends) > len(begins):
            self._bad(Kind.DOUBLED, f"{model.id} began for {tokens}, ended {len(ends)} times")
        if len(begins) > len(processes):
            count = f"{len(begins)} times, for {len(processes)} attempts"
            self._bad(Kind.DOUBLED, f"{model.id} began {count}")
        for earlier in processes[:-1]:
            if process_state(earlier) != "LOST" or not model.rerun_if_lost:
                text = f"{model.id} has {len(processes)} attempts, one is {process_state(earlier)}"
                self._bad(Kind.DOUBLED, text)

    def _check_skipped(
        self,
        step: run_pb2.Step,
        processes: Sequence[run_pb2.ProcessExecution],
        begins: Sequence[Begin],
    ) -> None:
        if len(begins) > sum(process_state(p) == "LOST" for p in processes):
            self._bad(Kind.UNTRUE, f"{step.id} is SKIPPED, and began")
        if not self._run.ending.cause or step.reason != self._run.ending.cause:
            text = f"{step.id} for {step.reason!r}, the run ended for {self._run.ending.cause!r}"
            self._bad(Kind.SKIPPED, text)

    # -- one process

    def _check_process(
        self,
        model: StepModel,
        process: run_pb2.ProcessExecution,
        begins: Sequence[Begin],
        ends: Sequence[End],
    ) -> None:
        end = _end_of(process, begins, ends)
        match process_state(process):
            case "COMPLETED":
                self._exited(model, process, end, "SUCCEEDED")
                if model.code != 0:
                    self._bad(Kind.UNTRUE, f"{model.id} cannot succeed")
            case "FAILED":
                if not process.pid:
                    why = self._unstarted(process, self._file_of(process))
                    if why or begins:
                        text = f"{model.id} was not started ({process.error_message}): {why}"
                        self._bad(Kind.SKIPPED, text)
                    return
                self._exited(model, process, end, "FAILED")
                if end is not None and end.code == 0:
                    self._bad(Kind.UNTRUE, f"{model.id} succeeded")
            case "TIMED_OUT":
                self._timed_out(model, process, end)
            case "CANCELLED":
                if process.pid and not process.ending.signals:
                    self._bad(Kind.UNTRUE, f"{model.id} is CANCELLED, and nobody signalled it")
                self._ended_by_us(model, process)
            case "LOST":
                why = self._lost(process, self._file_of(process))
                if why:
                    self._bad(Kind.LOST, f"{model.id} ({process.error_message}): {why}")
            case other:
                self._bad(Kind.UNTRUE, f"a process of {model.id} is {other}")

    def _exited(
        self, model: StepModel, process: run_pb2.ProcessExecution, end: End | None, state: str
    ) -> None:
        if end is None:
            what = f"exit code {process.exit_code}, signal {process.signal}"
            self._bad(Kind.UNTRUE, f"{model.id} is {state} ({what}) and never came to its end")
        elif not process.HasField("exit_code") or process.exit_code != end.code:
            text = f"{model.id} exited with {end.code}, told is {process.exit_code}"
            self._bad(Kind.UNTRUE, text)

    def _timed_out(
        self, model: StepModel, process: run_pb2.ProcessExecution, end: End | None
    ) -> None:
        cause = process.ending.cause
        limit = model.timeout if cause == "timeout" else self._model.timeout
        if cause not in ("timeout", "run_timeout") or limit is None:
            self._bad(Kind.UNTRUE, f"{model.id} timed out for {cause!r}")
            return
        if end is not None and (cause == "timeout" or model.code is None):
            self._bad(Kind.UNTRUE, f"{model.id} timed out, and had come to its end")
        self._ended_by_us(model, process)
        since = process.started_at if cause == "timeout" else self._run.started_at
        took = (process.finished_at.ToDatetime() - since.ToDatetime()).total_seconds()
        if not limit - EARLY <= took <= limit + model.grace + LATE:
            self._bad(Kind.EARLY_OR_LATE, f"{model.id} had {limit} s and was ended after {took} s")

    def _ended_by_us(self, model: StepModel, process: run_pb2.ProcessExecution) -> None:
        if process.pid and (process.ending.survivors or not process.ending.proved_empty):
            survivors = process.ending.survivors
            self._bad(Kind.LEFT, f"{model.id} was ended, and is not proved gone ({survivors} left)")

    def _file_of(self, process: run_pb2.ProcessExecution) -> AttemptOnDisk | None:
        """Its attempt file; of several, one that is not void."""
        found = [
            file
            for file in self._history.files.get(self._run.id, ())
            if (file.step, file.number) == (process.step, process.attempt)
        ]
        return min(found, key=lambda file: file.void, default=None)

    # -- between steps

    def _check_order(self) -> None:
        """A step begins when those before it have ended; never more at once than the workflow allows."""
        for step in self._model.steps:
            for begin in self._witness.begins_of(self._run.id, step.id):
                for before in step.depends_on:
                    ended = [end.at for end in self._witness.ends_of(self._run.id, before)]
                    if (
                        self._states[before] == "SUCCEEDED"
                        and min(ended, default=begin.at) >= begin.at
                    ):
                        self._bad(Kind.ORDER, f"{step.id} began before {before} had ended")
                    elif self._states[before] not in ("SUCCEEDED", "FAILED"):
                        self._bad(
                            Kind.ORDER, f"{step.id} began, {before} is {self._states[before]}"
                        )
        if self._model.concurrency is not None and set(self._states.values()) == {"SUCCEEDED"}:
            moments = [
                (line.at, change)
                for step in self._model.steps
                for change, lines in (
                    (1, self._witness.begins_of(self._run.id, step.id)),
                    (-1, self._witness.ends_of(self._run.id, step.id)),
                )
                for line in lines
            ]
            running = most = 0
            for _, change in sorted(moments):
                running += change
                most = max(most, running)
            if most > self._model.concurrency:
                self._bad(Kind.ORDER, f"{most} steps at a time")

    # -- logs

    def _check_logs(self, printed: Printed) -> None:
        processes = self._history.processes[self._run.id]
        if not printed.complete and not any(process_state(p) == "LOST" for p in processes):
            states = {f"{p.step}.{p.attempt}": process_state(p) for p in processes}
            self._bad(Kind.LOG, f"it is told to be incomplete; its processes: {states}")
        for process in processes:
            model = self._model.step(process.step)
            if model is None:
                self._bad(Kind.UNASKED, f"a process of {process.step}")
                continue
            begins = self._witness.begins_of(self._run.id, process.step)
            ends = self._witness.ends_of(self._run.id, process.step)
            begin = _begin_of(process, begins)
            got = tuple(
                printed.streams.get((process.step, process.attempt, stream), b"")
                for stream in (OUT, ERR)
            )
            if begin is None:
                if any(got):
                    self._bad(Kind.LOG, f"{process.step} never began, and printed {got!r:.80}")
                continue
            repeated = self._witness.begins_of(self._run.id, model.repeats)
            whole = model.printed(begin.token, repeated[-1].token if repeated else "")
            self._compare(process, got, whole)
            end = _end_of(process, begins, ends)
            if process_state(process) == "COMPLETED" and end is not None and end.digests:
                digests = tuple(hashlib.sha256(data).hexdigest() for data in got)
                if digests != end.digests:
                    self._bad(Kind.LOG, f"{process.step} says that it wrote something else")

    def _compare(
        self, process: run_pb2.ProcessExecution, got: Sequence[bytes], whole: Sequence[bytes]
    ) -> None:
        """All of it if the step came to its end, else as far as it came."""
        ended = process_state(process) in ("COMPLETED", "FAILED")
        counted = (process.stdout_bytes, process.stderr_bytes)
        for data, expected, count, name in zip(got, whole, counted, ("out", "err"), strict=True):
            if ended and data != expected:
                at = _difference(data, expected)
                sizes = f"{len(data)} of {len(expected)} bytes, different from {at} on"
                self._bad(Kind.LOG, f"{process.step}, std{name}: {sizes}")
            elif not expected.startswith(data):
                at = _difference(data, expected)
                self._bad(Kind.LOG, f"{process.step}, std{name}: wrong from byte {at} on")
            if process_state(process) != "LOST" and count != len(data):
                text = f"{process.step}, std{name}: {count} bytes are told, {len(data)} given"
                self._bad(Kind.LOG, text)


def _name(step: run_pb2.Step) -> str:
    return run_pb2.StepState.Name(step.state).removeprefix("STEP_STATE_")


def _stopped_by_cancel(step: run_pb2.Step) -> bool:
    return _name(step) == "CANCELLED" or (_name(step) == "SKIPPED" and step.reason == "cancelled")


def _begin_of(process: run_pb2.ProcessExecution, begins: Sequence[Begin]) -> Begin | None:
    """Attempts begin in order; one that was lost before its process did anything left no line."""
    if len(begins) == 1 and process_state(process) != "LOST":
        return begins[0]
    return begins[process.attempt - 1] if process.attempt <= len(begins) else None


def _end_of(
    process: run_pb2.ProcessExecution, begins: Sequence[Begin], ends: Sequence[End]
) -> End | None:
    begin = _begin_of(process, begins)
    if begin is None:
        return None
    return next((end for end in ends if end.token == begin.token), None)


def _difference(data: bytes, expected: bytes) -> int:
    for at, (one, other) in enumerate(zip(data, expected, strict=False)):
        if one != other:
            return at
    return min(len(data), len(expected))
