"""`toban schedule`: schedules a reminder or a workflow for a subject."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from toban.cli.args.completers import ACTIONS, action_names
from toban.cli.args.name_arguments import about_workflow, connect
from toban.cli.args.param_options import parse_pairs
from toban.cli.commands.schedules import SubjectOption, TargetOption, action_word
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, fields
from toban.cli.render.schedule_preview import ScheduleRule, local, preview, read_at
from toban.cli.session import OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from toban.v1 import schedule_pb2


_TARGETS: Final = "--action names the action at the due time, --workflow the workflow to start"


def schedule(
    ctx: CommandContext,
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="WORDS",
            help="Time in English or Japanese words, such as 'in 3 days at 9am'.",
            show_default=False,
        ),
    ] = None,
    subject: SubjectOption = "",
    action: Annotated[
        str,
        Option(
            "--action",
            "-a",
            metavar="ACTION",
            help="reminder, escalate, auto_close, follow_up, check_progress or workflow "
            "(default: the action in WORDS, or the workflow).",
            show_default=False,
            autocompletion=action_names,
        ),
    ] = "",
    workflow: TargetOption = "",
    param: Annotated[
        list[str] | None,
        Option(
            "-p",
            "--param",
            metavar="KEY=VALUE",
            help="Parameter of the workflow; may be repeated.",
        ),
    ] = None,
    timezone: Annotated[
        str,
        Option(
            "--timezone",
            metavar="ZONE",
            help="Time zone, such as Asia/Tokyo (default: that of the daemon).",
            show_default=False,
        ),
    ] = "",
    dedupe_key: Annotated[
        str,
        Option(
            "--dedupe-key",
            metavar="KEY",
            help="Store nothing if an active schedule of the subject has this key.",
            show_default=False,
        ),
    ] = "",
    max_occurrences: Annotated[
        int | None,
        Option(
            "--max-occurrences",
            min=1,
            metavar="N",
            help="Maximum number of due times.",
            show_default=False,
        ),
    ] = None,
    cron: Annotated[
        str,
        Option("--cron", metavar="EXPR", help="Cron expression, as in crontab(5).", show_default=False),
    ] = "",
    every: Annotated[
        str,
        Option("--every", metavar="DURATION", help="Interval from now on, such as 2h.", show_default=False),
    ] = "",
    at: Annotated[
        str,
        Option(
            "--at",
            metavar="TIME",
            help="Single time, such as 2026-02-01T09:00, or 18:00 today.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the due times; store nothing.")] = False,
    request_id: Annotated[
        str,
        Option(
            "--request-id",
            metavar="ID",
            help="Idempotency key: repeating the call with it stores one schedule.",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Schedule a reminder or a workflow for a subject.

    At the due time the daemon emits the event SCHEDULE_TRIGGERED with the subject and the action, and starts the
    workflow, if there is one. Give the time in words, or with --cron, --every or --at. Ambiguous words are an error,
    never a guess; the command always shows how it understood the time. Words that name an action, such as "remind me",
    replace --action, and must not contradict it.

    \b
    Examples:
      toban schedule '3日後の朝9時にリマインド' --subject issue-42 -a reminder
      toban schedule 'every weekday at 15:00' --subject issue-42 -a check_progress
      toban schedule --every 2h --subject deploy-7 -w check-deploy -p id=7
      toban schedule 'next friday noon' --dry-run
    """
    here = session(ctx, output)
    what = "read the time" if dry_run else f"create a schedule for {shown(subject)}"
    rule = _rule(" ".join(words or []), cron, every, at, timezone)
    target: dict[str, Any] = {
        "action": _action(action, workflow, what),
        "workflow": workflow,
        "params": _params(param or [], workflow, what),
    }
    if dry_run:
        _dry_run(here, rule, timezone, max_occurrences, target["action"], what)
        return
    if not subject:
        raise Failure(
            "cannot create a schedule: --subject is missing",
            Exit.USAGE,
            hint="--dry-run needs no subject, and only shows the due times",
        )
    if not action and not workflow and not rule.words:
        raise Failure(f"cannot {what}: --action or --workflow is missing", Exit.USAGE, hint=_TARGETS)
    with connect(here, what) as client, about_workflow(client, workflow, what):
        stored, created = client.create_schedule(
            subject,
            rule.words,
            cron=rule.cron,
            every=rule.every,
            at=rule.at,
            timezone=timezone,
            dedupe_key=dedupe_key,
            max_occurrences=max_occurrences or 0,
            request_id=request_id or None,
            **target,
        )
    match here.output:
        case OutputFormat.TABLE:
            _report_stored(here, stored, created)
        case OutputFormat.NAME:
            print(stored.id)
        case _:
            emit_data(here, {**to_dict(stored), "created": created})


