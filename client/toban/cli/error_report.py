"""Failures of a command: the message, the hint and the exit code."""

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


# Of refused and failed connections, by reason.
_IDENTITY: Final = {
    "CREDENTIAL_REQUIRED": "give a token: --token-file, TOBAN_TOKEN, or `toban context add NAME --token-file FILE`",
    "CREDENTIAL_INVALID": "the token is unknown to this daemon; an admin creates one with `toban tokens create`",
    "CREDENTIAL_EXPIRED": "an admin creates a new token with `toban tokens create`",
    "CREDENTIAL_REVOKED": "an admin creates a new token with `toban tokens create`",
    "ROLE_REQUIRED": "`toban whoami` shows who you are and what you may do",
    "WORKFLOW_NOT_PERMITTED": "`toban whoami` shows which workflows you are limited to",
    "REMOTE_UNREACHABLE": "check that toband runs there, that its `listen` has this port, and the firewall",
    "TLS_CERTIFICATE_EXPIRED": "the server needs a new one: `toban access renew` there, or your CA",
    "TLS_CERTIFICATE_NOT_YET_VALID": "check the clocks of both machines",
    "TLS_HOST_NAME": "use one of these names in the address, or `toban access renew --host` on the server",
    "TLS_UNKNOWN_CA": "give the CA of the server: --ca FILE, TOBAN_CA, or `toban context add NAME --ca FILE`",
    "TLS_NOT_SPOKEN": "use an address that the daemon listens on with tls://",
    "TLS_REQUIRED": "use tls://",
    "TLS_CLIENT_CERTIFICATE_REQUIRED": "give --certificate and --key, or TOBAN_CERT and TOBAN_KEY",
    "TLS_CLIENT_CERTIFICATE_REFUSED": "the daemon must trust its CA: `client_ca` in its section [tls]",
    "TLS_CLIENT_CERTIFICATE_UNUSABLE": "check that certificate and key belong together",
}

_EXHAUSTED: Final = {
    "DISK_FULL": "`toban system info` shows the daemon's health",
    "TOO_MANY_CALLS": "the daemon is busy: try again",
    "TOO_MANY_FAILURES": "check the token, and wait",
    "TOO_MANY_STREAMS": "end some of the commands that follow runs, logs or events",
    "QUEUE_FULL": "`toban runs list --state pending` shows the queued runs",
}

# Where the names or ids of what was not found are listed.
_LISTS: Final = {
    "DEAD_LETTER_NOT_FOUND": "`toban dead-letters list --all` lists all dead letters",
    "EVENT_NOT_FOUND": "`toban events list` lists the stored events",
    "PROCESS_EXECUTION_NOT_FOUND": "`toban processes list` lists processes",
    "SCHEDULE_NOT_FOUND": "`toban schedules list --all` lists all schedules",
    "SECRET_NOT_FOUND": "`toban secrets list` lists all secrets",
    "SESSION_NOT_FOUND": "`toban sessions list` lists sessions",
    "TOKEN_NOT_FOUND": "`toban tokens list` lists all tokens",
}


# Command-line names of request fields, where they differ.
_OPTIONS: Final = {
    "action": "--action",
    "payload_json": "-d",
    "dedupe_key": "--dedupe-key",
    "max_occurrences": "--max-occurrences",
    "rule.cron": "--cron",
    "rule.every": "--every",
    "rule.at": "--at",
}


class Failure(Exception):  # noqa: N818 - not an error of the program
    """Ends the command with a message, further lines and a hint."""

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
        # The reason code of the daemon's error, if it is one.
        self.reason = reason


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Turns an error of the SDK into a Failure: `cannot <what>: <why>`."""
    try:
        yield
    except Exception as error:
        from toban.sdk import TobanError

        if not isinstance(error, TobanError):
            raise
        raise explain(error, what) from error


def explain(error: TobanError, what: str) -> Failure:
    """The Failure for an error of the SDK."""
    from toban import sdk
    from toban.sdk.errors import problem_text

    # The daemon's messages may have the same form already.
    own_words = error.message.startswith("cannot ")
    message = error.message if own_words else f"cannot {what}: {error.message}"
    match error:
        case sdk.Unreachable():
            # With a reason the daemon answered: it is up, but unhealthy.
            answered = "`toban system info` shows the daemon's health"
            hint = _IDENTITY.get(error.reason, answered) if error.reason else START_HINT
            return Failure(message, Exit.UNREACHABLE, hint=hint, reason=error.reason)
        case sdk.Refused():
            hint = _IDENTITY.get(error.reason, "") if error.reason else "the socket is open to its owner and group only"
            return Failure(message, Exit.REFUSED, hint=hint, reason=error.reason)
        case sdk.NotFound():
            return Failure(message, Exit.NOT_FOUND, hint=_LISTS.get(error.reason, ""), reason=error.reason)
        case sdk.Conflict():
            return Failure(message, Exit.CONFLICT, hint=_conflict_hint(error), reason=error.reason)
        case sdk.InvalidDefinition():
            return Failure(message, Exit.INVALID_DEFINITION, lines=map(problem_text, error.problems))
        case sdk.InvalidArgument():
            return _invalid(error, message, what)
        case sdk.ResourceExhausted():
            hint = _EXHAUSTED.get(error.reason, "`toban system info` shows what is running")
            return Failure(message, Exit.CONFLICT, hint=hint, reason=error.reason)
        case _:
            return Failure(message, Exit.INTERNAL, hint="see the daemon's log")


def _invalid(error: InvalidArgument, message: str, what: str) -> Failure:
    """Parameters get a line each; a field that is an option is called by the option's name."""
    params = [violation for violation in error.violations if violation.field.partition(".")[0] == "params"]
    if params:
        lines = [str(violation).removeprefix("params.") for violation in params]
        return Failure(f"cannot {what}: invalid parameters", Exit.USAGE, lines=lines, reason=error.reason)
    for violation in error.violations:
        if option := _OPTIONS.get(violation.field):
            message = f"cannot {what}: {option}: {violation.description}"
    return Failure(message, Exit.USAGE, reason=error.reason)


def _conflict_hint(error: TobanError) -> str:
    active = error.metadata.get("run") or error.metadata.get("run_id")
    if error.reason == "RUN_ALREADY_ACTIVE" and active:
        return f"`toban runs show {active}` shows the active run, `toban runs cancel {active}` ends it"
    if error.reason == "OWNED_BY_FILE":
        return "--force does it anyway, until the daemon reads the file again"
    return ""
