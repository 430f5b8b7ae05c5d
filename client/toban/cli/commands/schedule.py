"""`toban schedule`: a reminder, or a workflow, for a subject at some time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toban.cli.args.completers import ACTIONS, action_names
from toban.cli.args.names import about_workflow, connect
from toban.cli.args.param_options import parse_pairs
from toban.cli.commands.schedules import SubjectOption, TargetOption, action_word
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, fields, to_dict
from toban.cli.render.schedule_preview import Rule, local, preview, read_at
from toban.cli.session import Output, OutputOption, Session, session, shown
from toban.quantity_text import counted

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from toban.v1 import schedule_pb2


_TARGETS: Final = "--action says what to do when it is due, --workflow what to start"


def schedule(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORDS",
            help="When, in English or Japanese, such as 'in 3 days at 9am'.",
            show_default=False,
        ),
    ] = None,
    subject: SubjectOption = "",
    action: Annotated[
        str,
        typer.Option(
            "--action",
            "-a",
            metavar="ACTION",
            help="reminder, escalate, auto_close, follow_up, check_progress or workflow; "
            "by default what WORDS name, or the workflow.",
            show_default=False,
            autocompletion=action_names,
        ),
    ] = "",
    workflow: TargetOption = "",
    param: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--param",
            metavar="KEY=VALUE",
            help="A parameter of the workflow; may be repeated.",
        ),
    ] = None,
    timezone: Annotated[
        str,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Such as Asia/Tokyo; by default that of the daemon.",
            show_default=False,
        ),
    ] = "",
    dedupe_key: Annotated[
        str,
        typer.Option(
            "--dedupe-key",
            metavar="KEY",
            help="Store nothing if an active schedule of the subject has this key.",
            show_default=False,
        ),
    ] = "",
    max_occurrences: Annotated[
        int | None,
        typer.Option(
            "--max-occurrences",
            min=1,
            metavar="N",
            help="It is due at most so often.",
            show_default=False,
        ),
    ] = None,
    cron: Annotated[
        str,
        typer.Option("--cron", metavar="EXPR", help="When, as in crontab(5).", show_default=False),
    ] = "",
    every: Annotated[
        str,
        typer.Option("--every", metavar="TIME", help="From now on, as in 2h or 1h30m.", show_default=False),
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Once, as in 2026-02-01T09:00, or 18:00 today.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is understood; store nothing.")] = False,
    request_id: Annotated[
        str,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="Makes a repeat harmless: the same id stores one schedule.",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Schedule a reminder, or a workflow, for a subject.

    When it is due, the event SCHEDULE_TRIGGERED tells the subject and the action to all that listen, and the workflow,
    if one is named, is started. The time is said in words, or with --cron, --every or --at. What cannot be read is an
    error, never a guess; what was understood is always shown. Words that name an action, such as "remind me", may stand
    for --action, and must not name another.

    \b
    Examples:
      toban schedule '3日後の朝9時にリマインド' -s issue-42 -a reminder
      toban schedule 'every weekday at 15:00' -s issue-42 -a check_progress
      toban schedule --every 2h -s deploy-7 -w check-deploy -p id=7
      toban schedule 'next friday noon' --dry-run
    """
    here = session(ctx, output)
    what = "read the time" if dry_run else f"schedule anything for {shown(subject)}"
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
            "cannot schedule anything: --subject says what it is about",
            Exit.USAGE,
            hint="--dry-run needs none, and only shows what is understood",
        )
    if not action and not workflow and not rule.words:
        raise Failure(f"cannot {what}: neither --action nor --workflow is there", Exit.USAGE, hint=_TARGETS)
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
        case Output.TABLE:
            _tell_stored(here, stored, created)
        case Output.NAME:
            print(stored.id)
        case _:
            emit_data(here, {**to_dict(stored), "created": created})


def _rule(words: str, cron: str, every: str, at: str, timezone: str) -> Rule:
    """The one way in which the time was said. Raises Failure for none, or several."""
    given = {"WORDS": words, "--cron": cron, "--every": every, "--at": at}
    said = [name for name, value in given.items() if value.strip()]
    if len(said) != 1:
        found = f"{' and '.join(said)} exclude each other" if said else "no time was given"
        raise Failure(
            f"cannot read the time: {found}",
            Exit.USAGE,
            hint="say it in words, such as 'in 3 days at 9am', or with --cron, --every or --at",
        )
    try:
        if every:
            from toban.definition.scalars.durations import parse_duration

            return Rule(every=parse_duration(every))
        if at:
            return Rule(at=read_at(at, timezone, datetime.now(UTC)))
    except ValueError as error:
        raise Failure(f"cannot read the time: {said[0]}: {error}", Exit.USAGE) from None
    return Rule(words=words.strip(), cron=cron)


def _action(given: str, workflow: str, what: str) -> str:
    """The action as the API has it; empty for what the words name, or the workflow alone."""
    action = given.replace("-", "_").lower()
    if action and action not in ACTIONS:
        raise Failure(
            f"cannot {what}: {shown(given)!r} is no action",
            Exit.USAGE,
            hint=f"--action is one of {', '.join(ACTIONS)}",
        )
    if action == "workflow" and not workflow:
        raise Failure(f"cannot {what}: --workflow is missing", Exit.USAGE, hint=_TARGETS)
    return action


def _params(given: Sequence[str], workflow: str, what: str) -> dict[str, str]:
    pairs = parse_pairs(given)
    if pairs and not workflow:
        raise Failure(f"cannot {what}: -p is for the workflow, and there is none", Exit.USAGE)
    return pairs


def _dry_run(here: Session, rule: Rule, timezone: str, most: int | None, action: str, what: str) -> None:
    with connect(here, what) as client:
        try:
            found = preview(client, rule, timezone, most)
        except ValueError as error:
            raise Failure(f"cannot {what}: {error}", Exit.USAGE) from None
    named = action_word(found) if found.action else ""
    if action and named and action != named:
        raise Failure(
            f"cannot {what}: the words say {named}, and --action {action}: leave one of them out",
            Exit.USAGE,
        )
    match here.output:
        case Output.TABLE:
            _tell_times(here, found.understood, found.due_times, found.timezone, most, named)
            here.note("nothing was stored")
        case Output.NAME:
            for at in found.due_times:
                print(at.ToJsonString())
        case _:
            emit_data(here, to_dict(found))


def _tell_stored(here: Session, stored: schedule_pb2.Schedule, created: bool) -> None:
    name = f"{action_word(stored)} for {shown(stored.subject)} ({stored.id})"
    print(f"scheduled {name}" if created else f"this key is in use by {name}")
    _tell_times(here, stored.understood, stored.due_times, stored.timezone, stored.max_occurrences)


def _tell_times(
    here: Session,
    understood: str,
    due: Sequence[Timestamp],
    zone: str,
    most: int | None,
    action: str = "",
) -> None:
    # Of a single time it goes without saying.
    often = counted(most, "time") if most and len(due) > 1 else ""
    lines = [("action", action), ("understood", understood)]
    lines += [("due", local(at, zone)) for at in due]
    fields(here, [*lines, ("at most", often)])
