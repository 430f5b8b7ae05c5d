"""The Python traceback of a failed run, from the end of what its failed step printed."""

from __future__ import annotations

from typing import Final

from toban.gateway.daemon_calls import DaemonCalls
from toban.v1 import run_pb2

# How Python begins a traceback.
_HEADING: Final = "Traceback (most recent call last):"


async def failure_traceback(calls: DaemonCalls, token: str, run: run_pb2.Run) -> tuple[str, str | None]:
    """The first step that failed, and its traceback if it printed one. Raises a TobanError."""
    step = next((each.id for each in run.steps if each.state == run_pb2.STEP_STATE_FAILED), "")
    if not step:
        return "", None
    listed: run_pb2.ListProcessExecutionsResponse = await calls.call(
        "RunService/ListProcessExecutions",
        run_pb2.ListProcessExecutionsRequest(run_id=run.id, step=step, page_size=1),
        token,
    )
    for each in listed.process_executions:
        request = run_pb2.GetProcessExecutionRequest(id=each.id)
        found: run_pb2.GetProcessExecutionResponse = await calls.call("RunService/GetProcessExecution", request, token)
        text = found.process_execution.stderr
        at = text.rfind(f"\n{_HEADING}") + 1 or (0 if text.startswith(_HEADING) else -1)
        return step, text[at:].rstrip("\n") if at >= 0 else None
    return step, None
