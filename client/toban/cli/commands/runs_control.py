"""`toban runs cancel|retry|pause|resume|approve|delete`: what people do to runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from toban.cli.args.completers import step_names, waiting_steps
from toban.cli.args.names import RunArgument, RunsArgument, connect, one_run_id, run_id
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, emit_one
from toban.cli.session import Output, OutputOption, Session, session, shown
from toban.cli.wait.run_start import (
    FollowOption,
    RequestIdOption,
    WaitOption,
    check_waiting,
    started,
)

if TYPE_CHECKING:
    from toban.v1 import run_pb2

__all__ = ["approve", "cancel", "delete", "pause", "resume", "retry"]


def cancel(
    ctx: typer.Context,
    run: RunArgument,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="Shown as the run's error.", show_default=False),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until every process of it is gone.")] = False,
    output: OutputOption = None,
) -> None:
    """Cancel a run: its processes are ended, nothing new starts.

    \b
    Examples:
      toban runs cancel nightly-report
      toban runs cancel nightly-report#12 --reason "wrong day" --wait
    """
    here = session(ctx, output)
    with connect(here, f"cancel run {shown(run)}") as client:
        cancelled = client.cancel_run(run_id(client, run), reason=reason)
        if wait:
            cancelled = client.wait_run(cancelled.id)
    from toban.cli.render.run_text import run_name, run_state

    emit_one(
        here,
        cancelled,
        name=cancelled.id,
        show=lambda: print(
            f"{run_name(cancelled)} {run_state(cancelled)}"
            if wait
            else f"cancelling {run_name(cancelled)} ({cancelled.id})"
        ),
    )


def retry(
    ctx: typer.Context,
    run: RunArgument,
    from_steps: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="STEP",
            help="Repeat this step and all that come after it; may be repeated.",
            autocompletion=step_names,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Repeat all steps.")] = False,
    newest: Annotated[
        bool,
        typer.Option("--newest", help="With the newest version, not with that of the old run."),
    ] = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    request_id: RequestIdOption = "",
    output: OutputOption = None,
) -> None:
    """Repeat what failed in a run, as a new run.

    The steps that failed or did not get their turn, and all that come after them, run again; the others keep
    their results and artifacts. The old run stays as it is.

    \b
    Examples:
      toban runs retry nightly-report
      toban runs retry nightly-report#12 --newest --follow
      toban runs retry nightly-report#12 --from build --wait
    """
    here = session(ctx, output)
    check_waiting(wait, follow)
    if everything and from_steps:
        raise Failure("cannot both --all and --from: choose one", Exit.USAGE)
    from toban.cli.render.run_text import run_name

    with connect(here, f"retry run {shown(run)}") as client:
        old = client.get_run(run_id(client, run))
        try:
            with doing(f"retry run {shown(run)}"):
                new = client.retry_run(
                    old.id,
                    from_steps=from_steps or (),
                    everything=everything,
                    newest_version=newest,
                    request_id=request_id or None,
                )
        except Failure as failure:
            failure.hint = failure.hint or _RETRY_HINTS.get(failure.reason, "")
            raise
        started(here, client, new, wait=wait, follow=follow, remark=f"to repeat {run_name(old)}")


_RETRY_HINTS = {
    "RUN_NOT_TERMINAL": "wait for its end, or end it with `toban runs cancel`",
    "NOTHING_TO_RETRY": "--all repeats all of it, --from STEP a part",
}


def pause(ctx: typer.Context, run: RunArgument, output: OutputOption = None) -> None:
    """Start nothing more of a run until it is resumed.

    What runs already goes on to its end, and timeouts go on counting.

    \b
    Example:
      toban runs pause nightly-report
    """
    here = session(ctx, output)
    with connect(here, f"pause run {shown(run)}") as client:
        paused = client.pause_run(run_id(client, run))
    _told(here, paused, "paused")


def resume(ctx: typer.Context, run: RunArgument, output: OutputOption = None) -> None:
    """Go on with a run that was paused.

    \b
    Example:
      toban runs resume nightly-report
    """
    here = session(ctx, output)
    with connect(here, f"resume run {shown(run)}") as client:
        resumed = client.resume_run(run_id(client, run))
    _told(here, resumed, "resumed")


def approve(
    ctx: typer.Context,
    run: RunArgument,
    step: Annotated[
        str,
        typer.Argument(
            metavar="STEP",
            help="The step that waits; may be left out if only one does.",
            show_default=False,
            autocompletion=waiting_steps,
        ),
    ] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Say no: the step fails, and its policy decides.")] = False,
    note: Annotated[
        str,
        typer.Option("--note", "-m", metavar="TEXT", help="Kept with the decision.", show_default=False),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="USER",
            help="Who decides (default: your user name).",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Approve, or reject, a step that waits for a person.

    \b
    Examples:
      toban runs approve deploy
      toban runs approve deploy#7 sign-off --note "tested on staging"
      toban runs approve deploy#7 sign-off --reject --note "not on a Friday"
    """
    here = session(ctx, output)
    verb = "reject" if reject else "approve"
    with connect(here, f"{verb} a step of {shown(run)}") as client:
        found = client.get_run(run_id(client, run))
        wanted = step or _only_waiting(found, verb)
        with doing(f"{verb} {shown(wanted)} of {shown(run)}"):
            decided = client.decide_approval(found.id, wanted, approved=not reject, note=note, by=by or _user())
    done = "rejected" if reject else "approved"
    from toban.cli.render.run_text import run_name

    emit_one(
        here,
        decided,
        name=decided.id,
        show=lambda: print(f"{done} {wanted} of {run_name(decided)}"),
    )


