"""Functions of python-steps.yaml. Their output is the log; their return values must be JSON values."""

from __future__ import annotations

from toban.step import Context, Emitter, Event, RateLimitError, ValidationError, WorkflowResult


def read_rows(context: Context) -> dict[str, object]:
    """Reads the parameters of the run from the context, reports progress, and passes a value on."""
    rows: int = context.params["rows"]
    total = 0
    for number in range(1, rows + 1):
        total += number * number
        context.progress(number, rows, f"row {number}")
    context.output("total", total)
    return {"names": [f"row-{number}" for number in range(1, rows + 1)]}


async def ask_service(about: list[str], context: Context) -> str:
    """Raises RateLimitError with a delay at its first attempt, as a busy service would."""
    if context.metadata["attempt"] == 1:
        raise RateLimitError("too many requests", retry_after=0.1)
    return f"yes to {', '.join(about)}"


def announce(names: list[str], event: Event, context: Context, emitter: Emitter) -> WorkflowResult:
    """Gets the event that started the run, false if none did, and emits one; the result says whether it succeeded."""
    if not names:
        return WorkflowResult(False, error="there are no rows to announce")
    emitter.emit("rows.read", {"rows": len(names)}, dedupe_key=context.metadata["run_id"])
    return WorkflowResult(True, output={"started_by": event.type or "hand"})


def validate(total: str, least: int) -> None:
    """Raises ValidationError if the total is too small: a permanent failure, so there is no retry."""
    if int(total) < least:
        raise ValidationError(f"the total is {total}, at least {least} is needed")
