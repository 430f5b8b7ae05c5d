"""One daemon on one state directory: builds it, serves, and shuts it down."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable

import structlog

from toban import __version__
from toband import daemon_log, exit_codes
from toband.app.access_parts import admin_token_for
from toband.app.adapters import Adapters, SystemClock
from toband.app.config_reload import ConfigReload
from toband.app.engine_parts import EngineParts
from toband.app.live_settings import LiveSettings
from toband.app.service_host import ServiceHost
from toband.app.service_status import ServiceStatus, status_text
from toband.app.services import start_services
from toband.app.stop_policy import apply_stop_policy
from toband.config import Config
from toband.config.value_checks import without_password
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.health import internal_errors
from toband.engine.health.admission import Admission
from toband.engine.health.health_conditions import Health
from toband.engine.health.host_monitor import HostMonitor
from toband.engine.runs.registry import ActiveRuns
from toband.installation import note_database
from toband.moved_database import refuse_moved
from toband.ports import DatabaseClaim, StoreError, StoreTakenOverError
from toband.state_dir import StateDir
from toband.supervise.launch.descriptor_limit import raise_limit
from toband.systemd_notify import reloading

if sys.platform != "win32":
    from toband.supervise.shim.private_memory import close_memory

ANNOUNCE_AGAIN = 5.0

log = structlog.get_logger()


class Application:
    def __init__(
        self,
        config: Config,
        state: StateDir,
        *,
        read: Callable[[], Config],
        host: ServiceHost | None = None,
        take_over: bool = False,
        new_database: bool = False,
    ) -> None:
        """`read` reads the configuration again; it raises ConfigError."""
        self._start_config = config
        self._read = read
        self._host = host
        self._state = state
        self._take_over = take_over
        self._new_database = new_database
        self._clock = SystemClock()
        self._stop = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._reload: ConfigReload | None = None
        self._replaced: StoreTakenOverError | None = None
        self._status = ServiceStatus()

    @property
    def _config(self) -> Config:
        """The configuration in effect."""
        return self._start_config if self._reload is None else self._reload.config

    async def run(self) -> None:
        """Serves until a signal asks it to stop.

        Raises StoreError, ListenError or OSError before it serves, StoreTakenOverError when another daemon took over.
        """
        self._catch_signals()
        # From the first moment to the last, a stop included: systemd then knows that the event loop runs.
        status = asyncio.create_task(self._status.run(), name="service-status")
        try:
            self._build()
            self._status.starting("opening the database")
            await self._adapters.store.open()
            self._log_claim(self._adapters.store.claim)
            try:
                await self._build_engine()
                await self._serve()
            finally:
                await self._shut_down()
        finally:
            status.cancel()
        if self._replaced is not None:
            raise self._replaced
        log.info("stopped", action="stopped")

    def _build(self) -> None:
        """Everything that needs neither an open database nor an address."""
        self._started_at = self._clock.now()
        if sys.platform != "win32":
            close_memory()
        raise_limit()
        refuse_moved(self._state, without_password(self._config.database))
        self._health = Health(self._clock)
        internal_errors.watch(asyncio.get_running_loop(), self._health)
        self._adapters = Adapters(
            self._config,
            self._state,
            self._health,
            self._clock,
            take_over=self._take_over,
            new_database=self._new_database,
        )
        self._parser = DefinitionParser(self._adapters.parsing_sandbox)
        self._admission = Admission(self._adapters.disk, self._health, self._config.disk_reserve)
        self._monitor = HostMonitor(
            state_dir=self._config.state_dir,
            disk=self._adapters.disk,
            descriptors=self._adapters.descriptors,
            health=self._health,
            admission=self._admission,
            leave=self._leave,
        )
        self._adapters.store.watch(self._monitor)
        self._monitor.make_room_to_start()

    async def _build_engine(self) -> None:
        """Takes the addresses, builds the engine, and finds the runs that have not ended."""
        # A full disk does not prevent serving; the next start writes the note.
        with contextlib.suppress(OSError):
            note_database(self._state)
        self._doors = self._adapters.server.bind(self._config.listen, self._config.tls)
        self._listen = [door.address for door in self._doors]
        admin = admin_token_for(self._doors)
        if admin is not None:
            self._state.write_admin_token(f"{admin.text}\n")
        self._engine = EngineParts(
            self._config,
            self._state,
            self._adapters,
            self._health,
            self._admission,
            self._parser,
            self._clock,
            doors=self._doors,
            admin=admin,
            tools=self._tools(),
            started_at=self._started_at,
        )
        daemon_log.name_runs(self._run_name)
        await self._engine.access.tokens.load()
        await self._adapters.launcher.open(self._engine.runs.report)
        await self._engine.runs.recovery.find()

    async def _serve(self) -> None:
        engine, adapters, server = self._engine, self._adapters, self._adapters.server
        reload = self._reload = ConfigReload(
            self._config,
            read=self._read,
            apply=LiveSettings(adapters, engine, self._admission).apply,
            conditions=self._health,
            announcing=reloading,
        )
        await start_services(reload, adapters, engine, doors=self._doors, started_at=self._started_at)
        server.follow(self._health)
        announced = self._announced()
        # The objects made so far live as long as the daemon: the garbage collector need not visit them again.
        gc.freeze()
        log.info("serving", action="serving", listen=self._listen, pid=os.getpid())
        self._status.ready(self._activity)
        if self._host is not None:
            self._host.serving(", ".join(self._listen))
        companions = [
            *engine.companions(),
            self._monitor.watch(adapters.store),
            server.guard_sockets(self._health),
            self._announce(announced),
            self._reload_when_asked(reload),
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in companions]
            starters = [group.create_task(each) for each in engine.starters()]
            await self._stop.wait()
            for task in starters:
                task.cancel()
            await self._stop_runs(engine.runs.active, adapters.launcher.running())
            for task in tasks:
                task.cancel()
        engine.end_streams()
        await engine.access.tokens.flush()
        await server.stop(self._config.stop_deadline / 2 if self._replaced is None else 0)
        await engine.runs.close()
        await adapters.launcher.close()

    async def _shut_down(self) -> None:
        """Closes whatever was built, also after a start that failed half way."""
        self._parser.close()
        await self._adapters.close()

    def _run_name(self, run_id: str) -> str:
        run = self._engine.runs.active.run(run_id)
        return run.name if run is not None else ""

    def _activity(self) -> str:
        runs = self._engine.runs.active.count
        return status_text(runs=runs, steps=self._adapters.launcher.running(), conditions=self._health.conditions)

    def _log_claim(self, claim: DatabaseClaim | None) -> None:
        if claim is not None and self._take_over and claim.previous is not None:
            log.warning(
                "took the database over",
                action="taken_over",
                previous=claim.previous.described,
                attempts_left=claim.abandoned,
            )

    async def _stop_runs(self, active: ActiveRuns, running: int) -> None:
        """Ends, cancels or detaches active runs while clients are still served."""
        policy, deadline = self._config.stop_policy, self._config.stop_deadline
        # A moment more than the deadline, at which the process ends itself.
        self._status.stopping(policy, running, deadline + 5)
        if self._host is not None:
            self._host.stopping()
        log.info("stopping", action="stopping", policy=policy, running=running)
        if self._replaced is None:
            await apply_stop_policy(policy, active, deadline)

    def _tools(self) -> str:
        """The directory with the commands that steps may call; empty if it cannot be made."""
        try:
            return self._state.provide_command()
        except OSError as error:
            log.error("cannot provide the toban command to steps", action="tools_failed", error=str(error))
            return ""

    def _announced(self) -> bool:
        """Writes toband.json for clients. A disk that takes no writes does not prevent serving."""
        try:
            doors = [(door.address, door.role.label if door.role else "none") for door in self._doors]
            self._state.announce(doors, self._started_at, __version__)
        except OSError as error:
            log.error("cannot write toband.json", action="announce_failed", error=str(error))
            return False
        return True

    async def _reload_when_asked(self, reload: ConfigReload) -> None:
        """Does what `toban system reload` does. The log has the result."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            await reload.reload()
            # An error is in the health and in the log, and the next pass tries again.
            with contextlib.suppress(StoreError):
                await self._engine.definition_files.reload()

    async def _announce(self, done: bool) -> None:
        while not done:
            await asyncio.sleep(ANNOUNCE_AGAIN)
            done = self._announced()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        if self._host is not None:
            self._host.call_to_stop(lambda: loop.call_soon_threadsafe(self._request_stop))
            return
        if sys.platform == "win32":
            # Ctrl-C and Ctrl-Break; the latter is how one process asks another to stop on Windows.
            for signum in (signal.SIGINT, signal.SIGBREAK):
                signal.signal(signum, lambda *_: loop.call_soon_threadsafe(self._request_stop))
            return
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._request_stop)
        # With nohup, SIGHUP is ignored, and the daemon outlives its terminal.
        stops = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        loop.add_signal_handler(signal.SIGHUP, self._hung_up, stops)

    def _hung_up(self, stops: bool) -> None:
        """SIGHUP is a request to reload, unless the terminal of the daemon was closed."""
        if stops and not _has_terminal():
            self._request_stop()
        else:
            self._reload_asked.set()

    def _leave(self, error: StoreTakenOverError) -> None:
        """Another daemon owns the database: this one can do nothing more, not even for steps that run."""
        if self._replaced is None:
            self._replaced = error
            log.error("another toband took the database over; exiting", action="replaced", error=str(error))
            if not self._stop.is_set():
                self._request_stop()

    def _request_stop(self) -> None:
        if self._stop.is_set():
            log.warning("second request to stop; exiting at once", action="stop_forced")
            self._exit(exit_codes.FAILED)
        self._stop.set()
        # Whatever hangs, the process ends in time; nothing acknowledged depends on a clean end.
        asyncio.get_running_loop().call_later(self._config.stop_deadline, self._stop_late)

    def _stop_late(self) -> None:
        log.error("could not stop before the deadline; exiting", action="stop_late")
        self._exit(exit_codes.FAILED if self._replaced is None else exit_codes.REPLACED)

    def _exit(self, code: int) -> None:
        if self._host is not None:
            self._host.ended(code)
        os._exit(code)


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY))
    except OSError:
        return False
    return True
