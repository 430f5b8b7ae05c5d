"""From values of the domain to messages of the API."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2

from toban.v1 import run_pb2, workflow_pb2
from toband.domain.model import Attempt, Run, RunState, Sample, StepRun, TreeEnding, Usage
from toband.domain.plan import Plan
from toband.ports import StoredWorkflow, WorkflowVersion


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


def workflow(value: StoredWorkflow) -> workflow_pb2.Workflow:
    return workflow_pb2.Workflow(
        name=value.name,
        title=value.title,
        description=value.description,
        labels=dict(value.labels),
        enabled=value.enabled,
        version=value.version,
        owner=value.owner,
        definition=definition(value.definition) if value.definition else None,
        created_at=timestamp(value.created_at),
        updated_at=timestamp(value.updated_at),
        etag=value.etag,
    )


def definition(value: WorkflowVersion) -> workflow_pb2.Definition:
    return workflow_pb2.Definition(
        source=value.source,
        base_dir=value.base_dir,
        parsed_json=json.dumps(dict(value.parsed), ensure_ascii=False),
    )


def version(value: WorkflowVersion) -> workflow_pb2.WorkflowVersion:
    return workflow_pb2.WorkflowVersion(
        workflow=value.workflow,
        version=value.version,
        definition=definition(value) if value.source else None,
        digest=value.digest,
        created_at=timestamp(value.created_at),
    )


def run(value: Run, plan: Plan | None = None) -> run_pb2.Run:
    """`plan` adds what only the definition knows: which steps a step waits for."""
    params = struct_pb2.Struct()
    params.update(dict(value.params))
    index = plan.index.get(value.current_step, -1) if plan is not None else -1
    made = run_pb2.Run(
        id=value.id,
        workflow=value.workflow,
        version=value.version,
        number=value.number,
        scope=value.scope,
        state=run_pb2.RunState.Value(f"RUN_STATE_{value.state.value}"),
        waiting_for=_waiting_for(value),
        triggered_by=run_pb2.Trigger.Value(f"TRIGGER_{value.trigger.value}"),
        caller=value.caller,
        priority=value.priority,
        params=params,
        created_at=timestamp(value.created_at),
        started_at=timestamp(value.started_at),
        finished_at=timestamp(value.finished_at),
        current_step=value.current_step,
        current_step_index=index if value.current_step else -1,
        progress_current=value.ended_steps,
        progress_total=value.total_steps,
        error_message=value.error,
        failed_steps=value.failed_steps,
        cancel_requested_at=timestamp(value.cancel_requested_at),
        steps=[step(s, plan) for s in value.steps.values()],
    )
    if value.ending is not None:
        made.ending.CopyFrom(
            run_pb2.RunEnding(cause=value.ending.cause.value, at=timestamp(value.ending.at))
        )
    if value.total_steps == len(value.steps):
        made.summary_json = summary(value.steps.values())
    return made


def summary(steps: Iterable[StepRun]) -> str:
    return json.dumps(dict(sorted(Counter(step.state.value for step in steps).items())))


def _waiting_for(value: Run) -> str:
    if value.state is RunState.PENDING:
        return "its start"
    if value.state is RunState.RUNNING and value.ending is not None:
        return "the end of its processes"
    return ""


def step(value: StepRun, plan: Plan | None = None) -> run_pb2.Step:
    made = run_pb2.Step(
        id=value.id,
        index=value.index,
        state=run_pb2.StepState.Value(f"STEP_STATE_{value.state.value}"),
        reason=value.reason,
        attempts=value.attempts,
        started_at=timestamp(value.started_at),
        finished_at=timestamp(value.finished_at),
        result_json=json.dumps(value.result, ensure_ascii=False)
        if value.result is not None
        else "",
        outputs=dict(value.outputs),
        exit_code=value.exit_code,
        depends_on=plan.steps[value.id].depends_on if plan is not None else (),
    )
    if value.error_class is not None:
        made.error_class = run_pb2.ErrorClass.Value(f"ERROR_CLASS_{value.error_class.value}")
    return made


def process_execution(
    value: Attempt, workflow_name: str, usage: Usage | None = None, *, only_latest: bool = False
) -> run_pb2.ProcessExecution:
    """`usage` is what was sampled of it; with `only_latest` the series is left out but for its end."""
    made = run_pb2.ProcessExecution(
        id=value.id,
        run_id=value.run_id,
        workflow=workflow_name,
        step=value.step,
        attempt=value.number,
        command=value.command,
        pid=value.pid or 0,
        exit_code=value.exit_code,
        signal=value.signal or 0,
        state=run_pb2.ProcessState.Value(f"PROCESS_STATE_{value.state.value}"),
        error_message=value.error,
        started_at=timestamp(value.started_at),
        finished_at=timestamp(value.finished_at),
        resources=run_pb2.ResourceUse(
            user_time=duration(value.resources.user_time),
            system_time=duration(value.resources.system_time),
            max_rss_bytes=value.resources.max_rss_bytes,
        ),
        stdout_bytes=value.stdout_bytes,
        stderr_bytes=value.stderr_bytes,
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
        cause=value.cause.value,
        signals=value.signals,
        leftovers=value.leftovers,
        survivors=value.survivors,
        proved_empty=value.proved_empty,
        took=duration(value.took),
        orphans=value.orphans,
        limit=value.limit,
        cgroup=value.cgroup,
    )
