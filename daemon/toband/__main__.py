"""The `toband` program: reads the configuration, locks the state directory, and serves."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toban import __version__
from toband import exit_codes
from toband.config import Config, ConfigError, load
from toband.config.report import report_config, report_problems
from toband.state_dir import StateDir, StateDirError

if TYPE_CHECKING:
    from toband.app.service_host import ServiceHost

SWITCH_INTERVAL = 0.0002

_EXAMPLES = """\
examples:
  toband                                     serve on the default state directory
  toband --state-dir /srv/toban              serve on another one
  toband --config /etc/toban/toband.toml --check-config
  toband --config toband.toml --listen tls://0.0.0.0:7233
  toband --config /etc/toban/toband.toml --check-config -o json
  TOBAN_LOG_LEVEL=debug toband --listen 127.0.0.1:0
"""


def main(arguments: Sequence[str] | None = None) -> int:
    return run_with(arguments, lambda problem: print(f"toband: {problem}", file=sys.stderr))


def run_with(arguments: Sequence[str] | None, complain: Callable[[str], None], host: ServiceHost | None = None) -> int:
    """Runs the program; `complain` gets the problems that end it."""
    given = _parser().parse_args(arguments)
    flags = {
        "state_dir": given.state_dir,
        "listen": given.listen,
        "database": given.database,
        "log.level": given.log_level,
        "log.format": given.log_format,
        "log.file": given.log_file,
    }
    if given.output and not given.check_config:
        print("toband: -o needs --check-config", file=sys.stderr)
        return exit_codes.USAGE

    def read() -> Config:
        return load(given.config, os.environ, flags)

    if given.check_config and isinstance(sys.stdout, io.TextIOWrapper):
        # A path may contain letters that the encoding of a pipe on Windows lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    as_json = given.output == "json"
    try:
        config = read()
    except ConfigError as error:
        report_problems(error.problems, complain, as_json=as_json)
        return exit_codes.USAGE
    if given.check_config:
        report_config(config, as_json=as_json)
        return 0
    for warning in config.warnings:
        print(f"toband: warning: {warning}", file=sys.stderr)
    try:
        if given.check_database:
            return _check_database(config, complain)
        return _serve(config, read, complain, host, take_over=given.take_over, new_database=given.new_database)
    except ModuleNotFoundError as error:
        complain(f"cannot start: the module {error.name} is missing; run: pip install 'toban[daemon]'")
        return exit_codes.FAILED


def _check_database(config: Config, complain: Callable[[str], None]) -> int:
    from toband.app.schema_check import check_database
    from toband.ports import StoreError

    try:
        print(check_database(config))
    except StoreError as error:
        complain(str(error))
        return exit_codes.FAILED
    return 0


def _load_structlog() -> None:
    """Without rich, which it would load for tracebacks of another form: megabytes for as long as the daemon runs."""
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        if hidden:
            del sys.modules["rich"]


def _serve(
    config: Config,
    read: Callable[[], Config],
    complain: Callable[[str], None],
    host: ServiceHost | None,
    *,
    take_over: bool,
    new_database: bool,
) -> int:
    # gRPC's core would otherwise write its own lines into the log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    _load_structlog()
    from toband import daemon_log, memory_trim
    from toband.api.access_rules import NoAccessRuleError
    from toband.api.unix_socket import ListenError
    from toband.app.step_settings import keep_capabilities, step_user_problem
    from toband.ports import StoreError, StoreTakenOverError

    if sys.stderr is not None:
        # A watchdog ends a daemon that hangs with SIGABRT: the log then shows where each thread was.
        faulthandler.enable()
    # The default of 5 ms would make the writer thread wait for a busy event loop at every commit.
    sys.setswitchinterval(SWITCH_INTERVAL)
    memory_trim.set_up()
    if problem := step_user_problem(config):
        complain(problem)
        return exit_codes.USAGE
    keep_capabilities()
    state = StateDir(config.state_dir)
    try:
        daemon_log.set_up(config.log_level, config.log_format, config.log_file, file_size=config.log_file_size)
        state.acquire()
        asyncio.run(_run(config, read, state, host, take_over=take_over, new_database=new_database))
    except StoreTakenOverError as error:
        complain(str(error))
        return exit_codes.REPLACED
    except (StateDirError, StoreError, ListenError, NoAccessRuleError) as error:
        complain(str(error))
        return exit_codes.FAILED
    except OSError as error:
        complain(f"cannot start: {error}")
        return exit_codes.FAILED
    finally:
        state.release()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="toband",
        description="The Toban daemon: runs workflows, supervises their processes, serves the API.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file (also TOBAN_CONFIG)")
    parser.add_argument("--state-dir", metavar="DIR", help="directory for the database, logs and artifacts")
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        action="append",
        help="unix:///path, tls://HOST:PORT (see [tls] in the configuration) or, without TLS, 127.0.0.1:PORT; port 0 "
        "picks a free one; may be repeated",
    )
    parser.add_argument("--database", metavar="URL", help="sqlite:///path or postgresql://…")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console or json")
    parser.add_argument("--log-file", metavar="FILE", help="also write JSON lines to this file")
    parser.add_argument("--check-config", action="store_true", help="print each value and where it came from, and exit")
    parser.add_argument("-o", dest="output", choices=("text", "json"), help="how --check-config prints (default: text)")
    parser.add_argument(
        "--check-database",
        action="store_true",
        help="print the schema of the database and exit: with 1 if this release cannot use it; changes nothing",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="claim the database although another toband owns it. Use it only if that daemon is gone for good: "
        "it can no longer write, and steps that it left running are reported as LOST and not started again",
    )
    parser.add_argument(
        "--new-database",
        action="store_true",
        help="start with an empty database although this state directory had one before; refused without this option",
    )
    parser.add_argument("--version", action="version", version=f"toband {__version__}")
    return parser


async def _run(
    config: Config,
    read: Callable[[], Config],
    state: StateDir,
    host: ServiceHost | None,
    *,
    take_over: bool,
    new_database: bool,
) -> None:
    from toband.app.application import Application

    await Application(config, state, read=read, host=host, take_over=take_over, new_database=new_database).run()


if __name__ == "__main__":
    sys.exit(main())
