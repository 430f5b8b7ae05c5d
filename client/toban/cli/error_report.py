"""What a command says when it cannot do its work, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from toban.cli.exits import Exit

if TYPE_CHECKING:
    from toban.sdk import InvalidArgument, TobanError

START_HINT: Final = (
    "start a daemon with `toband`, or try things with `toban dev`; --server or TOBAN_SERVER names another address"
)


_EXHAUSTED: Final = {
    "DISK_FULL": "`toban system info` shows how the daemon does",
    "TOO_MANY_CALLS": "the daemon has much to do at this moment: try again",
    "TOO_MANY_STREAMS": "end a few of the commands that follow runs, logs or events",
    "QUEUE_FULL": "`toban runs list --state pending` shows what waits",
}


# What fields of requests are called on the command line, where it is not the same.
_OPTIONS: Final = {
    "action": "--action",
    "payload_json": "-d",
    "dedupe_key": "--dedupe-key",
    "max_occurrences": "--max-occurrences",
    "rule.cron": "--cron",
    "rule.every": "--every",
    "rule.at": "--at",
}

# How the examples for a time in words begin.
_EXAMPLES: Final = " (what can be read: "


class Failure(Exception):  # noqa: N818 - not an error of the program
    """Ends the command: one line, what belongs to it, and a hint."""

    def __init__(
        self,
        message: str,
        code: Exit,
        *,
        hint: str = "",
        lines: Iterable[str] = (),
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.lines = tuple(lines)
        # The daemon's own word for it, if it is the daemon's.
        self.reason = reason


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Turns an error of the SDK into a Failure that says what could not be done: `cannot <what>: <why>`."""
    try:
        yield
    except Exception as error:
        from toban.sdk import TobanError

        if not isinstance(error, TobanError):
            raise
        raise explain(error, what) from error


def explain(error: TobanError, what: str) -> Failure:
    """The Failure that stands for an error of the SDK."""
    from toban import sdk

    # The daemon says in the same form what it could not do; saying it twice helps nobody.
    own_words = error.message.startswith("cannot ")
    message = error.message if own_words else f"cannot {what}: {error.message}"
    match error:
        case sdk.Unreachable():
            # One that says why it does not is there, and not well.
            hint = "`toban system info` shows how the daemon does" if error.reason else START_HINT
            return Failure(message, Exit.UNREACHABLE, hint=hint)
        case sdk.Refused():
            hint = "the socket is open to its owner and its group only" if not error.reason else ""
            return Failure(message, Exit.REFUSED, hint=hint)
        case sdk.NotFound():
            return Failure(message, Exit.NOT_FOUND, reason=error.reason)
        case sdk.Conflict():
            return Failure(message, Exit.CONFLICT, hint=_conflict_hint(error), reason=error.reason)
        case sdk.InvalidDefinition():
            lines = [
                f"{problem.line}:{problem.column}: {problem.path}: {problem.message}" for problem in error.problems
            ]
            return Failure(message, Exit.INVALID_DEFINITION, lines=lines)
        case sdk.InvalidArgument():
            return _invalid(error, message)
        case sdk.ResourceExhausted():
            hint = _EXHAUSTED.get(error.reason, "`toban system info` shows what is running")
            return Failure(message, Exit.CONFLICT, hint=hint, reason=error.reason)
        case _:
            return Failure(message, Exit.INTERNAL, hint="the daemon's own log says more")


def _invalid(error: InvalidArgument, message: str) -> Failure:
    """One wrong field is told in one line, several in a line for each."""
    message, _, examples = message.partition(_EXAMPLES)
    hint = f"what can be read: {examples.removesuffix(')')}" if examples else ""
    if len(error.violations) == 1:
        (only,) = error.violations
        said = only.description.partition(_EXAMPLES)[0]
        if said in message and not only.field.startswith("params."):
            option = _OPTIONS.get(only.field)
            text = message.replace(f"{only.field}: ", f"{option}: ", 1) if option else message
            return Failure(text, Exit.USAGE, hint=hint, reason=error.reason)
    wrong = [str(violation).removeprefix("params.") for violation in error.violations]
    return Failure(_without(message, wrong), Exit.USAGE, lines=wrong, hint=hint, reason=error.reason)


def _without(message: str, lines: list[str]) -> str:
    """The message without the list at its end, if that says what stands below in lines of its own."""
    end = message.rfind(": ")
    while lines and end > 0:
        if all(line in message[end + 2 :] for line in lines):
            return message[:end]
        end = message.rfind(": ", 0, end)
    return message


def _conflict_hint(error: TobanError) -> str:
    active = error.metadata.get("run_id") or error.metadata.get("active_run_id")
    if error.reason == "RUN_ALREADY_ACTIVE" and active:
        return f"`toban runs show {active}` shows the active run, `toban runs cancel {active}` ends it"
    if error.reason == "OWNED_BY_FILE":
        return "--force does it all the same, until the daemon reads the file again"
    return ""