def _rule(words: str, cron: str, every: str, at: str, timezone: str) -> ScheduleRule:
    """The rule from exactly one of these. Raises Failure."""
    given = {"WORDS": words, "--cron": cron, "--every": every, "--at": at}
    said = [name for name, value in given.items() if value.strip()]
    if len(said) != 1:
        found = f"{' and '.join(said)} exclude each other" if said else "no time was given"
        raise Failure(
            f"cannot read the time: {found}",
            Exit.USAGE,
            hint="use words, such as 'in 3 days at 9am', or --cron, --every or --at",
        )
    try:
        if every:
            from toban.definition.scalars.durations import parse_duration

            return ScheduleRule(every=parse_duration(every))
        if at:
            return ScheduleRule(at=read_at(at, timezone, datetime.now(UTC)))
    except ValueError as error:
        raise Failure(f"cannot read the time: {said[0]}: {error}", Exit.USAGE) from None
    return ScheduleRule(words=words.strip(), cron=cron)


def _action(given: str, workflow: str, what: str) -> str:
    """The action as in the API; empty for the action in the words, or for the workflow alone."""
    action = given.replace("-", "_").lower()
    if action and action not in ACTIONS:
        raise Failure(
            f"cannot {what}: unknown action {shown(given)!r}",
            Exit.USAGE,
            hint=f"known actions: {', '.join(ACTIONS)}",
        )
    if action == "workflow" and not workflow:
        raise Failure(f"cannot {what}: --workflow is missing", Exit.USAGE, hint=_TARGETS)
    return action


def _params(given: Sequence[str], workflow: str, what: str) -> dict[str, str]:
    pairs = parse_pairs(given)
    if pairs and not workflow:
        raise Failure(f"cannot {what}: -p needs --workflow", Exit.USAGE)
    return pairs


def _dry_run(here: Session, rule: ScheduleRule, timezone: str, most: int | None, action: str, what: str) -> None:
    with connect(here, what) as client:
        try:
            found = preview(client, rule, timezone, most)
        except ValueError as error:
            raise Failure(f"cannot {what}: {error}", Exit.USAGE) from None
    named = action_word(found) if found.action else ""
    if action and named and action != named:
        raise Failure(
            f"cannot {what}: the words mean {named}, but --action is {action}: leave one of them out",
            Exit.USAGE,
        )
    match here.output:
        case OutputFormat.TABLE:
            _report_times(here, found.understood, found.due_times, found.timezone, most, named)
            here.note("nothing was stored")
        case OutputFormat.NAME:
            for at in found.due_times:
                print(at.ToJsonString())
        case _:
            emit_data(here, to_dict(found))


def _report_stored(here: Session, stored: schedule_pb2.Schedule, created: bool) -> None:
    name = f"{action_word(stored)} for {shown(stored.subject)} ({stored.id})"
    print(f"scheduled {name}" if created else f"already scheduled with this key: {name}")
    _report_times(here, stored.understood, stored.due_times, stored.timezone, stored.max_occurrences)


def _report_times(
    here: Session,
    understood: str,
    due: Sequence[Timestamp],
    zone: str,
    most: int | None,
    action: str = "",
) -> None:
    # For a single time it is obvious.
    often = counted(most, "time") if most and len(due) > 1 else ""
    lines = [("action", action), ("understood", understood)]
    lines += [("due", local(at, zone)) for at in due]
    fields(here, [*lines, ("at most", often)])
