"""`toban service`: the daemon as a service of systemd: installed, shown, upgraded, removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

from toban.cli.commands import service_logs
from toban.cli.commands.web import check_web_installed
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, fields, paint
from toban.cli.session import OutputFormat, OutputOption, Session, session
from toban.cli.syntax import CommandContext, ExitCommand, Group, Option

if TYPE_CHECKING:
    from toban.cli.systemd.managed_files import ServiceChange
    from toban.cli.systemd.service_layout import ServiceLayout
    from toban.cli.systemd.service_record import ServiceVersion
    from toban.cli.systemd.service_setup import ServiceSetup

app = Group(
    name="service",
    help="""Install and manage the daemon as a service of systemd.

    docs/service.md describes it.

    \b
    Examples:
      sudo toban service install
      toban service status
      toban service logs -f
      sudo toban service upgrade --from toban-0.2.0-py3-none-any.whl
    """,
)

UserOption = Annotated[bool, Option("--user", help="A service of your own, not that of the system.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Only show what would be done.")]
FromOption = Annotated[
    str,
    Option("--from", metavar="WHEEL", help="Install this wheel (default: the toban that runs this command)."),
]
FindLinksOption = Annotated[
    str,
    Option("--find-links", metavar="DIR", help="With --from: take packages from this directory, not from a network."),
]
PythonOption = Annotated[
    str,
    Option("--python", metavar="PATH", help="Python of the service (default: that of toban, else of the system)."),
]
ForceReplaceOption = Annotated[
    bool, Option("--force", help="Replace a unit that was edited; the old one is kept as FILE.old.")
]

# Seconds in which a started daemon must answer.
_ANSWER: Final = 30.0
_ACTIONS: Final = {"unchanged", "kept"}


@app.command()
def install(
    ctx: CommandContext,
    user: UserOption = False,
    dry_run: DryRunOption = False,
    hardened: Annotated[
        bool, Option("--hardened", help="Add the hardening drop-in: no sudo in steps, most of the disk read-only.")
    ] = False,
    web: Annotated[
        bool, Option("--web", help="Also install the web console and the HTTP API, as a unit of its own.")
    ] = False,
    wheel: FromOption = "",
    find_links: FindLinksOption = "",
    python: PythonOption = "",
    force: ForceReplaceOption = False,
    output: OutputOption = None,
) -> None:
    """Install the daemon as a service, and start it.

    It waits until the daemon answers. It copies this toban with all that it needs below /opt/toban, creates the users
    toban and toban-step, the configuration and the unit. It may be repeated: it says what it changed, and leaves files
    alone that you edited.

    \b
    Examples:
      sudo toban service install --dry-run
      sudo toban service install --web
      toban service install --user
    """
    here = session(ctx, output)
    layout = _layout(user=user)
    if web:
        check_web_installed("install the web console")
    from toban.cli.systemd.service_setup import InstallChoices, ServiceSetup

    choices = InstallChoices(
        wheel=wheel, find_links=find_links, python=python, hardened=hardened, web=web, force=force, dry_run=dry_run
    )
    setup = ServiceSetup(layout, choices)
    target = _change(here, layout, setup, setup.install, dry_run=dry_run)
    if not dry_run and here.output is OutputFormat.TABLE:
        _next_steps(here, layout, target)


@app.command()
def upgrade(
    ctx: CommandContext,
    user: UserOption = False,
    dry_run: DryRunOption = False,
    wheel: FromOption = "",
    find_links: FindLinksOption = "",
    python: PythonOption = "",
    force: ForceReplaceOption = False,
    output: OutputOption = None,
) -> None:
    """Switch the service to another version, under running steps.

    No step is disturbed. The new version is installed beside the old one, and checked with the configuration and the
    database before the daemon is restarted. If it does not start, the old version runs again. A version that is too
    old for the database is refused. `toban service rollback` goes back.

    \b
    Examples:
      sudo toban service upgrade --from toban-0.2.0-py3-none-any.whl
      sudo toban service upgrade --from new/toban-*.whl --find-links new
      sudo /srv/new-venv/bin/toban service upgrade
    """
    here = session(ctx, output)
    layout = _layout(user=user)
    from toban.cli.systemd.service_setup import InstallChoices, ServiceSetup

    choices = InstallChoices(wheel=wheel, find_links=find_links, python=python, force=force, dry_run=dry_run)
    setup = ServiceSetup(layout, choices)
    _change(here, layout, setup, setup.upgrade, dry_run=dry_run)


@app.command()
def rollback(
    ctx: CommandContext, user: UserOption = False, dry_run: DryRunOption = False, output: OutputOption = None
) -> None:
    """Switch the service back to the version before.

    Running steps are not disturbed. It is refused if the newer version has changed the database so that the older one
    cannot use it.

    \b
    Examples:
      sudo toban service rollback
      toban service rollback --user
    """
    here = session(ctx, output)
    layout = _layout(user=user)
    from toban.cli.systemd.service_setup import InstallChoices, ServiceSetup

    setup = ServiceSetup(layout, InstallChoices(dry_run=dry_run))
    _change(here, layout, setup, setup.roll_back, dry_run=dry_run)


@app.command()
def status(ctx: CommandContext, user: UserOption = False, output: OutputOption = None) -> None:
    """Show the service: its state, version, process and files.

    It exits with 3 if the service does not run, and with 5 if it is not installed.

    \b
    Examples:
      toban service status
      toban service status --user -o json
    """
    here = session(ctx, output)
    layout = _layout(user=user)
    from toban.cli.systemd.service_facts import service_facts
    from toban.cli.systemd.service_manager import ServiceManager

    manager = ServiceManager(user=user)
    manager.require()
    found = service_facts(layout, manager)
    if not found.installed:
        hint = f"`toban service install{' --user' if user else ''}` installs it"
        raise Failure("cannot show the service: it is not installed", Exit.NOT_FOUND, hint=hint)
    match here.output:
        case OutputFormat.TABLE:
            pairs = [
                ("service", paint(here, found.state, "green" if found.active else "red")),
                ("status", found.status),
                ("since", found.since),
                ("pid", str(found.pid or "")),
                ("steps with processes", str(found.steps or "")),
                ("restarts after failures", str(found.restarts or "")),
                ("at boot", "started" if found.enabled else "not started"),
                ("version", found.version),
                ("version before", found.previous_version),
                ("unit", found.unit),
                ("configuration", found.config),
                ("state directory", found.state_dir),
            ]
            fields(here, pairs)
        case OutputFormat.NAME:
            print(found.state.partition(" ")[0])
        case _:
            emit_data(here, found.data())
    if not found.active:
        raise ExitCommand(Exit.UNREACHABLE)


@app.command()
def restart(ctx: CommandContext, user: UserOption = False, output: OutputOption = None) -> None:
    """Restart the daemon; running steps continue.

    It waits until the daemon answers.

    \b
    Examples:
      sudo toban service restart
      toban service restart --user
    """
    here = session(ctx, output)
    layout = _layout(user=user)
    from toban.cli.systemd.service_layout import UNIT
    from toban.cli.systemd.service_manager import ServiceManager

    manager = ServiceManager(user=user)
    manager.require()
    if manager.show("LoadState").get("LoadState") == "not-found":
        raise Failure("cannot restart the service: it is not installed", Exit.NOT_FOUND)
    _require_root(layout, "restart the service")
    steps = manager.steps()
    manager.ask("reset-failed", UNIT)
    manager.tell("restart", UNIT, what="restart the service")
    version = _wait_for_answer(layout)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, {"version": version, "steps": steps})
    else:
        here.note(f"restarted toband {version}" + (f"; running steps: {steps}, which continue" if steps else ""))


@app.command()
def uninstall(
    ctx: CommandContext,
    user: UserOption = False,
    dry_run: DryRunOption = False,
    purge: Annotated[
        bool, Option("--purge", help="Also remove the configuration and all data: runs, logs, secrets.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Also while steps are running, which it ends.")] = False,
    output: OutputOption = None,
) -> None:
    """Stop and remove the service; configuration and data stay.

    It is refused while steps are running. The users toban and toban-step stay, so that no other user gets their
    numbers.

    \b
    Examples:
      sudo toban service uninstall
      sudo toban service uninstall --purge --dry-run
    """
    here = session(ctx, output)
    layout = _layout(user=user)
    from toban.cli.systemd.service_removal import ServiceRemoval

    removal = ServiceRemoval(layout, purge=purge, force=force, dry_run=dry_run)
    try:
        removal.remove()
    except Failure:
        _report(here, removal.changes, dry_run=dry_run)
        raise
    _report(here, removal.changes, dry_run=dry_run, finished={})


app.command()(service_logs.logs)


def _layout(*, user: bool) -> ServiceLayout:
    """Raises Failure where there is no systemd."""
    if sys.platform != "linux":
        raise Failure(
            "cannot manage the service: this needs Linux with systemd", Exit.USAGE, hint="see docs/service.md"
        )
    from toban.cli.systemd.service_layout import system_layout, user_layout

    return user_layout() if user else system_layout()


def _require_root(layout: ServiceLayout, what: str) -> None:
    if sys.platform != "win32" and not layout.user and os.geteuid() != 0:
        raise Failure(f"cannot {what}: this needs root", Exit.REFUSED, hint="use sudo, or --user for your own")


def _change(
    here: Session, layout: ServiceLayout, setup: ServiceSetup, change: Callable[[], ServiceVersion], *, dry_run: bool
) -> ServiceVersion:
    """Makes the changes, and reports them, also if one of them fails."""
    try:
        target = change()
        answering = "" if dry_run else _wait_for_answer(layout)
    except Failure:
        _report(here, setup.changes, dry_run=dry_run)
        raise
    _report(here, setup.changes, dry_run=dry_run, finished={"version": target.version})
    if answering and here.output is OutputFormat.TABLE:
        print(paint(here, f"toband {answering} is running", "green"))
    return target


def _report(
    here: Session, changes: Sequence[ServiceChange], *, dry_run: bool, finished: dict[str, Any] | None = None
) -> None:
    """`finished` is what else a complete report has; without it a failure follows, and JSON is left out."""
    match here.output:
        case OutputFormat.TABLE:
            if dry_run and changes:
                print("dry run: nothing is changed")
            for each in changes:
                action = f"would be {each.action}" if dry_run and each.action not in _ACTIONS else each.action
                note = f" ({each.note})" if each.note else ""
                print(f"{action}: {each.subject}{note}")
        case OutputFormat.NAME:
            for each in changes:
                if each.action not in _ACTIONS:
                    print(each.subject)
        case _:
            if finished is not None:
                emit_data(here, {"changes": [asdict(each) for each in changes], "dry_run": dry_run, **finished})


def _wait_for_answer(layout: ServiceLayout) -> str:
    """The version of the daemon that answers. Raises Failure."""
    import json

    from toban.cli.session import quiet_grpc

    quiet_grpc()
    from toban.sdk import SyncClient, TobanError

    where = f"{layout.state_dir}/toband.json"
    try:
        with open(where, encoding="utf-8") as file:
            addresses = [str(each) for each in json.load(file)["listen"]]
    except (OSError, ValueError, LookupError, TypeError):
        # Another state directory is configured; systemd says that the daemon listens.
        return ""
    local = next((each for each in addresses if each.startswith("unix:")), addresses[0] if addresses else "")
    try:
        with SyncClient(local, timeout=_ANSWER, connect_for=_ANSWER) as client:
            return client.get_info().version
    except TobanError as error:
        raise Failure(
            f"the service was started, but does not answer at {local}: {error.message}",
            Exit.UNREACHABLE,
            hint=f"`toban service logs{' --user' if layout.user else ''}` shows why",
        ) from None


def _next_steps(here: Session, layout: ServiceLayout, target: ServiceVersion) -> None:
    mine = " --user" if layout.user else ""
    pairs = [
        ("look", f"toban service status{mine}, toban service logs{mine} -f, toban status"),
        ("configure", f"edit {layout.config}, then toban system reload, which says what needs a restart"),
        ("unit", f"systemctl{mine} edit toband, for changes that an upgrade leaves alone"),
        ("upgrade", f"toban service upgrade{mine} --from WHEEL, and toban service rollback{mine} to go back"),
    ]
    if layout.user:
        pairs.append(("at boot", "loginctl enable-linger, so that it runs without a login"))
    else:
        pairs.append(("people", f"usermod -aG {layout.account} NAME lets a user define and run workflows"))
    print()
    fields(here, pairs)
