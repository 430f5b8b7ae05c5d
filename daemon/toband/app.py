"""Wires everything; the only place that names concrete classes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from datetime import UTC, datetime, timedelta

import structlog
import uuid_utils

from toband import __version__
from toband.api.run_service import RunService
from toband.api.server import Server
from toband.api.system_service import SystemService
from toband.api.workflow_service import WorkflowService
from toband.config import Config
from toband.domain.transition import Ids
from toband.engine.changes import Changes
from toband.engine.log_stream import LogStreams
from toband.engine.runs import Runs
from toband.engine.workflows import Workflows
from toband.notify import notify
from toband.ports import StoreError
from toband.state_dir import StateDir
from toband.store import SqlStore
from toband.supervise.files import RunFiles
from toband.supervise.log_files import LogFiles

REQUESTS_KEPT = timedelta(days=7)
HOUSEKEEPING = 3600.0

log = structlog.get_logger()


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Application:
    """One daemon on one state directory, from its start to its clean end."""

    def __init__(self, config: Config, state: StateDir) -> None:
        self._config = config
        self._state = state
        self._clock = SystemClock()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serves until it is told to stop. Raises StoreError, ListenError, OSError before it serves."""
        if sys.platform == "win32":
            raise OSError("toband does not run on Windows yet")
        from toband.supervise.launcher import ProcessLauncher

        self._catch_signals()
        started_at = self._clock.now()
        store = SqlStore(self._config.database)
        files = RunFiles(self._state.join("runs"))
        logs = LogFiles(files)
        launcher = ProcessLauncher(files, self._clock, self._state.join("spawner.log"))
        changes = Changes()
        server = Server()
        await store.open()
        try:
            listen = server.bind(self._config.listen)
            runs = Runs(
                store=store,
                launcher=launcher,
                files=files,
                logs=logs,
                clock=self._clock,
                ids=Ids(
                    new_id=lambda: str(uuid_utils.uuid7()),
                    new_token=lambda: uuid.uuid4().hex,
                    boot_id=launcher.boot_id,
                ),
                changes=changes,
                server=listen[0],
                default_timeout=self._config.default_run_timeout,
            )
            await launcher.open(runs.report)
            await runs.load()
            await server.start(
                WorkflowService(Workflows(store=store, clock=self._clock), store),
                RunService(
                    runs,
                    LogStreams(store=store, logs=logs, runs=runs, changes=changes),
                    store,
                    changes,
                ),
                SystemService(
                    config=self._config,
                    listen=listen,
                    started_at=started_at,
                    store=store,
                    launcher=launcher,
                    runs=runs,
                ),
            )
            self._state.announce(listen, started_at, __version__)
            log.info("serving", action="serving", listen=listen, pid=os.getpid())
            notify("READY=1", f"STATUS=serving {', '.join(listen)}", f"MAINPID={os.getpid()}")
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(runs.recover()),
                    group.create_task(self._keep_house(store)),
                ]
                await self._stop.wait()
                notify("STOPPING=1")
                log.info("stopping", action="stopping", running=launcher.running())
                for task in tasks:
                    task.cancel()
            changes.close()
            await server.stop(self._config.stop_deadline / 2)
            await runs.close()
            await launcher.close()
        finally:
            server.close()
            logs.close()
            await store.close()
        log.info("stopped", action="stopped")

    async def _keep_house(self, store: SqlStore) -> None:
        while True:
            try:
                await store.forget_requests(self._clock.now() - REQUESTS_KEPT)
            except StoreError as error:
                log.error("cannot forget old requests", action="housekeeping", error=str(error))
            await asyncio.sleep(HOUSEKEEPING)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._told_to_stop)

    def _told_to_stop(self) -> None:
        if self._stop.is_set():
            log.warning("told to stop twice: leaving at once", action="stop_forced")
            os._exit(1)
        self._stop.set()
        # Whatever hangs, the process ends in time; nothing acknowledged depends on a clean end.
        asyncio.get_running_loop().call_later(self._config.stop_deadline, self._too_late)

    def _too_late(self) -> None:
        log.error("could not stop in time: leaving", action="stop_late")
        os._exit(1)
