"""`toban runs cancel|pause|resume|approve|pin|unpin|delete`: commands that change a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import waiting_steps
from toban.cli.args.labels import LabelOption
from toban.cli.args.name_arguments import ExactRunsOrFilter, RunArgument, RunsOrFilter, connect, one_run_id, run_id
from toban.cli.args.run_filter import (
    ACTIVE,
    ENDED,
    DryRunOption,
    FailedFilter,
    SinceFilter,
    StateFilter,
    UntilFilter,
    WorkflowFilter,
    YesOption,
    run_filter,
)
from toban.cli.commands.runs_many import RunAction, change_many, is_single
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, emit_one
from toban.cli.session import OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Option

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2

__all__ = ["approve", "cancel", "delete", "pause", "pin", "resume", "unpin"]


def cancel(
    ctx: CommandContext,
    runs: RunsOrFilter = None,
    reason: Annotated[
        str,
        Option("--reason", metavar="TEXT", help="Reason, shown as the error of the run.", show_default=False),
    ] = "",
    wait: Annotated[bool, Option("--wait", "-W", help="Wait until all its processes have ended.")] = False,
    workflow: WorkflowFilter = "",
    state: StateFilter = None,
    failed: FailedFilter = False,
    since: SinceFilter = "",
    until: UntilFilter = "",
    label: LabelOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Cancel a run: end its processes, start no further steps.

    Its finally steps run, and those of its child runs. To end those too, cancel it again.

    \b
    Examples:
      toban runs cancel nightly-report
      toban runs cancel nightly-report#12 --reason "wrong day" --wait
      toban runs cancel --workflow nightly-report --state pending --dry-run
    """
    here = session(ctx, output)
    runs, chosen = runs or [], run_filter(workflow, state, failed, since, until, label)
    if not is_single(runs, chosen, dry_run=dry_run):
        if wait:
            raise Failure("cannot use --wait with several runs", Exit.USAGE)

        def act(client: SyncClient, run: run_pb2.Run) -> str:
            return f"cancelling {_name(client.cancel_run(run.id, reason=reason))}"

        # From the newest on, so that no queued run starts in between.
        change = RunAction(verb="cancel", states=ACTIVE, act=act, oldest_first=False)
        with connect(here, "cancel runs") as client:
            change_many(here, client, change, runs, chosen, yes=yes, dry_run=dry_run)
        return
    (run,) = runs
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
    if not wait and cancelled.HasField("finally_part") and not cancelled.finally_part.HasField("ending"):
        here.note(f"hint: its finally steps run; `toban runs cancel {run_name(cancelled)}` again ends them too")


