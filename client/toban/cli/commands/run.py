"""`toban run`: starts a run, or shows its plan with `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from toban.cli.args.completers import run_names, scope_names, step_names
from toban.cli.args.labels import parse_labels
from toban.cli.args.name_arguments import NameArgument, about_workflow, connect, run_id
from toban.cli.args.param_options import parse_pairs, read_file
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import Column, emit_one, table
from toban.cli.session import OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import CommandContext, Option
from toban.cli.wait.run_start import (
    FollowOption,
    RequestIdOption,
    WaitOption,
    check_waiting,
    scope_remark,
    started,
)

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2


def run(
    ctx: CommandContext,
    name: NameArgument,
    param: Annotated[
        list[str] | None,
        Option("-p", "--param", metavar="KEY=VALUE", help="Parameter; may be repeated."),
    ] = None,
    params_file: Annotated[
        str,
        Option(
            "--params-file",
            metavar="FILE",
            help="File with parameters in YAML or JSON, or - for standard input; -p overrides it.",
            show_default=False,
        ),
    ] = "",
    scope: Annotated[
        str,
        Option(
            "--scope",
            metavar="SCOPE",
            help="Run only the steps of this scope.",
            show_default=False,
            autocompletion=scope_names,
        ),
    ] = "",
    only: Annotated[
        list[str] | None,
        Option(
            "--only",
            metavar="STEP",
            help="Run only this step; may be repeated.",
            autocompletion=step_names,
        ),
    ] = None,
    from_steps: Annotated[
        list[str] | None,
        Option(
            "--from",
            metavar="STEP",
            help="Run only this step and all steps after it; may be repeated.",
            autocompletion=step_names,
        ),
    ] = None,
    from_run: Annotated[
        str,
        Option(
            "--from-run",
            metavar="RUN",
            help="Take the results of the other steps from this run (default: the newest that has them).",
            show_default=False,
            autocompletion=run_names,
        ),
    ] = "",
    label: Annotated[
        list[str] | None,
        Option("--label", "-l", metavar="KEY=VALUE", help="Label of the run, to find it by; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show which steps would run, in order.")] = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    request_id: RequestIdOption = "",
    output: OutputOption = None,
) -> None:
    """Start a run of a workflow.

    Parameters are converted to the types that the workflow declares; write lists and mappings as JSON.
    --scope, --only and --from select steps, and only steps that all of them select run; results of other steps come
    from an earlier run. Without them the scope `full` runs if the workflow has one, else all steps.
    With --wait or --follow the exit code is 0 if the run succeeded, 1 if it failed, 124 if it timed out and 130 if it
    was cancelled. Ctrl-C only detaches (131): the run continues.

    \b
    Examples:
      toban run nightly-report
      toban run nightly-report -p day=monday -p 'regions=["eu", "us"]' --follow
      toban run nightly-report --params-file params.yaml --wait -o json
      toban run nightly-report --from build --dry-run
      toban run nightly-report --label ticket=OPS-17
      toban run nightly-report --only publish --from-run nightly-report#12
      id=$(toban run nightly-report -o name)
    """
    here = session(ctx, output)
    check_waiting(wait, follow)
    if dry_run and (wait or follow):
        raise Failure("cannot use --dry-run with --wait or --follow: it starts no run", Exit.USAGE)
    selection: dict[str, Any] = {
        "scope": scope,
        "only": only or [],
        "from_steps": from_steps or [],
    }
    pairs = parse_pairs(param or [])
    labels = parse_labels(label or [], "start a run")
    values: dict[str, Any] = read_file(params_file) if params_file else {}
    what = f"plan a run of {shown(name)}" if dry_run else f"start a run of {shown(name)}"
    with connect(here, what) as client:
        with about_workflow(client, name, what):
            if from_run:
                selection["from_run"] = run_id(client, from_run)
            if dry_run:
                _show_plan(here, client, client.plan_run(name, values | pairs, **selection))
                return
            begun = _start(client, name, values | pairs, request_id, {**selection, "labels": labels})
        remark = "" if any(selection.values()) else scope_remark(begun)
        started(here, client, begun, wait=wait, follow=follow, remark=remark)


def _start(
    client: SyncClient,
    name: str,
    values: dict[str, object],
    request_id: str,
    selection: dict[str, Any],
) -> run_pb2.Run:
    from toban.v1 import run_pb2

    return client.start_run(
        name,
        values,
        triggered_by=run_pb2.TRIGGER_MANUAL,
        request_id=request_id or None,
        **selection,
    )


def _show_plan(here: Session, client: SyncClient, plan: run_pb2.PlanRunResponse) -> None:
    if here.output is OutputFormat.NAME:
        for step in plan.steps:
            if not step.skip_reason:
                print(step.id)
        return
    emit_one(here, plan, name=plan.workflow, show=lambda: _write_plan(here, client, plan))


def _write_plan(here: Session, client: SyncClient, plan: run_pb2.PlanRunResponse) -> None:
    from toban.cli.render.run_names import names_of
    from toban.cli.render.title_text import label, title_column

    steps: Sequence[run_pb2.PlannedStep] = plan.steps
    names = names_of(client, (step.source_run for step in steps))
    columns: list[Column[run_pb2.PlannedStep]] = [
        Column("STEP", lambda step: step.id, lambda step: "dim" if step.skip_reason else "bold"),
        *title_column(steps, lambda step: step.id, lambda step: step.title),
        Column("RUNS", lambda step: "-" if step.skip_reason else step.command, folds=True),
        Column("AFTER", lambda step: ", ".join(step.depends_on) or "-", folds=True),
        Column("NOTE", lambda step: plan_note(step, names), folds=True),
    ]
    table(here, steps, columns)
    running = sum(1 for step in steps if not step.skip_reason)
    if plan.left_out:
        here.note(f"{plan.left_out} more steps are not shown: the plan is too large")
    steps_text = f"{running} of {len(steps)} steps"
    if plan.definition_scope:
        steps_text += f" (scope {plan.definition_scope})"
    what = f"{label(plan.workflow, plan.workflow_title)} (version {plan.version})"
    here.note(f"{what} would run {steps_text}; nothing was started")


def plan_note(step: run_pb2.PlannedStep, names: dict[str, str]) -> str:
    """Details of a planned step: why it is skipped, its condition, its loop."""
    from toban.cli.render.reason_text import skip_reason

    notes = ["finally"] if step.is_finally else []
    if step.skip_reason:
        notes.append(skip_reason(step.skip_reason))
    if step.source_run:
        notes.append(f"results of {names.get(step.source_run, step.source_run)}")
    if step.when and not step.skip_reason:
        notes.append(f"when {step.when}")
    if step.for_each and not step.skip_reason:
        notes.append(f"for each of {step.for_each}")
    if step.max_iterations > 1 and not step.skip_reason:
        notes.append(f"up to {step.max_iterations} iterations")
    return ", ".join(notes)
