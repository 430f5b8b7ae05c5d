"""`toban dev`: runs a daemon in the foreground, to try things out."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

from toban.cli.commands.web import NEEDED
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import complain, quiet_grpc, session
from toban.cli.syntax import CommandContext, Option

if TYPE_CHECKING:
    from toban.sdk import SyncClient

# The client package includes toband, but not its dependencies.
_NEEDED: Final = ("toband", "sqlalchemy", "alembic", "psutil", "structlog", "uuid_utils")

_START_DEADLINE: Final = 30.0
_CANCEL_DEADLINE: Final = 20.0
_STOP_DEADLINE: Final = 20.0
_POLL: Final = 0.05

# The path of the socket below it must fit into the 107 bytes that the system allows.
_LONGEST_DIRECTORY: Final = 90
_SHORT_PARENT: Final = "/tmp"  # noqa: S108 - mkdtemp makes the name


def dev(
    ctx: CommandContext,
    state_dir: Annotated[
        str,
        Option(
            "--state-dir",
            metavar="DIR",
            help="Keep the state here (default: a temporary directory, deleted at the end).",
            show_default=False,
        ),
    ] = "",
    no_web: Annotated[bool, Option("--no-web", help="Do not start `toban web` beside it.")] = False,
) -> None:
    """Run a daemon in the foreground, to try things out.

    With the extra `web` it also serves the console, and prints the link to it. Ctrl-C stops both. Without --state-dir
    active runs are cancelled first.

    \b
    Examples:
      toban dev
      toban dev --state-dir ./state
    """
    here = session(ctx)
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(
            f"cannot start a daemon: {', '.join(missing)} is not installed",
            Exit.UNREACHABLE,
            hint="pip install 'toban[daemon]'",
        )
    directory = os.path.abspath(state_dir) if state_dir else _temporary()
    try:
        with _signals_stop():
            _serve(directory, keep=bool(state_dir), quiet=here.quiet, web=not no_web and _has_web())
    finally:
        if not state_dir:
            shutil.rmtree(directory, ignore_errors=True)


class _Stop(BaseException):
    """A signal asks for the end."""


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """Turns Ctrl-C, a closed terminal and SIGTERM into _Stop."""

    def stop(signum: int, frame: FrameType | None) -> NoReturn:
        raise _Stop

    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = [(number, signal.signal(number, stop)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _has_web() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def _serve(directory: str, *, keep: bool, quiet: bool, web: bool) -> None:
    # In its own process group: Ctrl-C reaches only this process, which then stops the daemon.
    options: dict[str, Any] = {}
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        options["process_group"] = 0
    daemon = subprocess.Popen([sys.executable, "-m", "toband", "--state-dir", directory], env=_environment(), **options)
    try:
        address = _wait_until_served(daemon, directory)
        with _console(address, _token_file(address, directory)) if web else contextlib.nullcontext():
            if not quiet:
                _tell(address, directory, keep=keep)
            code = daemon.wait()
        raise Failure(f"the daemon exited unexpectedly with code {code}", Exit.UNREACHABLE)
    except _Stop:
        pass
    finally:
        with contextlib.suppress(_Stop):
            _stop(daemon, directory, cancel=not keep)
    complain("toban: the daemon has stopped")


@contextlib.contextmanager
def _console(address: str, token_file: str) -> Iterator[None]:
    """`toban web` beside the daemon, in this process group, so that it may read Enter from the terminal."""
    command = [sys.executable, "-m", "toban.cli", "--server", address]
    command += ["--token-file", token_file] if token_file else []
    console = subprocess.Popen(
        [*command, "web", "--listen", "127.0.0.1:0", "--no-build"], stdout=subprocess.DEVNULL, env=_environment()
    )
    try:
        yield
    finally:
        console.terminate()
        try:
            console.wait(_STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            console.kill()
            console.wait()


def _environment() -> dict[str, str]:
    """The environment without settings of another daemon, such as its database."""
    kept = ("TOBAN_LOG_",)
    return {key: value for key, value in os.environ.items() if not key.startswith("TOBAN_") or key.startswith(kept)}


def _wait_until_served(daemon: subprocess.Popen[bytes], directory: str) -> str:
    deadline = time.monotonic() + _START_DEADLINE
    while time.monotonic() < deadline:
        if (code := daemon.poll()) is not None:
            raise Failure(
                f"cannot start a daemon: it exited with code {code}",
                Exit.UNREACHABLE,
                hint="see its messages above",
            )
        if address := _announced(directory, daemon.pid):
            return address
        time.sleep(_POLL)
    raise Failure(f"cannot start a daemon: it was not ready after {_START_DEADLINE:g} s", Exit.UNREACHABLE)


def _announced(directory: str, pid: int) -> str:
    """The address, once this daemon has written it."""
    try:
        with open(os.path.join(directory, "toband.json"), encoding="utf-8") as file:
            facts = json.load(file)
        return str(facts["listen"][0]) if facts["pid"] == pid else ""
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _tell(address: str, directory: str, *, keep: bool) -> None:
    complain(f"toban: the daemon listens on {address}")
    complain(f"       its state is in {directory}{'' if keep else ', deleted when it stops'}")
    complain("       Ctrl-C stops it; in another terminal run:")
    # On standard output, for scripts.
    print(f"export TOBAN_SERVER={address}", flush=True)
    if token_file := _token_file(address, directory):
        print(f"export TOBAN_TOKEN_FILE={token_file}", flush=True)


def _token_file(address: str, directory: str) -> str:
    """The file with the token for a port, which a socket does not need."""
    return "" if address.startswith("unix:") else os.path.join(directory, "admin.token")


def _stop(daemon: subprocess.Popen[bytes], directory: str, *, cancel: bool) -> None:
    if daemon.poll() is not None:
        return
    complain("toban: stopping")
    address = _announced(directory, daemon.pid)
    if cancel and address:
        _cancel_runs(address, _token_file(address, directory))
    if sys.platform == "win32":
        daemon.send_signal(signal.CTRL_BREAK_EVENT)
    else:
        daemon.terminate()
    try:
        daemon.wait(_STOP_DEADLINE)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _cancel_runs(address: str, token_file: str) -> None:
    """Cancels active runs: steps outlive a daemon, but must not outlive its state."""
    quiet_grpc()
    from toban.sdk import SyncClient, TobanError
    from toban.v1 import run_pb2

    active = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING)
    deadline = time.monotonic() + _CANCEL_DEADLINE
    try:
        with SyncClient(address, token_file=token_file, retry_for=0) as client:
            runs = list(client.list_runs(states=active))
            # The second cancel ends finally steps that take too long.
            for within in (deadline - _CANCEL_DEADLINE / 2, deadline):
                for run in runs:
                    with contextlib.suppress(TobanError):
                        client.cancel_run(run.id, reason="toban dev was stopped")
                runs = [run for run in runs if not _ended(client, run.id, within)]
            if runs:
                raise TimeoutError(f"run {runs[0].id} has not ended")
    except (TobanError, TimeoutError) as error:
        complain(f"toban: warning: could not cancel every run: {error}")


def _ended(client: SyncClient, run_id: str, deadline: float) -> bool:
    try:
        client.wait_run(run_id, timeout=max(deadline - time.monotonic(), 0.1), reconnect=0)
    except TimeoutError:
        return False
    return True


def _temporary() -> str:
    directory = tempfile.mkdtemp(prefix="toban-dev-")
    if len(os.fsencode(directory)) <= _LONGEST_DIRECTORY or not os.path.isdir(_SHORT_PARENT):
        return directory
    os.rmdir(directory)
    return tempfile.mkdtemp(prefix="toban-dev-", dir=_SHORT_PARENT)
