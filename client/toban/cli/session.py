"""One invocation of `toban`: its global options, its client, and standard output and error."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.human_text import one_line
from toban.cli.safe_streams import behind
from toban.cli.syntax import CommandContext, Option

if TYPE_CHECKING:
    from rich.console import Console

    from toban.sdk import SyncClient

# How long a command that has reached the daemon tries again while the daemon restarts.
_RETRY_FOR: Final = 60.0


class OutputFormat(Enum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[
    OutputFormat | None,
    Option(
        "-o",
        "--output",
        help="Output format: table, json, yaml or name.",
        metavar="FORMAT",
        show_default=False,
    ),
]

LimitOption = Annotated[int, Option("--limit", "-n", min=1, metavar="N", help="Show at most N.")]

ForceOption = Annotated[
    bool,
    Option("--force", help="Also change definitions that a file owns."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One invocation of `toban`."""

    server: str | None = None
    context: str | None = None
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    output: OutputFormat = OutputFormat.TABLE
    no_color: bool = False
    quiet: bool = False
    verbose: bool = False

    def client(self, *, timeout: float = 30.0, retry_for: float = _RETRY_FOR) -> SyncClient:
        """A blocking client. Raises a TobanError if no address is known."""
        quiet_grpc()
        from toban.sdk import SyncClient

        if not gc.isenabled():
            # What is loaded stays: later collections need not look at it.
            gc.freeze()
            gc.enable()
        # A daemon that is down is reported at once.
        return SyncClient(
            self.server,
            context=self.context,
            token_file=self.token_file or "",
            ca=self.ca or b"",
            certificate=self.certificate or b"",
            key=self.key or b"",
            timeout=timeout,
            retry_for=retry_for,
            connect_for=0,
        )

    @property
    def color(self) -> bool:
        """Whether standard output gets colors."""
        return is_terminal() and not self.no_color and not os.environ.get("NO_COLOR")

    def console(self) -> Console:
        """A rich console on standard output, without its own defaults."""
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
        """Writes a note to standard error, except with -q."""
        if not self.quiet:
            complain(text)

    def warn(self, text: str) -> None:
        """Writes a warning to standard error, even with -q."""
        complain(f"toban: warning: {text}")


def session(ctx: CommandContext, output: OutputFormat | None = None) -> Session:
    """The session of this invocation; -o after the command wins over -o before it."""
    settings = Session(**{name: value for name, value in ctx.globals.items() if name != "version"})
    return replace(settings, output=output) if output is not None else settings


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def complain(text: str) -> None:
    """Writes a line to standard error; ignores a closed one."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def quiet_grpc() -> None:
    """Keeps gRPC from logging to standard error. Works only before grpc is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def shown(text: str) -> str:
    """A word of the command line, safe to show."""
    return one_line(text) or "''"
