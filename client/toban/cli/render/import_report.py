"""Writes the files of `toban import`, and reports their due times next to those of the old scheduler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import one_line
from toban.cli.render.output import emit_data, wide_table, write_file
from toban.cli.session import OutputFormat, Session, shown
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.importers.import_model import Imported, RefusedEntry
    from toban.importers.workflow_writer import WrittenWorkflow

_STDOUT: Final = "-"


def finish(
    here: Session,
    imported: Imported,
    what: str,
    source: str,
    to: str,
    force: bool,
    skip: bool,
    count: int,
    after: datetime,
) -> None:
    """Writes the files and the report; raises Failure if an entry could not be imported."""
    from toban.importers.import_model import ImportProblem, RefusedEntry
    from toban.importers.workflow_writer import written

    if to == _STDOUT and here.output is not OutputFormat.TABLE:
        raise Failure(
            f"cannot {what}: both the files and the report would go to standard output",
            Exit.USAGE,
            hint="-O DIR writes the files to a directory",
        )
    ready: list[WrittenWorkflow] = []
    refused = list(imported.refused)
    for draft in imported.drafts:
        try:
            ready.append(written(draft, after=after, count=count))
        except ImportProblem as problem:
            refused.append(RefusedEntry(where=draft.where, reason=str(problem)))
    files = _store(ready, to, force, what)
    match here.output:
        case OutputFormat.TABLE:
            _tell(here, ready, files, source, to=to)
        case OutputFormat.NAME:
            for each in ready:
                print(each.draft.name)
        case _:
            emit_data(here, _data(ready, files, refused))
    _tell_refused(here, refused, len(ready), what, source, skip)


def _tell_refused(
    here: Session, refused: Sequence[RefusedEntry], others: int, what: str, source: str, skip: bool
) -> None:
    if not refused:
        return
    if skip:
        for each in refused:
            here.warn(f"not imported: {one_line(str(each))}")
        return
    more = f", {others} imported" if others else ""
    hint = "--skip makes this a warning"
    if source == "systemd" and any(each.ignorable for each in refused):
        hint = f"--ignore NAME leaves a directive out; {hint}"
    raise Failure(
        f"cannot {what}: {counted(len(refused), 'entry')} not imported{more}",
        Exit.INVALID_DEFINITION,
        lines=[str(each) for each in refused],
        hint=hint,
    )


def _store(ready: Sequence[WrittenWorkflow], to: str, force: bool, what: str) -> list[str]:
    """Writes each workflow to a file, or none if a file exists; returns the paths."""
    if to == _STDOUT:
        write_file("---\n".join(each.text for each in ready))
        return [_STDOUT for _ in ready]
    paths = [os.path.join(to, f"{each.draft.name}.yaml") for each in ready]
    if os.path.exists(to) and not os.path.isdir(to):
        raise Failure(
            f"cannot {what}: {shown(to)} is not a directory",
            Exit.USAGE,
            hint="-O names the directory of the files; it is created if missing",
        )
    there = [path for path in paths if os.path.lexists(path)]
    if there and not force:
        raise Failure(
            f"cannot {what}: {shown(there[0])} exists",
            Exit.CONFLICT,
            hint="--force overwrites it, -O DIR chooses another directory",
        )
    try:
        if paths:
            os.makedirs(to, exist_ok=True)
        for path, each in zip(paths, ready, strict=True):
            with open(path, "w" if force else "x", encoding="utf-8", newline="\n") as opened:
                opened.write(each.text)
    except OSError as error:
        where = shown(str(error.filename or to))
        raise Failure(f"cannot {what}: cannot write {where}: {error.strerror or error}", Exit.USAGE) from error
    return paths


def _tell(here: Session, ready: Sequence[WrittenWorkflow], files: Sequence[str], source: str, *, to: str) -> None:
    def say(text: str) -> None:
        # Standard output may have the files.
        if to == _STDOUT:
            here.note(text)
        else:
            print(text)

    for each, file in zip(ready, files, strict=True):
        place = "" if to == _STDOUT else f"{one_line(file)}: "
        say(f"{place}{each.draft.name}, from {one_line(each.draft.where)}")
        for note in each.draft.notes:
            say(f"  note: {one_line(note)}")
        for line in _side_by_side(each, source):
            say(f"  {line}")
        if each.same is False:
            here.warn(f"{each.draft.name}: due times differ from those in {source}")


def _side_by_side(each: WrittenWorkflow, source: str) -> list[str]:
    if each.theirs is None and not each.ours:
        return ["due at each boot of the machine"]
    zone = each.draft.zone

    def clock(times: Sequence[datetime], at: int) -> str:
        if at >= len(times):
            return "-"
        return times[at].astimezone(zone).isoformat(sep=" ", timespec="seconds")

    if each.theirs is None:
        rows = [[clock(each.ours, at)] for at in range(len(each.ours))]
        return wide_table(["TOBAN"], rows).splitlines()
    length = max(len(each.theirs), len(each.ours))
    if not length:
        return [f"not due again, in {source} or in Toban"]
    rows = [
        [
            clock(each.theirs, at),
            clock(each.ours, at),
            "same" if each.theirs[at : at + 1] == each.ours[at : at + 1] else "DIFFERENT",
        ]
        for at in range(length)
    ]
    return wide_table([source.upper(), "TOBAN", ""], rows).splitlines()


def _data(ready: Sequence[WrittenWorkflow], files: Sequence[str], refused: Sequence[RefusedEntry]) -> dict[str, Any]:
    return {
        "workflows": [
            {
                "name": each.draft.name,
                "file": file,
                "source": each.draft.where,
                "notes": list(each.draft.notes),
                "due_there": None if each.theirs is None else [at.isoformat() for at in each.theirs],
                "due_here": [at.isoformat() for at in each.ours],
                "same": each.same,
            }
            for each, file in zip(ready, files, strict=True)
        ],
        "refused": [{"source": each.where, "reason": each.reason} for each in refused],
    }
