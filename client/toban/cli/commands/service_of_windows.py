"""`toban service` on Windows: the daemon as a service of the system: installed, shown, started, stopped, removed."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this needs Windows")

import ctypes
import getpass
import json
import os
import shutil
import time
from collections import deque
from typing import Annotated, Any, Final

from toban.cli.control_manager.service_control import LOCAL_SERVICE, ServiceControl
from toban.cli.control_manager.service_place import ServicePlace, close_to_others, service_place
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, fields, paint
from toban.cli.session import OutputFormat, OutputOption, Session, session
from toban.cli.syntax import CommandContext, ExitCommand, Group, Option

app = Group(
    name="service",
    help="""Install and manage the daemon as a service of Windows.

    docs/windows.md describes it. Installing needs an elevated prompt.

    \b
    Examples:
      toban service install
      toban service status
      toban service logs -f
    """,
)

_ANSWER: Final = 60.0
_LOOK_AGAIN: Final = 0.5

DryRunOption = Annotated[bool, Option("--dry-run", help="Only show what would be done.")]


@app.command()
def install(
    ctx: CommandContext,
    account: Annotated[
        str,
        Option(
            "--account",
            metavar="NAME",
            help="User of the daemon and of its steps (default: LocalService); the password is asked for.",
            show_default=False,
        ),
    ] = "",
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Install the daemon as a service, and start it.

    It waits until the daemon answers. The service starts at boot, some time after the others, and again after a
    crash. Configuration, state and log are below %ProgramData%\\Toban, open to the service and to administrators only.
    It may be repeated: a configuration that exists stays as it is.

    \b
    Examples:
      toban service install --dry-run
      toban service install
      toban service install --account .\\batch
    """
    here = session(ctx, output)
    place = service_place()
    _check_interpreter(account)
    if not dry_run:
        _require_administrator("install the service")
    changes: list[dict[str, str]] = []
    if not os.path.isdir(place.directory):
        changes.append(_change("created", place.directory, "open to the service and to administrators"))
        if not dry_run:
            os.makedirs(place.directory)
    if not dry_run:
        close_to_others(place.directory)
    known = os.path.exists(place.config)
    changes.append(_change("unchanged" if known else "created", place.config))
    if not dry_run and not known:
        with open(place.config, "x", encoding="utf-8") as file:
            file.write(place.config_text)
    control = ServiceControl()
    existed = control.exists()
    change = _change("updated" if existed else "created", "service toban", f"runs as {account or LOCAL_SERVICE}")
    changes.append(change)
    if not dry_run:
        if existed:
            control.stop()
        if unsupported := control.put(place, account, _password(account)):
            change["note"] += f"; not supported by this system: {', '.join(unsupported)}"
        control.start()
    changes.append(_change("started", "service toban"))
    version = "" if dry_run else _wait_for_answer(place)
    _report(here, changes, dry_run=dry_run, version=version)


@app.command()
def status(ctx: CommandContext, output: OutputOption = None) -> None:
    """Show the service: its state, process, user and files.

    It exits with 3 if the service does not run, and with 5 if it is not installed.

    \b
    Examples:
      toban service status
      toban service status -o json
    """
    here = session(ctx, output)
    control, place = ServiceControl(), service_place()
    found = control.state()
    running = found.name == "running"
    match here.output:
        case OutputFormat.TABLE:
            fields(
                here,
                [
                    ("service", paint(here, found.name, "green" if running else "red")),
                    ("pid", str(found.pid or "")),
                    ("last exit code", str(found.exit_code or "")),
                    ("user", control.account()),
                    ("configuration", place.config),
                    ("state directory", place.directory),
                    ("log", place.log),
                ],
            )
        case OutputFormat.NAME:
            print(found.name)
        case _:
            data = {"state": found.name, "pid": found.pid, "exit_code": found.exit_code, "account": control.account()}
            emit_data(here, data | {"config": place.config, "state_dir": place.directory, "log": place.log})
    if not running:
        raise ExitCommand(Exit.UNREACHABLE)


@app.command()
def start(ctx: CommandContext, output: OutputOption = None) -> None:
    """Start the service, and wait until the daemon answers.

    \b
    Examples:
      toban service start
    """
    here = session(ctx, output)
    ServiceControl().start()
    _done(here, "started", _wait_for_answer(service_place()))


@app.command()
def stop(ctx: CommandContext, output: OutputOption = None) -> None:
    """Stop the daemon as `stop_policy` says; by default running steps continue.

    \b
    Examples:
      toban service stop
    """
    here = session(ctx, output)
    ServiceControl().stop()
    _done(here, "stopped", "")


@app.command()
def restart(ctx: CommandContext, output: OutputOption = None) -> None:
    """Restart the daemon; by default running steps continue.

    \b
    Examples:
      toban service restart
    """
    here = session(ctx, output)
    control = ServiceControl()
    control.stop()
    control.start()
    _done(here, "restarted", _wait_for_answer(service_place()))