def pause(
    ctx: CommandContext,
    runs: RunsOrFilter = None,
    workflow: WorkflowFilter = "",
    state: StateFilter = None,
    failed: FailedFilter = False,
    since: SinceFilter = "",
    until: UntilFilter = "",
    label: LabelOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Pause a run: start no further steps until it is resumed.

    Running steps continue, and timeouts keep counting.

    \b
    Example:
      toban runs pause nightly-report
    """
    here = session(ctx, output)
    runs, chosen = runs or [], run_filter(workflow, state, failed, since, until, label)
    if not is_single(runs, chosen, dry_run=dry_run):

        def act(client: SyncClient, run: run_pb2.Run) -> str:
            paused = client.pause_run(run.id)
            return f"{'paused' if paused.HasField('paused_at') else 'not paused, it is ending:'} {_name(paused)}"

        change = RunAction(verb="pause", states=ACTIVE, act=act, wanted=lambda _, run: not run.HasField("paused_at"))
        with connect(here, "pause runs") as client:
            change_many(here, client, change, runs, chosen, yes=yes, dry_run=dry_run)
        return
    (run,) = runs
    with connect(here, f"pause run {shown(run)}") as client:
        paused = client.pause_run(run_id(client, run))
    if not paused.HasField("paused_at"):
        here.warn("the run is ending, or its finally steps run: that cannot be paused")
    _report(here, paused, "paused" if paused.HasField("paused_at") else "not paused:")


def resume(
    ctx: CommandContext,
    runs: RunsOrFilter = None,
    workflow: WorkflowFilter = "",
    state: StateFilter = None,
    failed: FailedFilter = False,
    since: SinceFilter = "",
    until: UntilFilter = "",
    label: LabelOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Resume a paused run.

    \b
    Example:
      toban runs resume nightly-report
    """
    here = session(ctx, output)
    runs, chosen = runs or [], run_filter(workflow, state, failed, since, until, label)
    if not is_single(runs, chosen, dry_run=dry_run):

        def act(client: SyncClient, run: run_pb2.Run) -> str:
            return f"resumed {_name(client.resume_run(run.id))}"

        change = RunAction(verb="resume", states=ACTIVE, act=act, wanted=lambda _, run: run.HasField("paused_at"))
        with connect(here, "resume runs") as client:
            change_many(here, client, change, runs, chosen, yes=yes, dry_run=dry_run)
        return
    (run,) = runs
    with connect(here, f"resume run {shown(run)}") as client:
        resumed = client.resume_run(run_id(client, run))
    _report(here, resumed, "resumed")


def approve(
    ctx: CommandContext,
    run: RunArgument,
    step: Annotated[
        str,
        Argument(
            metavar="STEP",
            help="Step that waits for approval; optional if there is only one.",
            show_default=False,
            autocompletion=waiting_steps,
        ),
    ] = "",
    reject: Annotated[bool, Option("--reject", help="Reject it: its failure policy applies.")] = False,
    note: Annotated[
        str,
        Option("--note", "-m", metavar="TEXT", help="Note, stored with the decision.", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Approve or reject a step that waits for approval.

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
            decided = client.decide_approval(found.id, wanted, approved=not reject, note=note)
    done = "rejected" if reject else "approved"
    from toban.cli.render.run_text import run_name
    from toban.cli.render.title_text import label

    title = next((one.title for one in found.steps if one.id == wanted), "")

    emit_one(
        here,
        decided,
        name=decided.id,
        show=lambda: print(f"{done} {label(wanted, title)} of {run_name(decided)}"),
    )


def _only_waiting(run: run_pb2.Run, verb: str) -> str:
    from toban.cli.render.run_text import run_name
    from toban.cli.render.step_text import needs_approval

    waiting: Sequence[str] = [step.id for step in run.steps if needs_approval(step)]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise Failure(
            f"cannot {verb} a step of {run_name(run)}: no step waits for approval",
            Exit.CONFLICT,
            hint=f"`toban runs show {run_name(run)}` shows its steps",
        )
    raise Failure(
        f"cannot {verb} a step of {run_name(run)}: {len(waiting)} steps wait for approval",
        Exit.USAGE,
        hint=f"choose one: {', '.join(waiting)}",
    )


def pin(
    ctx: CommandContext,
    runs: ExactRunsOrFilter = None,
    note: Annotated[str, Option("--note", "-m", metavar="TEXT", help="Why it is kept.", show_default=False)] = "",
    workflow: WorkflowFilter = "",
    state: StateFilter = None,
    failed: FailedFilter = False,
    since: SinceFilter = "",
    until: UntilFilter = "",
    label: LabelOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Keep a run: retention does not remove it.

    It stays with its logs and artifacts until it is unpinned, and cannot be deleted before.

    \b
    Examples:
      toban runs pin nightly-report#12 --note "evidence for the audit"
    """
    here = session(ctx, output)
    runs, chosen = runs or [], run_filter(workflow, state, failed, since, until, label)
    if not is_single(runs, chosen, dry_run=dry_run):

        def act(client: SyncClient, run: run_pb2.Run) -> str:
            return f"pinned {_name(client.pin_run(run.id, note=note))}"

        change = RunAction(verb="pin", states=(), act=act, wanted=lambda _, run: not run.HasField("pin"), exact=True)
        with connect(here, "pin runs") as client:
            change_many(here, client, change, runs, chosen, yes=yes, dry_run=dry_run)
        return
    (run,) = runs
    with connect(here, f"pin run {shown(run)}") as client:
        _report(here, client.pin_run(one_run_id(client, run), note=note), "pinned")


def unpin(ctx: CommandContext, run: RunArgument, output: OutputOption = None) -> None:
    """Let retention remove a run again.

    \b
    Examples:
      toban runs unpin nightly-report#12
    """
    here = session(ctx, output)
    with connect(here, f"unpin run {shown(run)}") as client:
        _report(here, client.unpin_run(one_run_id(client, run)), "unpinned")


def delete(
    ctx: CommandContext,
    runs: ExactRunsOrFilter = None,
    workflow: WorkflowFilter = "",
    state: StateFilter = None,
    failed: FailedFilter = False,
    since: SinceFilter = "",
    until: UntilFilter = "",
    label: LabelOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Delete ended runs, with their logs and artifacts.

    This cannot be undone. `toban system gc` removes runs past their retention.

    \b
    Examples:
      toban runs delete nightly-report#12
      toban runs delete --state cancelled --until 30d
    """
    here = session(ctx, output)
    runs, chosen = runs or [], run_filter(workflow, state, failed, since, until, label)
    if not is_single(runs, chosen, dry_run=dry_run):

        def act(client: SyncClient, run: run_pb2.Run) -> str:
            _delete(client, run, _name(run))
            return f"deleted {_name(run)}"

        change = RunAction(verb="delete", states=ENDED, act=act, exact=True)
        with connect(here, "delete runs") as client:
            change_many(here, client, change, runs, chosen, yes=yes, dry_run=dry_run)
        return
    (text,) = runs
    with connect(here, f"delete run {shown(text)}") as client:
        found = client.get_run(one_run_id(client, text))
        _delete(client, found, text)
    match here.output:
        case OutputFormat.TABLE:
            print(f"deleted {_name(found)} ({found.id})")
        case OutputFormat.NAME:
            print(found.id)
        case _:
            emit_data(here, [{"id": found.id, "run": _name(found), "outcome": "deleted"}])


def _delete(client: SyncClient, run: run_pb2.Run, text: str) -> None:
    try:
        with doing(f"delete run {shown(text)}"):
            client.delete_run(run.id)
    except Failure as failure:
        if failure.reason == "RUN_NOT_TERMINAL":
            failure.hint = f"`toban runs cancel {_name(run)} --wait` cancels it first"
        elif failure.reason == "RUN_PINNED":
            failure.hint = f"`toban runs unpin {_name(run)}` unpins it"
        raise


def _name(run: run_pb2.Run) -> str:
    from toban.cli.render.run_text import run_name

    return run_name(run)


def _report(here: Session, run: run_pb2.Run, done: str) -> None:
    from toban.cli.render.run_text import run_name

    emit_one(here, run, name=run.id, show=lambda: print(f"{done} {run_name(run)} ({run.id})"))
