"""`toban runs retry`: starts runs that repeat what did not succeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from toban.cli.args.completers import step_names
from toban.cli.args.labels import LabelOption
from toban.cli.args.name_arguments import RunsOrFilter, connect, run_id
from toban.cli.args.param_options import parse_pairs
from toban.cli.args.run_filter import (
    RETRYABLE,
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
from toban.cli.session import OutputOption, Session, session, shown
from toban.cli.syntax import CommandContext, Option
from toban.cli.wait.run_start import (
    FollowOption,
    RequestIdOption,
    WaitOption,
    check_waiting,
    started,
)

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2

__all__ = ["retry"]


def retry(
    ctx: CommandContext,
    runs: RunsOrFilter = None,
    from_steps: Annotated[
        list[str] | None,
        Option(
            "--from",
            metavar="STEP",
            help="Run this step and all steps after it again; may be repeated.",
            autocompletion=step_names,
        ),
    ] = None,
    everything: Annotated[bool, Option("--all", help="Run all steps again.")] = False,
    newest: Annotated[
        bool,
        Option("--newest", help="Use the newest version of the workflow, not that of the old run."),
    ] = False,
    param: Annotated[
        list[str] | None,
        Option("-p", "--param", metavar="KEY=VALUE", help="Replace a parameter of the run; may be repeated."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        Option(
            "--skip",
            metavar="STEP",
            help="Treat this failed step as succeeded; needs --note; may be repeated.",
            autocompletion=step_names,
        ),
    ] = None,
    note: Annotated[
        str,
        Option("--note", "-m", metavar="TEXT", help="Why steps are skipped; stored.", show_default=False),
    ] = "",
    wait: WaitOption = False,
    follow: FollowOption = False,
    request_id: RequestIdOption = "",
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
    """Retry a run: start a new run of the steps that did not succeed.

    Steps that failed or did not run, and all steps after them, run again; the others keep their results and artifacts.
    Of a failed `for_each` step only the instances that did not succeed run again. The old run does not change. Of
    the runs that options select, those that were retried already are left out.

    \b
    Examples:
      toban runs retry nightly-report
      toban runs retry nightly-report#12 --newest --follow
      toban runs retry --failed --workflow nightly-report --since 1d
      toban runs retry nightly-report#12 --from build --wait
      toban runs retry nightly-report#12 -p region=eu
      toban runs retry nightly-report#12 --skip lint --note "known false alarm"
    """
    check_waiting(wait, follow)
    _check_selection(everything=everything, from_steps=from_steps, skip=skip, note=note)
    here = session(ctx, output)
    runs, chosen = runs or [], run_filter(workflow, state, failed, since, until, label)
    options: dict[str, Any] = {
        "from_steps": from_steps or (),
        "everything": everything,
        "newest_version": newest,
        "params": parse_pairs(param or []),
    }
    if is_single(runs, chosen, dry_run=dry_run):
        options |= {"skip": skip or (), "skip_note": note, "request_id": request_id or None}
        _retry_one(here, runs[0], options, wait=wait, follow=follow)
        return
    if wait or follow or request_id or skip:
        raise Failure("cannot use --wait, --follow, --request-id or --skip with several runs", Exit.USAGE)
    from toban.cli.render.run_text import run_name

    def act(client: SyncClient, run: run_pb2.Run) -> str:
        return f"started {run_name(client.start_retry(run.id, **options).run)} as a retry of {run_name(run)}"

    change = RunAction(verb="retry", states=RETRYABLE, act=act, wanted=_not_retried)
    with connect(here, "retry runs") as client:
        change_many(here, client, change, runs, chosen, yes=yes, dry_run=dry_run)


def _check_selection(
    *, everything: bool, from_steps: Sequence[str] | None, skip: Sequence[str] | None, note: str
) -> None:
    """Raises Failure for options that contradict each other."""
    if everything and from_steps:
        raise Failure("cannot use --all with --from: choose one", Exit.USAGE)
    if everything and skip:
        raise Failure("cannot use --all with --skip: choose one", Exit.USAGE)
    if skip and not note:
        raise Failure("cannot use --skip without --note: say why the step counts as succeeded", Exit.USAGE)
    if note and not skip:
        raise Failure("cannot use --note without --skip", Exit.USAGE)


_HINTS = {
    "RUN_NOT_TERMINAL": "wait until it has ended, or cancel it with `toban runs cancel`",
    "STEP_NOT_SKIPPABLE": "leave out --skip for it: a step that succeeded is kept, others run again",
    "NOTHING_TO_RETRY": "--all runs all steps again, --from STEP a part of them",
}


def _retry_one(here: Session, run: str, options: dict[str, Any], *, wait: bool, follow: bool) -> None:
    from toban.cli.render.run_text import run_name

    with connect(here, f"retry run {shown(run)}") as client:
        old = client.get_run(run_id(client, run))
        try:
            with doing(f"retry run {shown(run)}"):
                answer = client.start_retry(old.id, **options)
        except Failure as failure:
            failure.hint = failure.hint or _HINTS.get(failure.reason, "")
            raise
        new = answer.run
        if answer.newer_version:
            here.note(
                f"{run_name(new)} uses version {new.version} of {new.workflow}, as {run_name(old)} did; "
                f"`toban runs retry {run_name(old)} --newest` uses version {answer.newer_version}"
            )
        started(here, client, new, wait=wait, follow=follow, remark=f"as a retry of {run_name(old)}")


def _not_retried(client: SyncClient, run: run_pb2.Run) -> bool:
    return next(iter(client.list_runs(retry_of=run.id, page_size=1)), None) is None