@app.command()
def uninstall(
    ctx: CommandContext,
    purge: Annotated[bool, Option("--purge", help="Also remove configuration, log and all data.")] = False,
    dry_run: DryRunOption = False,
    output: OutputOption = None,
) -> None:
    """Stop and remove the service; configuration and data stay.

    Running steps continue to their end. With --purge there must be none.

    \b
    Examples:
      toban service uninstall
      toban service uninstall --purge --dry-run
    """
    here = session(ctx, output)
    control, place = ServiceControl(), service_place()
    changes: list[dict[str, str]] = []
    if control.exists():
        changes += [_change("stopped", "service toban"), _change("removed", "service toban")]
        if not dry_run:
            _require_administrator("remove the service")
            control.stop()
            control.delete()
    if purge and os.path.isdir(place.directory):
        changes.append(_change("removed", place.directory))
        if not dry_run:
            _remove(place.directory)
    _report(here, changes, dry_run=dry_run, version="")


@app.command()
def logs(
    ctx: CommandContext,
    follow: Annotated[bool, Option("-f", "--follow", help="Show new lines as they come, until Ctrl-C.")] = False,
    tail: Annotated[int, Option("--tail", "-n", min=0, metavar="N", help="Start with the last N lines.")] = 50,
) -> None:
    """Show the log of the daemon, as JSON lines.

    `toban logs` shows the output of runs.

    \b
    Examples:
      toban service logs
      toban service logs -f
    """
    path = service_place().log
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in deque(file, maxlen=tail):
                print(line, end="")
            while follow:
                if line := file.readline():
                    print(line, end="", flush=True)
                else:
                    time.sleep(_LOOK_AGAIN)
    except OSError as error:
        code = Exit.REFUSED if isinstance(error, PermissionError) else Exit.NOT_FOUND
        raise Failure(f"cannot read {path}: {error.strerror}", code) from None


def _require_administrator(what: str) -> None:
    if not ctypes.windll.shell32.IsUserAnAdmin():
        raise Failure(f"cannot {what}: this needs an administrator", Exit.REFUSED, hint="run it in an elevated prompt")


def _check_interpreter(account: str) -> None:
    """The service cannot read the profile of the user who installs it."""
    profile = os.environ.get("USERPROFILE", "")
    if not account and profile and _is_below(sys.prefix, profile):
        raise Failure(
            f"cannot install the service: {LOCAL_SERVICE} cannot read {sys.prefix}",
            Exit.USAGE,
            hint="install Python for all users, and Toban in a directory such as C:\\Program Files\\Toban",
        )


def _is_below(path: str, directory: str) -> bool:
    path, directory = (os.path.normcase(os.path.abspath(each)) for each in (path, directory))
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _password(account: str) -> str:
    """Of a named account. Managed service accounts, whose names end in $, have none, and neither has LocalService."""
    if not account or account.endswith("$"):
        return ""
    if sys.stdin.isatty():
        return getpass.getpass(f"password of {account} (empty for none): ")
    return sys.stdin.readline().rstrip("\r\n")


def _wait_for_answer(place: ServicePlace) -> str:
    """The version of the daemon that answers; empty if its state is elsewhere. Raises Failure."""
    from toban.cli.session import quiet_grpc

    quiet_grpc()
    from toban.sdk import SyncClient, TobanError

    try:
        with open(os.path.join(place.directory, "toband.json"), encoding="utf-8") as file:
            address = str(json.load(file)["listen"][0])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    token = os.path.join(place.directory, "admin.token")
    try:
        with SyncClient(address, token_file=token, timeout=_ANSWER, connect_for=_ANSWER) as client:
            return client.get_info().version
    except TobanError as error:
        raise Failure(
            f"the service was started, but does not answer at {address}: {error.message}",
            Exit.UNREACHABLE,
            hint="`toban service logs` shows why",
        ) from None


def _remove(directory: str) -> None:
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise Failure(
            f"cannot remove {error.filename or directory}: {error.strerror}",
            Exit.CONFLICT,
            hint="a step that still runs keeps its files open: wait for its end",
        ) from None


def _change(action: str, subject: str, note: str = "") -> dict[str, str]:
    return {"action": action, "subject": subject, "note": note}


def _report(here: Session, changes: list[dict[str, str]], *, dry_run: bool, version: str) -> None:
    match here.output:
        case OutputFormat.TABLE:
            if dry_run and changes:
                print("dry run: nothing is changed")
            for each in changes:
                action = f"would be {each['action']}" if dry_run and each["action"] != "unchanged" else each["action"]
                note = f" ({each['note']})" if each["note"] else ""
                print(f"{action}: {each['subject']}{note}")
            if version:
                print(paint(here, f"toband {version} is running", "green"))
        case OutputFormat.NAME:
            for each in changes:
                print(each["subject"])
        case _:
            emit_data(here, {"changes": changes, "dry_run": dry_run, "version": version})


def _done(here: Session, action: str, version: str) -> None:
    data: dict[str, Any] = {"action": action, "version": version}
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, data)
    else:
        here.note(f"{action} toband {version}".rstrip())
