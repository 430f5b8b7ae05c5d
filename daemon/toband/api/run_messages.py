"""Messages for runs, steps, attempts and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from google.protobuf import duration_pb2, timestamp_pb2

from toban.definition import Step
from toban.limits import MAX_LISTED_BYTES, MAX_SHOWN_BYTES, MAX_TITLE_CHARS
from toban.safe_text import json_text, sendable
from toban.v1 import dead_letter_pb2, run_pb2
from toband.domain.attempt_model import Attempt, Progress, Sample, TreeEnding, Usage
from toband.domain.plan import Plan
from toband.domain.run_model import (
    Artifact,
    Awaited,
    DeadLetter,
    Ending,
    FinallyPart,
    Run,
    RunState,
    SkipReason,
    StepRun,
    StepState,
)
from toband.domain.run_waits import WaitingFor, run_waits_for, step_waits_for, steps_wait_for
from toband.domain.secret_params import shown_params
from toband.engine.runs.run_preview import PlannedStep
from toband.engine.runs.step_selection import definition_scope
from toband.ports import LogKind, OutputEnd

WAITING_STEPS = 5
"""How many ids of waiting steps the message of a run has at most."""


_CHANGE_KINDS = {name.removeprefix("RUN_CHANGE_KIND_"): number for name, number in run_pb2.RunChangeKind.items()}
# Waits that begin together are one change; earlier versions stored one for each.
_CHANGE_KINDS["WAITS_BEGUN"] = run_pb2.RUN_CHANGE_KIND_WAIT_BEGUN


def timestamp(value: datetime | None) -> timestamp_pb2.Timestamp | None:
    if value is None:
        return None
    made = timestamp_pb2.Timestamp()
    made.FromDatetime(value)
    return made


def duration(seconds: float) -> duration_pb2.Duration:
    made = duration_pb2.Duration()
    made.FromTimedelta(timedelta(seconds=seconds))
    return made


def run(value: Run, plan: Plan | None = None, *, title: str = "") -> run_pb2.Run:
    """`plan` adds facts of the definition, such as the steps that a step depends on. `title` is used without it."""
    index = plan.index.get(value.current_step, -1) if plan is not None else -1
    made = run_pb2.Run(
        id=value.id,
        workflow=value.workflow,
        workflow_title=(plan.workflow.title if plan is not None else title)[:MAX_TITLE_CHARS],
        version=value.version,
        number=value.number,
        scope=value.scope,
        definition_scope=definition_scope(plan.workflow, value) if plan is not None else "",
        state=run_pb2.RunState.Value(f"RUN_STATE_{value.state.value}"),
        waiting_for=waiting_for(run_waits_for(value, plan)),
        triggered_by=run_pb2.Trigger.Value(f"TRIGGER_{value.trigger.value}"),
        caller=value.caller,
        priority=value.priority,
        created_at=timestamp(value.created_at),
        started_at=timestamp(value.started_at),
        finished_at=timestamp(value.finished_at),
        current_step=value.current_step,
        current_step_index=index if value.current_step else -1,
        steps_ended=value.ended_steps,
        steps_total=value.total_steps,
        error_message=value.error,
        failed_steps=value.failed_steps,
        incomplete_steps=value.incomplete_steps,
        cancel_requested_at=timestamp(value.cancel_requested_at),
        paused_at=timestamp(value.paused_at),
        retry_of=value.retry_of,
        from_run=value.from_run,
        parent_run=value.parent_run,
        parent_step=value.parent_step,
        scheduled_at=timestamp(value.scheduled_at),
        missed=[made for at in value.missed if (made := timestamp(at)) is not None],
        schedule_id=value.schedule,
        event_id=value.event["id"] if value.event is not None else "",
        event_type=value.event["type"] if value.event is not None else "",
        depth=value.depth,
        params_bytes=value.params_bytes,
        labels=dict(value.labels),
        steps=[step(s, plan, paused=value.paused_at is not None) for s in value.steps.values()],
    )
    made.params.update(shown_params(value.params))
    _add_progress(made, value.progress)
    if not made.waiting_for and value.state is RunState.RUNNING:
        add_held_up(made, value)
    if value.ending is not None:
        made.ending.CopyFrom(_run_ending(value.ending))
    if value.finally_part is not None:
        made.finally_part.CopyFrom(_finally_part(value.finally_part))
    if value.pin is not None:
        made.pin.CopyFrom(run_pb2.RunPin(at=timestamp(value.pin.at), by=value.pin.by, note=value.pin.note))
    counts = [run_pb2.StepCount(state=step_state(state), count=count) for state, count in value.step_states.items()]
    made.summary.counts.extend(sorted(counts, key=lambda each: each.state))
    return made


def _add_progress(made: run_pb2.Run | run_pb2.Step, progress: Progress | None) -> None:
    if progress is not None:
        made.progress_current = progress.current
        made.progress_total = progress.total
        made.progress_message = progress.message


def leave_out_params(made: run_pb2.Run) -> None:
    """Leaves large parameters out of further messages about the same run."""
    size = made.params.ByteSize()
    if size > MAX_LISTED_BYTES:
        made.ClearField("params")
        made.params_bytes = size


def leave_out_items(made: run_pb2.Run) -> None:
    """Leaves large items out of a message about a change."""
    for each in made.steps:
        size = len(each.item_json.encode())
        if size > MAX_LISTED_BYTES:
            each.ClearField("item_json")
            each.item_bytes = size


def step_state(value: StepState) -> run_pb2.StepState.ValueType:
    return run_pb2.StepState.Value(f"STEP_STATE_{value.value}")


def waiting_for(value: WaitingFor | None) -> run_pb2.WaitingFor.ValueType:
    return run_pb2.WAITING_FOR_UNSPECIFIED if value is None else run_pb2.WaitingFor.Value(f"WAITING_FOR_{value.name}")


def skip_reason(value: SkipReason | None) -> run_pb2.SkipReason.ValueType:
    return run_pb2.SKIP_REASON_UNSPECIFIED if value is None else run_pb2.SkipReason.Value(f"SKIP_REASON_{value.name}")


def _run_ending(value: Ending) -> run_pb2.RunEnding:
    cause = run_pb2.RunEndingCause.Value(f"RUN_ENDING_CAUSE_{value.cause.name}")
    return run_pb2.RunEnding(cause=cause, at=timestamp(value.at))


def _finally_part(value: FinallyPart) -> run_pb2.FinallyPart:
    made = run_pb2.FinallyPart(
        state=run_pb2.RunState.Value(f"RUN_STATE_{value.state.value}"), began_at=timestamp(value.began_at)
    )
    if value.ending is not None:
        made.ending.CopyFrom(_run_ending(value.ending))
    return made


def add_held_up(made: run_pb2.Run, value: Run) -> None:
    """The run waits if all steps that have started wait."""
    begun = [each for each in made.steps if value.steps[each.id].state.moving and not each.instances]
    if begun and all(each.waiting_for for each in begun):
        made.waiting_for = begun[0].waiting_for
        made.waiting_steps.extend(each.id for each in begun[:WAITING_STEPS])


def add_waiting_steps(made: run_pb2.Run, value: Run) -> None:
    """The same for a message without steps."""
    if (waits := steps_wait_for(value)) is not None:
        reason, steps = waits
        made.waiting_for = waiting_for(reason)
        made.waiting_steps.extend(steps[:WAITING_STEPS])


def step(value: StepRun, plan: Plan | None = None, *, paused: bool = False) -> run_pb2.Step:
    defined = plan.step(value.id) if plan is not None else None
    made = run_pb2.Step(
        id=value.id,
        index=value.index,
        state=step_state(value.state),
        reason=value.reason,
        attempts=value.attempts,
        started_at=timestamp(value.started_at),
        finished_at=timestamp(value.finished_at),
        result_json=_json(value.result),
        outputs=dict(value.outputs),
        exit_code=value.exit_code,
        parent=value.parent,
        instance=value.instance,
        instances=value.instances,
        iteration=value.iteration,
        checks=value.checks,
        not_before=timestamp(value.not_before),
        waiting_for=waiting_for(step_waits_for(value, paused=paused)),
        skip_reason=skip_reason(value.skip_reason),
        retry_stopped=value.retry_stopped,
        skipped_by=value.skipped_by,
        skip_note=value.skip_note,
        source_run=value.source,
        artifacts=[artifact(each) for each in value.artifacts],
        result_bytes=value.spilled,
        retries=value.retries,
    )
    _add_progress(made, value.progress)
    if value.instance is not None:
        # An item may be null, which differs from no item.
        item = json_text(value.item)
        size = value.item_bytes or len(item.encode())
        if value.item_bytes or size > MAX_SHOWN_BYTES:
            made.item_bytes = size
        else:
            made.item_json = item
    if value.attempt is not None and value.attempt.child:
        made.child_run = value.attempt.id
    if value.error_class is not None:
        made.error_class = run_pb2.ErrorClass.Value(f"ERROR_CLASS_{value.error_class.value}")
    if plan is not None and defined is not None:
        made.title = plan.title(value.id) or defined.id
        _add_definition(made, defined)
    if value.awaited is not None:
        made.awaited.CopyFrom(_awaited(value, value.awaited, defined))
    return made


def _awaited(value: StepRun, awaited: Awaited, defined: Step | None) -> run_pb2.Awaited:
    made = run_pb2.Awaited(until=timestamp(awaited.until), event_types=awaited.events, file=awaited.file)
    if defined is not None and defined.wait is not None:
        made.condition = defined.wait.condition
    if defined is not None and defined.timeout is not None and value.started_at is not None:
        made.timeout_at.FromDatetime(value.started_at + timedelta(seconds=defined.timeout))
    return made


def _add_definition(made: run_pb2.Step, defined: Step) -> None:
    made.depends_on.extend(defined.depends_on)
    made.max_retries = defined.max_retries
    made.job_type = job_type(defined.job_type)
    made.job = defined.job
    made.approvers.extend(defined.approvers)
    made.is_finally = defined.is_finally
    if defined.completion_check is not None:
        made.max_iterations = defined.max_iterations
    else:
        made.iteration = 0


def job_type(name: str) -> run_pb2.JobType.ValueType:
    return run_pb2.JobType.Value(f"JOB_TYPE_{name.upper()}")


def change_kind(event: str) -> run_pb2.RunChangeKind.ValueType:
    """Unspecified for an event that only an earlier version of the daemon stored."""
    return run_pb2.RunChangeKind.ValueType(_CHANGE_KINDS.get(event.upper(), run_pb2.RUN_CHANGE_KIND_UNSPECIFIED))


def _json(value: object) -> str:
    return json_text(value) if value is not None else ""


def artifact(value: Artifact) -> run_pb2.Artifact:
    return run_pb2.Artifact(
        name=value.name,
        path=sendable(value.path),
        type=value.type,
        files=value.files,
        bytes=value.bytes,
        state=run_pb2.ProcessState.Value(f"PROCESS_STATE_{value.state.value}"),
    )


def planned_step(value: PlannedStep) -> run_pb2.PlannedStep:
    return run_pb2.PlannedStep(
        id=value.id,
        title=value.title[:MAX_TITLE_CHARS],
        job_type=job_type(value.job_type),
        command=value.command,
        depends_on=value.depends_on,
        when=value.when,
        for_each=value.for_each,
        max_iterations=value.max_iterations,
        skip_reason=skip_reason(value.skipped),
        source_run=value.source,
        is_finally=value.is_finally,
    )


def dead_letter(value: DeadLetter, plan: Plan | None = None) -> dead_letter_pb2.DeadLetter:
    """`plan` is that of its run, if the run still exists."""
    state = f"DEAD_LETTER_STATE_{value.state.value}"
    return dead_letter_pb2.DeadLetter(
        id=value.id,
        run_id=value.run_id,
        workflow=value.workflow,
        workflow_title=workflow_title(plan),
        step=value.step,
        step_title=plan.title(value.step) if plan is not None else "",
        process_execution_id=value.attempt_id,
        attempts=value.attempts,
        error_message=value.error,
        error_class=run_pb2.ErrorClass.Value(f"ERROR_CLASS_{value.error_class.value}"),
        created_at=timestamp(value.created_at),
        state=dead_letter_pb2.DeadLetterState.Value(state),
        resolved_at=timestamp(value.resolved_at),
        resolved_by=value.resolved_by,
        requeued_as=value.requeued_as,
    )


def workflow_title(plan: Plan | None) -> str:
    """The title of the workflow; empty if it is its name."""
    if plan is None or plan.workflow.title == plan.workflow.name:
        return ""
    return plan.workflow.title[:MAX_TITLE_CHARS]


def process_execution(
    value: Attempt, usage: Usage | None = None, *, plan: Plan | None = None, only_latest: bool = False
) -> run_pb2.ProcessExecution:
    """`usage` are its samples; with `only_latest` only the last one is included. `plan` is that of its run."""
    made = run_pb2.ProcessExecution(
        id=value.id,
        job=value.job,
        run_id=value.run_id,
        workflow=value.workflow,
        step=value.step,
        step_title=plan.title(value.step) if plan is not None else "",
        iteration=value.iteration,
        check=value.check,
        child_run=value.id if value.child else "",
        attempt=value.number,
        command=value.command,
        pid=value.pid or 0,
        exit_code=value.exit_code,
        signal=value.signal or 0,
        state=run_pb2.ProcessState.Value(f"PROCESS_STATE_{value.state.value}"),
        error_message=value.error,
        launched_at=timestamp(value.created_at),
        started_at=timestamp(value.started_at),
        finished_at=timestamp(value.finished_at),
        resources=run_pb2.ResourceUse(
            user_time=duration(value.resources.user_time),
            system_time=duration(value.resources.system_time),
            max_rss_bytes=value.resources.max_rss_bytes,
        ),
        stdout_log_bytes=value.stdout_bytes,
        stderr_log_bytes=value.stderr_bytes,
        dropped_bytes=value.dropped_bytes,
    )
    if value.error_class is not None:
        made.error_class = run_pb2.ErrorClass.Value(f"ERROR_CLASS_{value.error_class.value}")
    if value.ending is not None:
        made.ending.CopyFrom(_ending(value.ending))
    if usage is not None:
        made.resources.peak_rss_bytes = usage.peak_rss_bytes
        made.resources.peak_processes = usage.peak_processes
        shown = usage.samples[-1:] if only_latest else usage.samples
        made.resources.samples.extend(map(_sample, shown))
    return made


def add_output(made: run_pb2.ProcessExecution, ends: Mapping[LogKind, OutputEnd]) -> None:
    """Adds the ends of its streams as text."""
    out, err = (ends.get(kind, OutputEnd()) for kind in (LogKind.STDOUT, LogKind.STDERR))
    made.stdout, made.stdout_truncated = _text(out), out.truncated
    made.stderr, made.stderr_truncated = _text(err), err.truncated


def _text(end: OutputEnd) -> str:
    """A cut may be within a character, whose rest is left out."""
    start = 0
    while end.truncated and start < min(3, len(end.data)) and end.data[start] & 0xC0 == 0x80:
        start += 1
    return end.data[start:].decode(errors="replace")


def _sample(value: Sample) -> run_pb2.ResourceSample:
    return run_pb2.ResourceSample(
        at=timestamp(value.at),
        cpu=value.cpu,
        rss_bytes=value.rss_bytes,
        processes=value.processes,
        read_bytes=value.read_bytes,
        written_bytes=value.written_bytes,
    )


def _ending(value: TreeEnding) -> run_pb2.ProcessEnding:
    return run_pb2.ProcessEnding(
        cause=run_pb2.ProcessEndingCause.Value(f"PROCESS_ENDING_CAUSE_{value.cause.name}"),
        signals=value.signals,
        leftovers=value.leftovers,
        survivors=value.survivors,
        proved_empty=value.proved_empty,
        took=duration(value.took),
        orphans=run_pb2.Orphans.Value(f"ORPHANS_{value.orphans.name if value.orphans else 'UNSPECIFIED'}"),
        survivor_pids=value.survivor_pids,
        by_daemon=value.by_daemon,
        limit=value.limit,
        cgroup=value.cgroup,
    )