def _only_waiting(run: run_pb2.Run, verb: str) -> str:
    from toban.cli.render.run_text import run_name
    from toban.cli.render.step_text import needs_approval

    waiting: Sequence[str] = [step.id for step in run.steps if needs_approval(step)]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise Failure(
            f"cannot {verb} a step of {run_name(run)}: no step of it waits for approval",
            Exit.CONFLICT,
            hint=f"`toban runs show {run_name(run)}` shows its steps",
        )
    raise Failure(
        f"cannot {verb} a step of {run_name(run)}: {len(waiting)} steps wait for approval",
        Exit.USAGE,
        hint=f"say which: {', '.join(waiting)}",
    )


def delete(ctx: typer.Context, runs: RunsArgument, output: OutputOption = None) -> None:
    """Delete runs that have ended, with their logs and artifacts.

    They are gone for good. `toban system gc` removes what is no longer kept by itself.

    \b
    Examples:
      toban runs delete nightly-report#12
      toban runs delete $(toban runs list --state cancelled -o name)
    """
    here = session(ctx, output)
    from toban.cli.render.run_text import run_name

    deleted: list[dict[str, str]] = []
    with connect(here, "delete runs") as client:
        for text in runs:
            with doing(f"delete run {shown(text)}"):
                found = client.get_run(one_run_id(client, text))
                try:
                    with doing(f"delete run {shown(text)}"):
                        client.delete_run(found.id)
                except Failure as failure:
                    if failure.reason == "RUN_NOT_TERMINAL":
                        failure.hint = f"`toban runs cancel {run_name(found)} --wait` ends it first"
                    raise
            deleted.append({"id": found.id, "run": run_name(found), "outcome": "deleted"})
            # At once: what was done stays done, whatever happens to the next one.
            if here.output is Output.TABLE:
                print(f"deleted {run_name(found)} ({found.id})", flush=True)
            elif here.output is Output.NAME:
                print(found.id, flush=True)
    if here.output in (Output.JSON, Output.YAML):
        emit_data(here, deleted)


def _told(here: Session, run: run_pb2.Run, done: str) -> None:
    from toban.cli.render.run_text import run_name

    emit_one(here, run, name=run.id, show=lambda: print(f"{done} {run_name(run)} ({run.id})"))


def _user() -> str:
    """The name of whoever sits here; empty if the system has none for them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
