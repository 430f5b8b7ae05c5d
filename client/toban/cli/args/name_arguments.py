"""Arguments that name workflows, jobs and runs: by name, by id, or by `NAME#number`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.completers import job_names, run_names, workflow_names
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.session import Session, shown
from toban.cli.syntax import Argument

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import job_pb2, workflow_pb2

RunArgument = Annotated[
    str,
    Argument(
        metavar="RUN",
        help="Run id or a part of it, NAME#number, or NAME for the active or latest run of a workflow.",
        show_default=False,
        autocompletion=run_names,
    ),
]

RunsOrFilter = Annotated[
    list[str] | None,
    Argument(
        metavar="RUN",
        help="Runs, each as an id or a part of it, or NAME#number; a single NAME is its active or latest run.",
        show_default=False,
        autocompletion=run_names,
    ),
]

ExactRunsOrFilter = Annotated[
    list[str] | None,
    Argument(
        metavar="RUN",
        help="Run ids, or parts of them, or NAME#number.",
        show_default=False,
        autocompletion=run_names,
    ),
]

NameArgument = Annotated[
    str,
    Argument(
        metavar="NAME",
        help="Workflow name.",
        show_default=False,
        autocompletion=workflow_names,
    ),
]

NamesArgument = Annotated[
    list[str],
    Argument(
        metavar="NAME",
        help="Workflow names.",
        show_default=False,
        autocompletion=workflow_names,
    ),
]

JobArgument = Annotated[
    str,
    Argument(metavar="JOB", help="Job id.", show_default=False, autocompletion=job_names),
]

JobsArgument = Annotated[
    list[str],
    Argument(metavar="JOB", help="Job ids.", show_default=False, autocompletion=job_names),
]

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# The start or the end of an id.
_PART: Final = re.compile(r"[0-9a-f-]{4,36}", re.IGNORECASE | re.ASCII)
_NUMBERED: Final = re.compile(r"(.+)#(\d+)")

# How many names are searched for a suggestion.
_CANDIDATES: Final = 5000
_PAGE: Final = 1000
_SHOWN: Final = 3


@contextmanager
def connect(here: Session, what: str) -> Iterator[SyncClient]:
    """A client for one purpose; its errors become a Failure to do `what`."""
    with doing(what), here.client() as client:
        yield client


def run_id(client: SyncClient, text: str) -> str:
    """The id of a run. Raises Failure if there is no such run."""
    if _ID.fullmatch(text):
        return text.lower()
    if numbered := _NUMBERED.fullmatch(text):
        name, number = numbered[1], int(numbered[2])
        with about_workflow(client, name, f"find run {shown(text)}"):
            return _by_number(client, name, number)
    from toban.sdk import NotFound

    with about_workflow(client, text, f"find a run of {shown(text)}"):
        try:
            return client.get_current_run(text).id
        except NotFound as error:
            if error.reason == "WORKFLOW_NOT_FOUND" and (found := _by_part(client, "run", text)):
                return found
            raise


def one_run_id(client: SyncClient, text: str) -> str:
    """Like `run_id`, for what cannot be undone: a NAME alone, which means a different run over time, is not enough."""
    if not _ID.fullmatch(text) and not _NUMBERED.fullmatch(text):
        if stored(client, text) is None and (found := _by_part(client, "run", text)):
            return found
        raise Failure(
            f"cannot choose a run of {shown(text)}: the name alone is ambiguous",
            Exit.USAGE,
            hint=f"give its id, or {shown(text)}#number",
        )
    return run_id(client, text)


def whole_id(client: SyncClient, noun: str, text: str) -> str:
    """The id of a process, an event, a dead letter or a schedule, of which `text` may be the start or the end.

    A text that is no part of an id is returned unchanged. Raises Failure if several ids have it.
    """
    if _ID.fullmatch(text):
        return text.lower()
    return _by_part(client, noun, text) or text


def listed_id(noun: str, text: str, listed: Mapping[str, str]) -> str:
    """Like `whole_id` for ids of credentials, which the daemon does not search: `listed` are all names by id.

    A text that is a name or an id is returned unchanged.
    """
    if text in listed or text in listed.values() or not _PART.fullmatch(text):
        return text
    part = text.lower()
    found = {each: name for each, name in listed.items() if each.startswith(part) or each.endswith(part)}
    if len(found) > 1:
        raise _several(noun, text, found)
    return next(iter(found), text)


def _by_part(client: SyncClient, noun: str, text: str) -> str:
    """The id that begins or ends with the text; empty if there is none. Raises Failure if there are several."""
    if not _PART.fullmatch(text):
        return ""
    from toban.v1 import run_pb2

    found = client.find_ids(run_pb2.IdKind.Value(f"ID_KIND_{noun.upper().replace(' ', '_')}"), text)
    if len(found) <= 1:
        return next(iter(found), "")
    names: Mapping[str, str] = {}
    if noun == "run":
        from toban.cli.render.run_names import names_of

        names = names_of(client, found)
    raise _several(noun, text, {each: names.get(each, "") for each in found})


def _several(noun: str, text: str, found: Mapping[str, str]) -> Failure:
    return Failure(
        f"cannot choose a {noun}: {len(found)} ids begin or end with {shown(text)}",
        Exit.USAGE,
        lines=[f"{each} {name}".rstrip() for each, name in found.items()],
        hint="give more of the id",
    )


def check_known(client: SyncClient, name: str, what: str) -> None:
    """Raises Failure if the name is neither that of a workflow or a job, nor that of a deleted one that has runs."""
    if stored(client, name) is not None or next(iter(client.list_runs(workflow=name, page_size=1)), None) is not None:
        return
    raise Failure(
        f"cannot {what}: no workflow {shown(name)}",
        Exit.NOT_FOUND,
        hint=_suggestion(name, "workflow", lambda: _workflows(client) | _jobs(client)),
    )


def _by_number(client: SyncClient, name: str, number: int) -> str:
    if 0 < number < 2**31:
        for run in client.list_runs(workflow=name, number=number, page_size=1):
            return run.id
    raise Failure(
        f"cannot find run {shown(name)}#{number}: no such run",
        Exit.NOT_FOUND,
        hint=f"`toban runs list --workflow {shown(name)}` lists its runs",
    )


@contextmanager
def about_workflow(client: SyncClient, name: str, what: str) -> Iterator[None]:
    """Like `doing`; for an unknown workflow it suggests a similar name."""
    with _about(name, what, "workflow", lambda: _workflows(client)):
        yield


@contextmanager
def about_job(client: SyncClient, name: str, what: str) -> Iterator[None]:
    """Like `doing`; for an unknown job it suggests a similar id."""
    with _about(name, what, "job", lambda: _jobs(client)):
        yield


@contextmanager
def _about(name: str, what: str, noun: str, known: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    try:
        with doing(what):
            yield
    except Failure as failure:
        if failure.code is Exit.NOT_FOUND and not failure.hint:
            failure.hint = _suggestion(name, noun, known)
        raise


def _suggestion(name: str, noun: str, list_known: Callable[[], Mapping[str, str]]) -> str:
    from toban.sdk import TobanError

    try:
        known = list_known()
    except TobanError:
        return ""
    if name in known:
        return ""
    titled = [each for each, title in known.items() if title == name]
    if titled:
        return f"that is the title of {' and of '.join(titled[:_SHOWN])}"
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if not known:
        return f"no {noun}s yet: `toban apply FILE` stores one"
    return f"`toban {noun}s list` lists all {noun}s"


def _workflows(client: SyncClient) -> dict[str, str]:
    """Titles by name."""
    found = islice(client.list_workflows(page_size=_PAGE), _CANDIDATES)
    return {workflow.name: workflow.title for workflow in found}


def _jobs(client: SyncClient) -> dict[str, str]:
    return {job.name: job.title for job in islice(client.list_jobs(page_size=_PAGE), _CANDIDATES)}


def stored(client: SyncClient, name: str) -> workflow_pb2.Workflow | job_pb2.Job | None:
    """The workflow or the job of that name; None if it was deleted."""
    from toban.sdk import NotFound

    try:
        return client.get_workflow(name)
    except NotFound:
        with suppress(NotFound):
            return client.get_job(name)
    return None
