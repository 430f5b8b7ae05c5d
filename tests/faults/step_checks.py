"""One run against its model: each of its steps, and each process of them."""

from __future__ import annotations

from collections.abc import Sequence

from faults.defects import Defect, Excuse, Kind, Unkept
from faults.history import AttemptOnDisk, History, file_name
from faults.load import Ledger
from faults.witness import Begin, End, Witness
from faults.workload import CHECK, StepModel, WorkflowModel
from helpers.daemon import cause_name, process_state, run_state, skip_reason
from toban.v1 import run_pb2

LATE = 20.0
"""How much later than timeout and grace an end may be recorded: the machine may be busy, and its disk slow.

Much less than what steps take that only a timeout ends.
"""
EARLY = 0.2
"""A run's timeout counts from before a process of it is made, which may take a moment; shown is when it was there."""

_CHILD_ENDS = {
    "COMPLETED": ("SUCCEEDED",),
    "FAILED": ("FAILED", "TIMED_OUT"),
    "CANCELLED": ("CANCELLED",),
}
_LAST = {
    "SUCCEEDED": ("COMPLETED",),
    "FAILED": ("FAILED", "TIMED_OUT", "LOST"),
    "CANCELLED": ("CANCELLED", "TIMED_OUT"),
}


class StepChecks:
    def __init__(
        self,
        model: WorkflowModel,
        run: run_pb2.Run,
        ledger: Ledger,
        history: History,
        witness: Witness,
        lost: Excuse,
        unstarted: Excuse,
        unkept: Unkept,
    ) -> None:
        self._model = model
        self._run = run
        self._ledger = ledger
        self._history = history
        self._witness = witness
        self._lost = lost
        self._unstarted = unstarted
        self._unkept = unkept
        self._found: list[Defect] = []
        self._states = {step.id: state_name(step) for step in run.steps}

    def _bad(self, kind: Kind, text: str) -> None:
        where = f"run {self._run.id} of {self._model.name}, {run_state(self._run)}"
        self._found.append(Defect(kind=kind, text=f"{where}: {text}"))

    def _check_steps(self) -> None:
        letters = 0
        for step in self._run.steps:
            model = self._model.step(step.parent or step.id)
            assert model is not None
            if model.items and not step.parent:
                self._check_group(model, step)
            elif model.child:
                self._check_child(model, step)
            else:
                unit = self._model.unit(step.id)
                assert unit is not None
                self._check_unit(unit, step)
                letters += self._check_letter(unit, step)
        if letters != len(self._history.letters.get(self._run.id, ())):
            self._bad(Kind.LETTER, f"there are others than {letters} of steps that were retried")

    # -- steps that have processes

    def _check_unit(self, model: StepModel, step: run_pb2.Step) -> None:
        processes = self._processes(step.id)
        checks = self._processes(f"{step.id}{CHECK}") if model.iterations else []
        self._check_count(model, processes)
        if model.iterations:
            self._check_count(model.check, checks)
        state = self._states[step.id]
        if state == "SKIPPED":
            self._check_skipped(model, step, processes)
            return
        if state not in (*_LAST, "INCOMPLETE"):
            if run_state(self._run) not in ("PENDING", "RUNNING"):
                self._bad(Kind.UNTRUE, f"the run has ended, and {step.id} is {state}")
            return
        if not processes:
            self._bad(Kind.UNTRUE, f"{step.id} is {state} and has no process")
            return
        if state == "CANCELLED" and not self._run.ending.cause and not self._is_last(model):
            self._bad(Kind.UNTRUE, f"{step.id} is CANCELLED and the run was not ending")
        if model.iterations:
            self._check_loop(model, step, sorted([*processes, *checks], key=lambda p: p.id))
        else:
            self._check_attempts(model, step, processes)
        for process in processes:
            self._check_process(model, process)
        for process in checks:
            self._check_process(model.check, process)

    def _is_last(self, model: StepModel) -> bool:
        """Whether it is a finally step: what became of those is looked at for all of them together."""
        return model.id.partition("[")[0] in {step.id for step in self._model.last}

    def _processes(self, name: str) -> list[run_pb2.ProcessExecution]:
        found = (p for p in self._history.processes[self._run.id] if p.step == name)
        return sorted(found, key=lambda p: p.attempt)

    def _check_count(self, model: StepModel, processes: Sequence[run_pb2.ProcessExecution]) -> None:
        begins = self._witness.begins_of(self._run.id, model.id)
        ends = self._witness.ends_of(self._run.id, model.id)
        tokens = [begin.token for begin in begins]
        if len(tokens) != len(set(tokens)) or len(ends) > len(begins):
            self._bad(Kind.DOUBLED, f"{model.id} began for {tokens}, ended {len(ends)} times")
        if len(begins) > len(processes):
            count = f"{len(begins)} times, for {len(processes)} attempts"
            self._bad(Kind.DOUBLED, f"{model.id} began {count}")
        if [process.attempt for process in processes] != list(range(1, len(processes) + 1)):
            self._bad(Kind.DOUBLED, f"{model.id} has attempts that are not counted one by one")

    def _check_attempts(
        self, model: StepModel, step: run_pb2.Step, processes: Sequence[run_pb2.ProcessExecution]
    ) -> None:
        """Each but the last is repeated for a reason, and not more often than it may be; the last decides."""
        state = self._states[step.id]
        for number, earlier in enumerate(processes[:-1], 1):
            again = _failed_by_itself(earlier) and number <= model.retries
            if not again and not (process_state(earlier) == "LOST" and model.rerun_if_lost):
                text = f"{model.id} has {len(processes)} attempts, one is {process_state(earlier)}"
                self._bad(Kind.DOUBLED, text)
        last = processes[-1]
        if state == "FAILED" and len(processes) > 1 and _never_began(last):
            # It was about to be tried again when the run ended.
            last = processes[-2]
        if process_state(last) not in _LAST.get(state, ()):
            why = self._why_kept(model, step, last)
            if why:
                text = f"{model.id} is {state}, its process {process_state(last)}"
                self._bad(Kind.UNTRUE, f"{text}: {why}")
        left = state == "FAILED" and _failed_by_itself(last) and last.attempt <= model.retries
        if left and not step.retry_stopped:
            text = f"{model.id} failed after {last.attempt} attempts, and nothing stopped it"
            self._bad(Kind.SKIPPED, text)

    def _check_letter(self, model: StepModel, step: run_pb2.Step) -> int:
        """How many dead letters there should be of it: one, if it failed for good."""
        found = [m for m in self._history.letters.get(self._run.id, ()) if m.step == step.id]
        processes = self._processes(step.id)
        expected = 0
        if model.retries and self._states[step.id] == "FAILED" and processes:
            stopped = _never_began(processes[-1]) or (
                _failed_by_itself(processes[-1]) and len(processes) <= model.retries
            )
            expected = 0 if stopped else 1
        if len(found) != expected:
            self._bad(Kind.LETTER, f"{step.id} has {len(found)}, and should have {expected}")
        elif found and found[0].attempts != len(processes):
            self._bad(Kind.LETTER, f"that of {step.id} tells of {found[0].attempts} attempts")
        return expected

    def _check_loop(self, model: StepModel, step: run_pb2.Step, attempts: Sequence[run_pb2.ProcessExecution]) -> None:
        """Attempt and check in turns, each once in an iteration, until a check is content or that was all."""
        iteration, checking, over = 1, False, ""
        for process in attempts:
            what = f"{process.step} of iteration {process.iteration}"
            if over or (process.step.endswith(CHECK), process.iteration) != (checking, iteration):
                self._bad(Kind.DOUBLED, f"{what} does not follow ({over or 'out of turn'})")
                return
            match process_state(process):
                case "COMPLETED" if not checking:
                    checking = True
                case "COMPLETED":
                    over = "SUCCEEDED"
                case "FAILED" if checking and process.pid:
                    over = "INCOMPLETE" if iteration == model.max_iterations else ""
                    iteration, checking = iteration + 1, False
                case "FAILED" | "LOST":
                    over = "FAILED"
                case _:
                    over = "CANCELLED"
        state = self._states[step.id]
        unkept = not over and not self._why_kept(model, step, attempts[-1])
        if state != (over or "CANCELLED") and not unkept:
            self._bad(Kind.UNTRUE, f"{step.id} is {state}, its attempts say {over or 'stopped'}")
        if step.iteration != attempts[-1].iteration:
            text = f"{step.id} is told to have {step.iteration} iterations"
            self._bad(Kind.UNTRUE, f"{text}, and had {attempts[-1].iteration}")

    def _why_kept(self, model: StepModel, step: run_pb2.Step, last: run_pb2.ProcessExecution) -> str:
        """Why it cannot be that a step did not succeed after its work was done; empty: its outputs were not kept."""
        state = self._states[step.id]
        if not model.makes or process_state(last) != "COMPLETED":
            return "that is no reason"
        if state == "CANCELLED" and self._run.ending.cause:
            return ""  # the run ended while they were being collected
        return self._unkept(last, step) if state == "FAILED" else "that is no reason"

    def _check_skipped(
        self,
        model: StepModel,
        step: run_pb2.Step,
        processes: Sequence[run_pb2.ProcessExecution],
    ) -> None:
        begins = self._witness.begins_of(self._run.id, step.id)
        if len(begins) > sum(process_state(p) == "LOST" for p in processes):
            self._bad(Kind.UNTRUE, f"{step.id} is SKIPPED, and began")
        if self._is_last(model):
            return
        if step.skip_reason == run_pb2.SKIP_REASON_WHEN and model.when is False:
            return
        cause = cause_name(self._run.ending)
        if not cause or skip_reason(step) != cause:
            text = f"{step.id} for {skip_reason(step)!r}, the run ended for {cause!r}"
            self._bad(Kind.SKIPPED, text)

    # -- steps that have none

    def _check_group(self, model: StepModel, step: run_pb2.Step) -> None:
        """A step that is run for items is what its instances are."""
        members = [each for each in self._run.steps if each.parent == step.id]
        state = self._states[step.id]
        if state == "SKIPPED":
            self._check_skipped(model, step, ())
            if members:
                self._bad(Kind.UNTRUE, f"{step.id} is SKIPPED, and has instances")
            return
        if [each.id for each in members] != [f"{step.id}[{n}]" for n in range(model.items)]:
            self._bad(Kind.SKIPPED, f"{step.id} has the instances {[each.id for each in members]}")
        states = {self._states[each.id] for each in members}
        expected = "SUCCEEDED"
        if "FAILED" in states:
            expected = "FAILED"
        elif states & {"CANCELLED", "SKIPPED"}:
            expected = "CANCELLED"
        if state != expected:
            self._bad(Kind.UNTRUE, f"{step.id} is {state}, its instances {sorted(states)}")

    def _check_child(self, model: StepModel, step: run_pb2.Step) -> None:
        """One attempt, one child, and what became of it is what the step says."""
        state = self._states[step.id]
        processes = self._processes(step.id)
        children = {child.id: child for child in self._history.children(self._run.id, step.id)}
        if len(processes) > 1 or len(children) > len(processes):
            count = f"{len(processes)} attempts and {len(children)} children"
            self._bad(Kind.DOUBLED, f"{step.id} has {count}")
            return
        if state == "SKIPPED":
            self._check_skipped(model, step, ())
            if children:
                self._bad(Kind.UNTRUE, f"{step.id} is SKIPPED, and has a child")
            return
        if not processes:
            self._bad(Kind.UNTRUE, f"{step.id} is {state} and has no attempt")
            return
        (process,) = processes
        told = process_state(process)
        child = children.get(process.id)
        if told not in _LAST.get(state, ()):
            self._bad(Kind.UNTRUE, f"{step.id} is {state}, its attempt {told}")
        if child is None:
            why = self._unstarted(process, None) if told == "FAILED" else ""
            if told == "COMPLETED" or why:
                self._bad(Kind.SKIPPED, f"{step.id} is {state}, and there is no child: {why}")
        elif run_state(child) not in _CHILD_ENDS.get(told, ()):
            self._bad(Kind.UNTRUE, f"{step.id} is {state}, its child {run_state(child)}")
        elif process.child_run != child.id or step.child_run != child.id:
            self._bad(Kind.UNTRUE, f"{step.id} names {step.child_run} as its child {child.id}")

    # -- one process

    def _check_process(self, model: StepModel, process: run_pb2.ProcessExecution) -> None:
        begins = self._witness.begins_of(self._run.id, model.id)
        end = self._end_of(process)
        match process_state(process):
            case "COMPLETED":
                self._exited(model, process, end, "SUCCEEDED")
                if model.code_of(process.attempt, process.iteration) != 0:
                    self._bad(Kind.UNTRUE, f"{model.id} cannot succeed")
            case "FAILED":
                if not process.pid:
                    why = self._unstarted(process, self._file_of(process))
                    if why or (begins and len(begins) >= process.attempt):
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

    def _exited(self, model: StepModel, process: run_pb2.ProcessExecution, end: End | None, state: str) -> None:
        if end is None:
            what = f"exit code {process.exit_code}, signal {process.signal}"
            self._bad(Kind.UNTRUE, f"{model.id} is {state} ({what}) and never came to its end")
            return
        if not process.HasField("exit_code") or process.exit_code != end.code:
            text = f"{model.id} exited with {end.code}, told is {process.exit_code}"
            self._bad(Kind.UNTRUE, text)
        if end.code != model.code_of(process.attempt, process.iteration):
            which = f"attempt {process.attempt}, iteration {process.iteration}"
            self._bad(Kind.UNTRUE, f"{model.id} exited with {end.code}, which is not of {which}")

    def _timed_out(self, model: StepModel, process: run_pb2.ProcessExecution, end: End | None) -> None:
        cause = cause_name(process.ending)
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
        wanted = (file_name(process.step), process.attempt)
        files = self._history.files.get(self._run.id, ())
        found = [file for file in files if (file.step, file.number) == wanted]
        return min(found, key=lambda file: file.void, default=None)

    # -- whose lines of the witness file are whose

    def _begin_of(self, process: run_pb2.ProcessExecution) -> Begin | None:
        """Attempts begin in order; one that was lost before its process did anything left no line."""
        begins = self._witness.begins_of(self._run.id, process.step)
        processes = self._processes(process.step)
        index = process.attempt - 1
        if len(begins) < len(processes) and _left_a_line(process):
            before, after = processes[:index], processes[index + 1 :]
            if not all(map(_left_a_line, before)) and all(map(_left_a_line, after)):
                index = len(begins) - 1 - len(after)
        return begins[index] if 0 <= index < len(begins) else None

    def _end_of(self, process: run_pb2.ProcessExecution) -> End | None:
        begin = self._begin_of(process)
        ends = self._witness.ends_of(self._run.id, process.step)
        if begin is None:
            return None
        return next((end for end in ends if end.token == begin.token), None)


def state_name(step: run_pb2.Step) -> str:
    return run_pb2.StepState.Name(step.state).removeprefix("STEP_STATE_")


def _failed_by_itself(process: run_pb2.ProcessExecution) -> bool:
    return process_state(process) == "FAILED" and process.pid != 0


def _never_began(process: run_pb2.ProcessExecution) -> bool:
    return process_state(process) == "CANCELLED" and not process.pid


def _left_a_line(process: run_pb2.ProcessExecution) -> bool:
    """A lost one may have left none."""
    return process.pid != 0 and process_state(process) != "LOST"
