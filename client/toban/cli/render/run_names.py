"""Names of other runs that a run or an event refers to: `nightly#3` instead of an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from toban.cli.render.run_text import run_label

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2

# In one call; further runs keep their ids.
NAMED_AT_ONCE: Final = 500


def names_of(client: SyncClient, ids: Iterable[str], show: Callable[[run_pb2.Run], str] = run_label) -> dict[str, str]:
    """`nightly#3`, with a title, for each id of a run that still exists and that the caller may see."""
    from toban.sdk import Refused

    wanted = list(dict.fromkeys(filter(None, ids)))[:NAMED_AT_ONCE]
    try:
        return {run.id: show(run) for run in client.list_runs(ids=wanted, page_size=NAMED_AT_ONCE)} if wanted else {}
    except Refused:
        # A step may list no runs, although it may have started some of these.
        return {}


def mentioned(run: run_pb2.Run) -> list[str]:
    """The ids of all runs that this one refers to, the most important first."""
    own = [run.retry_of, run.parent_run, run.from_run]
    steps = [name for step in run.steps for name in (step.child_run, step.source_run)]
    return [one for one in dict.fromkeys([*own, *steps]) if one]
