"""The functions of python-steps.yaml. What they print is the log; what they return must fit into JSON."""

from __future__ import annotations

from toban.step import Context, RateLimitError, ValidationError


def read_rows(context: Context) -> dict[str, object]:
    """Knows the parameters of the run without being given them, tells how far it is, and hands on a value."""
    rows: int = context.params["rows"]
    total = 0
    for number in range(1, rows + 1):
        total += number * number
        context.progress(number, rows, f"row {number}")
    context.output("total", total)
    return {"names": [f"row-{number}" for number in range(1, rows + 1)]}


async def ask_service(about: list[str], context: Context) -> str:
    """Raises RateLimitError, with the wait that was asked for, where a real service would be busy."""
    if context.metadata["attempt"] == 1:
        raise RateLimitError("too many requests", retry_after=0.1)
    return f"yes to {', '.join(about)}"


def validate(total: str, least: int) -> None:
    """Raises ValidationError if there is too little: the same every time, so nobody tries again."""
    if int(total) < least:
        raise ValidationError(f"the total is {total}, at least {least} is needed")
