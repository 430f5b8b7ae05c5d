"""Secrets of the fake daemon: shown, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info
from toban.v1 import secret_pb2, secret_pb2_grpc

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon


class Secrets(secret_pb2_grpc.SecretServiceServicer):
    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def ListSecrets(
        self, request: secret_pb2.ListSecretsRequest, context: Context
    ) -> secret_pb2.ListSecretsResponse:
        async def work() -> secret_pb2.ListSecretsResponse:
            return secret_pb2.ListSecretsResponse(secrets=self._daemon.secrets)

        return await self._daemon.answer("ListSecrets", context, request, work)

    async def GetSecret(self, request: secret_pb2.GetSecretRequest, context: Context) -> secret_pb2.GetSecretResponse:
        async def work() -> secret_pb2.GetSecretResponse:
            found = next((each for each in self._daemon.secrets if each.name == request.name), None)
            if found is None:
                await abort(context, grpc.StatusCode.NOT_FOUND, "there is no such secret", info("SECRET_NOT_FOUND"))
            return secret_pb2.GetSecretResponse(secret=found)

        return await self._daemon.answer("GetSecret", context, request, work)
