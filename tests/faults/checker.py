"""Proves a history against the steps' own witness: nothing lost, nothing doubled, nothing left out, nothing untrue.

It knows nothing of how the daemon works: only what was acknowledged, what every workflow does when it is left alone,
what the steps say they did, and what the daemon says they did. Every contradiction is a defect of a named kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from faults.defects import Defect, Excuse, Kind, Unkept, always_kept, never, report
from faults.history import History, Printed
from faults.load import Ledger
from faults.step_checks import EARLY, StepChecks, state_name
from faults.witness import Begin, End, Witness
from faults.workload import ARTIFACT, CHECK, SIZES, StepModel, WorkflowModel, made
from helpers.daemon import cause_name, process_state, run_state
from toban.v1 import run_pb2

__all__ = ["Defect", "Excuse", "Kind", "check", "never", "report"]

OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR


def check(
    workflows: Mapping[str, WorkflowModel],
    ledger: Ledger,
    history: History,
    witness: Witness,
    *,
    lost: Excuse = never,
    unstarted: Excuse = never,
    unkept: Unkept = always_kept,
) -> list[Defect]:
    """Everything that is wrong.

    `lost` and `unstarted` say which attempts may be LOST, or not be startable at all, `unkept` whose work may be lost.
    """
    found = list(_acknowledged(ledger, history, witness))
    for run_id, run in history.runs.items():
        model = workflows.get(run.workflow)
        if model is None:
            found.append(Defect(kind=Kind.UNASKED, text=f"{run_id} is of {run.workflow}"))
            continue
        found += _Run(model, run, ledger, history, witness, lost, unstarted, unkept).defects()
    for model in workflows.values():
        if model.queue:
            found += _turns(model, history, witness)
    found += (Defect(kind=Kind.LOCK, text=text) for text in witness.clashes)
    return [*found, *_locks(workflows, history, witness)]


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
        if history.runs[run_id].parent_run not in history.runs:
            yield Defect(kind=Kind.UNASKED, text=f"{run_id} was never acknowledged to anybody")
    for run_id in witness.runs() - history.runs.keys():
        yield Defect(kind=Kind.UNASKED, text=f"steps of {run_id} ran, and there is no such run")
    for run_id, state in ledger.ended.items():
        run = history.runs.get(run_id)
        if run is not None and run.state != state:
            was = run_pb2.RunState.Name(state).removeprefix("RUN_STATE_")  # type: ignore[arg-type]
            text = f"{run_id} was shown as {was} and is {run_state(run)}"
            yield Defect(kind=Kind.CONTRADICTED, text=text)


def _turns(model: WorkflowModel, history: History, witness: Witness) -> Iterator[Defect]:
    """Runs that take turns: in the order in which they were made, none before the one before it is over."""
    last, of = -1, ""
    runs = [run for run in history.runs.values() if run.workflow == model.name]
    for run in sorted(runs, key=lambda run: run.number):
        lines = [line.at for line in witness.lines_of(run.id)]
        if lines and min(lines) < last:
            text = f"{run.id} of {model.name} began before {of} was over"
            yield Defect(kind=Kind.ORDER, text=text)
        if lines and max(lines) > last:
            last, of = max(lines), run.id


def _locks(workflows: Mapping[str, WorkflowModel], history: History, witness: Witness) -> Iterator[Defect]:
    """Between the first and the last line of a run, or of a step, that holds a lock there is none of another holder."""
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for run in history.runs.values():
        model = workflows.get(run.workflow)
        if model is None:
            continue
        lines = [line.at for line in witness.lines_of(run.id)]
        above = workflows.get(history.runs[run.parent_run].workflow) if run.parent_run in history.runs else None
        for child in history.runs.values():
            lines += [line.at for line in witness.lines_of(child.id)] if child.parent_run == run.id else []
        for lock in model.locks if lines else ():
            if above is None or lock not in above.locks:
                spans.setdefault(lock, []).append((min(lines), max(lines), f"run {run.id} of {run.workflow}"))
        for (of, name), begins in witness.begins.items():
            step = model.step(name.partition("[")[0]) if of == run.id else None
            ends = {end.token: end.at for end in witness.ends_of(of, name)}
            for lock in step.locks if step is not None else ():
                where = f"{name} of run {of} of {run.workflow}"
                spans.setdefault(lock, []).extend((each.at, ends.get(each.token, each.at), where) for each in begins)
    for lock, found in spans.items():
        last, of = -1, ""
        for begin, end, where in sorted(found):
            if begin < last and lock not in SIZES:
                yield Defect(kind=Kind.LOCK, text=f"{where} began while {of} held {lock}")
            if end > last:
                last, of = end, where


class _Run(StepChecks):
    """One run against its model."""

    def defects(self) -> list[Defect]:
        if {step.id for step in self._model.all_steps} != {s.id for s in self._run.steps if not s.parent}:
            self._bad(Kind.SKIPPED, f"it has the steps {sorted(self._states)}")
            return self._found
        self._check_run()
        self._check_steps()
        self._check_order()
        self._check_finally()
        self._check_logs(self._history.logs.printed(self._run.id))
        self._check_artifacts()
        return self._found

    # -- the run

    def _check_run(self) -> None:
        run, cause = self._run, cause_name(self._run.ending)
        failed = [step.id for step in self._model.steps if self._states[step.id] == "FAILED" and not step.continues]
        stopped = [s.id for s in run.steps if _stopped_by_cancel(s)]
        if run.id in self._ledger.cancel_acknowledged and not run.HasField("cancel_requested_at"):
            self._bad(Kind.CONTRADICTED, "its cancel was acknowledged, and is not known")
        match run_state(run):
            case "SUCCEEDED":
                for step in run.steps:
                    model = self._model.step(step.parent or step.id)
                    if model is not None and not _well(model, step) and not self._failed_late(model, step):
                        self._bad(Kind.UNTRUE, f"{step.id} is {self._states[step.id]}")
                if cause:
                    self._bad(Kind.UNTRUE, f"it ended for {cause}")
            case "FAILED":
                if cause != "aborted" or not failed:
                    self._bad(Kind.UNTRUE, f"cause {cause!r}, failed: {failed}")
            case "CANCELLED":
                if run.id not in self._ledger.cancel_sent and not self._parent_ended():
                    self._bad(Kind.UNTRUE, "nobody cancelled it")
                if cause != "cancelled" or not stopped:
                    self._bad(Kind.UNTRUE, f"cause {cause!r}, and no step was stopped by it")
            case "TIMED_OUT":
                self._check_run_timeout()
            case _:
                self._bad(Kind.UNENDED, f"steps: {self._states}")

    def _failed_late(self, model: StepModel, step: run_pb2.Step) -> bool:
        """A finally step that failed, because it was lost for example, does not hide the result of the run."""
        return self._is_last(model) and self._states[step.id] == "FAILED"

    def _parent_ended(self) -> bool:
        """Whether it is a child of a run that was ended."""
        parent = self._history.runs.get(self._run.parent_run)
        return parent is not None and bool(parent.ending.cause)

    def _check_run_timeout(self) -> None:
        timeout = self._model.timeout
        if timeout is None:
            self._bad(Kind.UNTRUE, "its workflow has no timeout")
            return
        if cause_name(self._run.ending) != "timed_out":
            self._bad(Kind.UNTRUE, f"cause {cause_name(self._run.ending)!r}")
        took = self._run.finished_at.ToDatetime() - self._run.started_at.ToDatetime()
        if took < timedelta(seconds=timeout - EARLY):
            self._bad(Kind.EARLY_OR_LATE, f"it timed out after {took}")

    # -- between steps

    def _check_order(self) -> None:
        """A step begins when those before it have ended; never more at once than may be."""
        for step in self._model.all_steps:
            for begin in self._begins(step):
                for before in step.depends_on:
                    model = self._model.step(before)
                    assert model is not None
                    self._check_before(step, begin, model)
        limit = self._model.concurrency
        if limit is not None and set(self._states.values()) == {"SUCCEEDED"}:
            self._check_at_once([step.id for step in self._model.steps], limit)
        for step in self._model.all_steps:
            if step.items and self._states[step.id] == "SUCCEEDED":
                self._check_at_once([f"{step.id}[{n}]" for n in range(step.items)], 2)

    def _check_finally(self) -> None:
        """Every finally step ran, unless the run never began; none before all other steps had ended."""
        if not self._model.last:
            return
        if not self._run.HasField("started_at"):
            begun = [step.id for step in self._model.last if self._begins(step)]
            if begun or self._run.HasField("finally_part"):
                self._bad(Kind.UNTRUE, f"it never began, and its finally steps did: {begun}")
            return
        if self._run.finally_part.state != self._run.state:
            self._bad(Kind.UNTRUE, f"its finally steps ran for state {self._run.finally_part.state}")
        if self._run.finally_part.HasField("ending"):
            self._bad(Kind.SKIPPED, f"its finally steps ended for {cause_name(self._run.finally_part.ending)!r}")
        for step in self._model.last:
            needed = step.depends_on[0] if step.when is not None else ""
            if needed and self._states[step.id] == "SKIPPED" and self._states[needed] != "SUCCEEDED":
                continue  # its condition asks for a success
            if self._states[step.id] not in ("SUCCEEDED", "FAILED"):
                self._bad(Kind.SKIPPED, f"the finally step {step.id} is {self._states[step.id]}")
        if any(process_state(process) == "LOST" for process in self._history.processes[self._run.id]):
            return  # what is left of it may go on for a while
        others = [line.at for step in self._model.steps for line in self._begins(step)]
        others += [line.at for step in self._model.steps for line in self._ends(step)]
        for step in self._model.last:
            for begin in self._begins(step):
                if begin.at < max(others, default=-1):
                    self._bad(Kind.ORDER, f"the finally step {step.id} began before all others had ended")

    def _check_before(self, step: StepModel, begin: Begin, before: StepModel) -> None:
        state = self._states[before.id]
        ended = [end.at for end in self._ends(before)]
        # One that was lost and repeated may have been done twice; the others are over with their last line.
        over = min if before.rerun_if_lost else max
        if state == "SUCCEEDED" and over(ended, default=begin.at) >= begin.at:
            self._bad(Kind.ORDER, f"{step.id} began before {before.id} had ended")
        elif state not in ("SUCCEEDED", "FAILED", "INCOMPLETE") and before.when is not False:
            self._bad(Kind.ORDER, f"{step.id} began, {before.id} is {state}")

    def _names(self, step: StepModel) -> list[tuple[str, str]]:
        """Run and name of all that may leave lines for a step."""
        if step.child:
            return [
                (child.id, each.id) for child in self._history.children(self._run.id, step.id) for each in child.steps
            ]
        names = [f"{step.id}[{n}]" for n in range(step.items)] if step.items else [step.id]
        if step.iterations:
            names.append(f"{step.id}{CHECK}")
        return [(self._run.id, name) for name in names]

    def _begins(self, step: StepModel) -> list[Begin]:
        return [line for name in self._names(step) for line in self._witness.begins_of(*name)]

    def _ends(self, step: StepModel) -> list[End]:
        return [line for name in self._names(step) for line in self._witness.ends_of(*name)]

    def _check_at_once(self, names: Sequence[str], limit: int) -> None:
        moments = [
            (line.at, change)
            for name in names
            for change, lines in (
                (1, self._witness.begins_of(self._run.id, name)),
                (-1, self._witness.ends_of(self._run.id, name)),
            )
            for line in lines
        ]
        running = most = 0
        for _, change in sorted(moments):
            running += change
            most = max(most, running)
        if most > limit:
            self._bad(Kind.ORDER, f"{most} steps at a time")

    # -- what steps made

    def _tokens_of(self, name: str) -> list[str]:
        """Of the attempts whose work counts: the last that succeeded, of each instance if there are such."""
        model = self._model.step(name)
        count = model.items if model is not None else 0
        tokens = []
        for unit in [f"{name}[{n}]" for n in range(count)] if count else [name]:
            done = [p for p in self._processes(unit) if process_state(p) == "COMPLETED"]
            begin = self._begin_of(done[-1]) if done else None
            tokens.append(begin.token if begin is not None else "")
        return tokens

    def _check_artifacts(self) -> None:
        for step in self._run.steps:
            model = self._model.unit(step.id)
            if model is None or not model.makes:
                continue
            if self._states[step.id] not in ("SUCCEEDED", "INCOMPLETE"):
                continue
            (token,) = self._tokens_of(step.id)
            if [each.name for each in step.artifacts] != [ARTIFACT]:
                self._bad(Kind.ARTIFACT, f"{step.id} has {len(step.artifacts)} artifacts")
                continue
            content = self._history.artifacts.content(self._run.id, step.id, ARTIFACT)
            if content != made(token):
                at = _difference(content, made(token))
                sizes = f"{len(content)} of {len(made(token))} bytes, different from {at} on"
                self._bad(Kind.ARTIFACT, f"that of {step.id}: {sizes}")

    # -- logs

    def _check_logs(self, printed: Printed) -> None:
        processes = self._history.processes[self._run.id]
        if not printed.complete and not any(process_state(p) == "LOST" for p in processes):
            states = {f"{p.step}.{p.attempt}": process_state(p) for p in processes}
            self._bad(Kind.LOG, f"it is told to be incomplete; its processes: {states}")
        for process in processes:
            model = self._model.unit(process.step)
            if model is None:
                self._bad(Kind.UNASKED, f"a process of {process.step}")
                continue
            begin = self._begin_of(process)
            got = tuple(printed.streams.get((process.step, process.attempt, stream), b"") for stream in (OUT, ERR))
            if begin is None:
                if any(got):
                    self._bad(Kind.LOG, f"{process.step} never began, and printed {got!r:.80}")
                continue
            repeated = self._witness.begins_of(self._run.id, model.repeats)
            read = self._tokens_of(model.reads) if model.reads else ()
            whole = model.printed(begin.token, repeated[-1].token if repeated else "", read)
            self._compare(process, got, whole)
            end = self._end_of(process)
            if process_state(process) == "COMPLETED" and end is not None and end.digests:
                digests = tuple(hashlib.sha256(data).hexdigest() for data in got)
                if digests != end.digests:
                    self._bad(Kind.LOG, f"{process.step} says that it wrote something else")

    def _compare(self, process: run_pb2.ProcessExecution, got: Sequence[bytes], whole: Sequence[bytes]) -> None:
        """All of it if the step came to its end, else as far as it came."""
        ended = process_state(process) in ("COMPLETED", "FAILED")
        counted = (process.stdout_log_bytes, process.stderr_log_bytes)
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


def _well(model: StepModel, step: run_pb2.Step) -> bool:
    """Whether a step of a run that succeeded may be what it is."""
    match state_name(step):
        case "SUCCEEDED":
            return model.when is not False
        case "FAILED":
            return model.continues
        case "INCOMPLETE":
            return model.incomplete
        case "SKIPPED":
            return model.when is False
        case _:
            return False


def _stopped_by_cancel(step: run_pb2.Step) -> bool:
    """A step that was about to be retried, and was not, is FAILED."""
    state = state_name(step)
    skipped = state == "SKIPPED" and step.skip_reason == run_pb2.SKIP_REASON_CANCELLED
    return skipped or state == "CANCELLED" or (state == "FAILED" and step.retry_stopped)


def _difference(data: bytes, expected: bytes) -> int:
    for at, (one, other) in enumerate(zip(data, expected, strict=False)):
        if one != other:
            return at
    return min(len(data), len(expected))
