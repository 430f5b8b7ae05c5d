"""Commands that change several runs: those that are named, or those that a filter selects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toban.cli.args.name_arguments import check_known, one_run_id, run_id
from toban.cli.args.run_filter import RunFilter, RunStateOption
from toban.cli.error_report import Failure, doing
from toban.cli.exits import INTERRUPTED, Exit
from toban.cli.human_text import one_line
from toban.cli.render.output import Column, emit_data, table, time_column
from toban.cli.session import OutputFormat, Session, complain, shown
from toban.cli.syntax import ExitCommand
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2

_LISTED: Final = 20
"""Runs that the question names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAction:
    """What a command does with each run: `act` returns what it did, in words.

    `states` are those of the runs that a filter without states selects, and `wanted` leaves out more of them. `exact`:
    the name of a workflow does not stand for its latest run, as it never does among several.
    """

    verb: str
    states: Sequence[RunStateOption]
    act: Callable[[SyncClient, run_pb2.Run], str]
    wanted: Callable[[SyncClient, run_pb2.Run], bool] | None = None
    oldest_first: bool = True
    exact: bool = False


def is_single(runs: Sequence[str], chosen: RunFilter, *, dry_run: bool) -> bool:
    """Whether the command is about one run that is named."""
    return len(runs) == 1 and not chosen and not dry_run


def change_many(
    here: Session,
    client: SyncClient,
    change: RunAction,
    runs: Sequence[str],
    chosen: RunFilter,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Changes each of the runs, and reports each at once.

    Raises Failure, and ExitCommand if some runs could not be changed.
    """
    results: list[dict[str, Any]] = []
    if runs and not chosen:
        found, results = _named(client, change, runs)
    else:
        found = _selected(client, change, runs, chosen)
    if not found and not results:
        here.note(f"no runs to {change.verb}")
    elif dry_run:
        here.note(f"would {change.verb} {counted(len(found), 'run')}")
    elif chosen and not yes:
        _confirm(change.verb, found)
    if dry_run and here.output is OutputFormat.TABLE and found:
        _show(here, found)
    for run in found:
        results.append(_planned(here, run) if dry_run else _changed(here, client, change, run))
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, results)
    failed = sum(1 for each in results if each["outcome"] == "failed")
    if failed:
        here.note(f"{change.verb}: {len(results) - failed} of {counted(len(results), 'run')} done, {failed} failed")
        raise ExitCommand(Exit.CONFLICT)


def _named(
    client: SyncClient, change: RunAction, runs: Sequence[str]
) -> tuple[list[run_pb2.Run], list[dict[str, Any]]]:
    """The runs, and the results of those that do not exist."""
    identify = one_run_id if change.exact or len(runs) > 1 else run_id
    found: dict[str, run_pb2.Run] = {}
    missing: list[dict[str, Any]] = []
    for text in dict.fromkeys(runs):
        try:
            with doing(f"{change.verb} run {shown(text)}"):
                run = client.get_run(identify(client, text))
        except Failure as failure:
            if failure.code is not Exit.NOT_FOUND:
                raise
            missing.append(_refused("", text, failure))
        else:
            found[run.id] = run
    return list(found.values()), missing


def _selected(client: SyncClient, change: RunAction, runs: Sequence[str], chosen: RunFilter) -> list[run_pb2.Run]:
    what = f"{change.verb} runs"
    if runs and chosen:
        raise Failure(f"cannot {what}: give either RUN or options that select runs", Exit.USAGE)
    if not chosen:
        hint = f"`toban runs {change.verb} nightly#12`, or `toban runs {change.verb} --workflow nightly --since 1d`"
        raise Failure(f"cannot {what}: give RUN or options that select runs", Exit.USAGE, hint=hint)
    listed = list(chosen.find(client, what, otherwise=change.states))
    if chosen.workflow and not listed:
        check_known(client, chosen.workflow, what)
    wanted = change.wanted
    found = [run for run in listed if wanted is None or wanted(client, run)]
    return found[::-1] if change.oldest_first else found


def _confirm(verb: str, found: Sequence[run_pb2.Run]) -> None:
    """Asks on the terminal."""
    from toban.cli.render.run_text import run_name, run_state

    question = f"{verb} {counted(len(found), 'run')}?"
    if not sys.stdin.isatty():
        hint = "--dry-run lists them, --yes does it without a question"
        raise Failure(f"cannot {verb} {counted(len(found), 'run')}: there is no terminal to ask", Exit.USAGE, hint=hint)
    for run in found[:_LISTED]:
        complain(f"  {one_line(f'{run_name(run)} {run_state(run)}')}")
    if len(found) > _LISTED:
        complain(f"  and {len(found) - _LISTED} more")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("toban: nothing was changed")
        raise ExitCommand(INTERRUPTED)


def _planned(here: Session, run: run_pb2.Run) -> dict[str, Any]:
    if here.output is OutputFormat.NAME:
        print(run.id)
    return _result(run, "planned")


def _changed(here: Session, client: SyncClient, change: RunAction, run: run_pb2.Run) -> dict[str, Any]:
    from toban.cli.render.run_text import run_name

    try:
        with doing(f"{change.verb} run {run_name(run)}"):
            done = change.act(client, run)
    except Failure as failure:
        if failure.code is Exit.UNREACHABLE:
            raise
        return _refused(run.id, run_name(run), failure)
    if here.output is OutputFormat.TABLE:
        print(done, flush=True)
    elif here.output is OutputFormat.NAME:
        print(run.id, flush=True)
    return _result(run, "done")


def _result(run: run_pb2.Run, outcome: str) -> dict[str, Any]:
    from toban.cli.render.run_text import run_name

    return {"id": run.id, "run": run_name(run), "outcome": outcome, "error": ""}


def _refused(run_id: str, name: str, failure: Failure) -> dict[str, Any]:
    """Reports a run that could not be changed."""
    complain(f"toban: {one_line(failure.message)}")
    if failure.hint:
        complain(f"hint: {one_line(failure.hint)}")
    return {"id": run_id, "run": name, "outcome": "failed", "error": failure.message}


def _show(here: Session, found: Sequence[run_pb2.Run]) -> None:
    from toban.cli.render.run_text import run_name, run_state, run_style

    columns: list[Column[run_pb2.Run]] = [
        Column("RUN", run_name, lambda _: "bold"),
        Column("STATE", run_state, run_style, folds=True),
        time_column("CREATED", lambda run: run.created_at),
    ]
    table(here, found, columns)
