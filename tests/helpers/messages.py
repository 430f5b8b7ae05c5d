"""Short forms of the daemon's answers: names of states, causes and reasons, and the text of logs."""

from __future__ import annotations

from collections.abc import Sequence

from toban.v1 import run_pb2


def steps_of(run: run_pb2.Run) -> dict[str, run_pb2.Step]:
    return {step.id: step for step in run.steps}


def step_states(run: run_pb2.Run) -> dict[str, str]:
    """Such as `SUCCEEDED`, or `SKIPPED(cancelled)` where a step was skipped."""
    states = {}
    for step in run.steps:
        name = run_pb2.StepState.Name(step.state).removeprefix("STEP_STATE_")
        skipped = step.state == run_pb2.STEP_STATE_SKIPPED
        states[step.id] = f"{name}({skip_reason(step)})" if skipped else name
    return states


def run_state(run: run_pb2.Run) -> str:
    return run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")


def process_state(execution: run_pb2.ProcessExecution) -> str:
    return run_pb2.ProcessState.Name(execution.state).removeprefix("PROCESS_STATE_")


def cause_name(ending: run_pb2.RunEnding | run_pb2.ProcessEnding) -> str:
    """Why it ended, such as `timeout`; empty if that is not known."""
    if isinstance(ending, run_pb2.RunEnding):
        name = run_pb2.RunEndingCause.Name(ending.cause).removeprefix("RUN_ENDING_CAUSE_")
    else:
        name = run_pb2.ProcessEndingCause.Name(ending.cause).removeprefix("PROCESS_ENDING_CAUSE_")
    return name.lower() if ending.cause else ""


def skip_reason(step: run_pb2.Step | run_pb2.PlannedStep) -> str:
    """Such as `upstream`; empty if it was not skipped."""
    name = run_pb2.SkipReason.Name(step.skip_reason).removeprefix("SKIP_REASON_")
    return name.lower() if step.skip_reason else ""


def waits_for(of: run_pb2.Run | run_pb2.Step) -> str:
    """Such as `QUEUE`; empty if it waits for nothing."""
    return run_pb2.WaitingFor.Name(of.waiting_for).removeprefix("WAITING_FOR_") if of.waiting_for else ""


def error_class(of: run_pb2.ProcessExecution | run_pb2.Step) -> str:
    return run_pb2.ErrorClass.Name(of.error_class).removeprefix("ERROR_CLASS_")


def texts(chunks: Sequence[run_pb2.StreamLogsResponse]) -> dict[tuple[str, int], bytes]:
    """What messages of StreamLogs carry, put together by step and stream."""
    printed: dict[tuple[str, int], bytearray] = {}
    for message in chunks:
        for record in message.chunk.records:
            key = (message.chunk.step, record.stream)
            printed.setdefault(key, bytearray()).extend(record.data)
    return {key: bytes(data) for key, data in printed.items()}
