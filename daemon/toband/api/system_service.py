"""SystemService: see proto/toban/v1/system.proto."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime

from toban.v1 import system_pb2 as pb
from toban.v1 import system_pb2_grpc
from toband import __version__
from toband.api import convert
from toband.api.errors import Context, unary
from toband.config import Config
from toband.engine.runs import Runs
from toband.ports import Launcher, Store


class SystemService(system_pb2_grpc.SystemServiceServicer):
    def __init__(
        self,
        *,
        config: Config,
        listen: Sequence[str],
        started_at: datetime,
        store: Store,
        launcher: Launcher,
        runs: Runs,
    ) -> None:
        self._config = config
        self._listen = listen
        self._started_at = started_at
        self._store = store
        self._launcher = launcher
        self._runs = runs

    @unary
    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        counts = await self._store.counts()
        found = self._runs.recovered
        return pb.GetInfoResponse(
            version=__version__,
            pid=os.getpid(),
            started_at=convert.timestamp(self._started_at),
            state_dir=self._config.state_dir,
            database=self._store.kind,
            listen=self._listen,
            active_runs=counts.active_runs,
            running_processes=self._launcher.running(),
            workflows=counts.workflows,
            recovery=pb.Recovery(
                runs=found.runs,
                reattached=found.reattached,
                finished_meanwhile=found.finished_meanwhile,
                relaunched=found.relaunched,
                lost=found.lost,
                finished_at=convert.timestamp(found.finished_at),
            ),
        )

    @unary
    async def GetConfig(
        self, request: pb.GetConfigRequest, context: Context
    ) -> pb.GetConfigResponse:
        return pb.GetConfigResponse(
            values=[
                pb.ConfigValue(key=key, value_json=json.dumps(value), source=source)
                for key, value, source in self._config.shown()
            ]
        )
