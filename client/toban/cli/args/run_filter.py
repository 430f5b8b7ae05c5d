"""Options that select runs, for lists and for commands that change many runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.completers import workflow_names
from toban.cli.args.labels import parse_labels
from toban.cli.args.time_options import time_option
from toban.cli.syntax import Option

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2


class RunStateOption(Enum):
    """States of runs on the command line."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"


ACTIVE: Final = (RunStateOption.PENDING, RunStateOption.RUNNING)
FAILED: Final = (RunStateOption.FAILED, RunStateOption.TIMED_OUT)
RETRYABLE: Final = (*FAILED, RunStateOption.CANCELLED)
ENDED: Final = (RunStateOption.SUCCEEDED, *RETRYABLE)

WorkflowFilter = Annotated[
    str,
    Option(
        "--workflow",
        "-w",
        metavar="NAME",
        help="Only runs of this workflow or job.",
        show_default=False,
        autocompletion=workflow_names,
    ),
]
StateFilter = Annotated[
    list[RunStateOption] | None,
    Option(
        "--state",
        "-s",
        metavar="STATE",
        help="Only runs in this state: pending, running, succeeded, failed, timed-out or cancelled; may be repeated.",
    ),
]
FailedFilter = Annotated[bool, Option("--failed", help="Only runs that failed or timed out.")]
SinceFilter = Annotated[
    str,
    Option(
        "--since",
        metavar="TIME",
        help="Only runs created since then: 5m, 1h30m, 18:00 or a date and time.",
        show_default=False,
    ),
]
UntilFilter = Annotated[
    str, Option("--until", metavar="TIME", help="Only runs created before then.", show_default=False)
]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Only list the runs; change nothing.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """The runs that these options select."""

    workflow: str = ""
    states: Sequence[RunStateOption] = ()
    since: str = ""
    until: str = ""
    labels: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.workflow or self.states or self.since or self.until or self.labels)

    def find(self, client: SyncClient, what: str, *, otherwise: Sequence[RunStateOption] = ()) -> Iterator[run_pb2.Run]:
        """Newest first. `otherwise` are the states if none is given. Raises Failure to do `what`."""
        from toban.v1 import run_pb2

        yield from client.list_runs(
            workflow=self.workflow,
            states=[run_pb2.RunState.Value(f"RUN_STATE_{one.name}") for one in self.states or otherwise],
            labels=parse_labels(self.labels, what),
            created_after=time_option(self.since, "--since", what),
            created_before=time_option(self.until, "--until", what),
            page_size=1000,
        )


def run_filter(
    workflow: str,
    state: Sequence[RunStateOption] | None,
    failed: bool,
    since: str,
    until: str,
    label: Sequence[str] | None,
) -> RunFilter:
    states = [*(state or ()), *(FAILED if failed else ())]
    return RunFilter(workflow=workflow, states=states, since=since, until=until, labels=label or ())
