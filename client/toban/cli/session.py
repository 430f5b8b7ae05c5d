"""What the global options said, and the doors to the daemon and to the two output streams."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toban.cli.human_text import one_line
from toban.cli.safe_streams import behind

if TYPE_CHECKING:
    from rich.console import Console

    from toban.sdk import SyncClient

# How long a command that has reached the daemon tries again while the daemon restarts.
_RETRY_FOR: Final = 60.0


class Output(Enum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[
    Output | None,
    typer.Option(
        "-o",
        "--output",
        help="Form of the output: table, json, yaml or name.",
        metavar="FORM",
        show_default=False,
    ),
]

LimitOption = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most this many.")]

ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Also what a definition file of the daemon's owns."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One invocation of `toban`."""

    server: str | None = None
    output: Output = Output.TABLE
    no_color: bool = False
    quiet: bool = False
    verbose: bool = False

    def client(self) -> SyncClient:
        """The blocking client. Raises a TobanError if there is no address to talk to."""
        quiet_grpc()
        from toban.sdk import SyncClient

        # A daemon that is down is reported at once.
        return SyncClient(self.server, retry_for=_RETRY_FOR, connect_for=0)

    @property
    def color(self) -> bool:
        """Whether standard output may carry colours."""
        return is_terminal() and not self.no_color and not os.environ.get("NO_COLOR")

    def console(self) -> Console:
        """A console on standard output that decides nothing by itself."""
        from rich.console import Console

        return Console(
            file=behind(sys.stdout),
            force_terminal=is_terminal(),
            no_color=not self.color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )

    def note(self, text: str) -> None:
        """Tells something beside the output; not with -q."""
        if not self.quiet:
            complain(text)

    def warn(self, text: str) -> None:
        """Warns on standard error, even with -q."""
        complain(f"toban: warning: {text}")


def session(ctx: typer.Context, output: Output | None = None) -> Session:
    """The session of this invocation; an -o after the verb wins over one before it."""
    settings = ctx.find_object(Session) or Session()
    return replace(settings, output=output) if output is not None else settings


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def complain(text: str) -> None:
    """One line on standard error, if somebody still listens there."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def quiet_grpc() -> None:
    """gRPC's core would otherwise write remarks of its own on standard error. Before its import only."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def shown(text: str) -> str:
    """A word of the user's own command line, safe to be shown back."""
    return one_line(text) or "''"
