"""SecretService: see proto/toban/v1/secret.proto."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from toban.v1 import secret_pb2 as pb
from toban.v1 import secret_pb2_grpc
from toband.api import pages
from toband.api.common_requests import caller
from toband.api.handler import Context, unary
from toband.api.request_errors import InvalidFieldError
from toband.engine.secrets.key_ring import KeyRing
from toband.engine.secrets.secret_admin import SecretAdmin
from toband.ports import StoredSecret


class SecretService(secret_pb2_grpc.SecretServiceServicer):
    def __init__(self, admin: SecretAdmin, keys: KeyRing) -> None:
        self._admin = admin
        self._keys = keys

    @unary
    async def SetSecret(self, request: pb.SetSecretRequest, context: Context) -> pb.SetSecretResponse:
        by = caller()
        match request.WhichOneof("place"):
            case "value":
                secret = await self._admin.set_value(request.name, request.value, request.workflows, by=by)
            case "provided":
                of = request.provided
                secret = await self._admin.set_provided(request.name, of.provider, of.key, request.workflows, by=by)
            case _:
                raise InvalidFieldError("value", "expected a value, or the provider that has it")
        return pb.SetSecretResponse(secret=_message(secret))

    @unary
    async def GetSecret(self, request: pb.GetSecretRequest, context: Context) -> pb.GetSecretResponse:
        secret = await self._admin.get(request.name)
        return pb.GetSecretResponse(secret=_message(secret, await self._keys.problem()))

    @unary
    async def ListSecrets(self, request: pb.ListSecretsRequest, context: Context) -> pb.ListSecretsResponse:
        after = pages.last(request.page_token)
        problem = await self._keys.problem()
        listed = [secret for secret in await self._admin.list() if secret.name > after]

        async def read(last: StoredSecret | None, count: int) -> Sequence[StoredSecret]:
            start = listed.index(last) + 1 if last is not None else 0
            return listed[start : start + count]

        async def make(secret: StoredSecret) -> pb.Secret:
            return _message(secret, problem)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListSecretsResponse(secrets=page.parts, next_page_token=page.token(attrgetter("name")))

    @unary
    async def DeleteSecret(self, request: pb.DeleteSecretRequest, context: Context) -> pb.DeleteSecretResponse:
        await self._admin.delete(request.name)
        return pb.DeleteSecretResponse()

    @unary
    async def GrantSecret(self, request: pb.GrantSecretRequest, context: Context) -> pb.GrantSecretResponse:
        secret = await self._admin.grant(request.name, request.workflows, by=caller())
        return pb.GrantSecretResponse(secret=_message(secret))

    @unary
    async def RevokeSecretGrant(
        self, request: pb.RevokeSecretGrantRequest, context: Context
    ) -> pb.RevokeSecretGrantResponse:
        secret = await self._admin.revoke(request.name, request.workflows, by=caller())
        return pb.RevokeSecretGrantResponse(secret=_message(secret))

    @unary
    async def RotateSecretsKey(
        self, request: pb.RotateSecretsKeyRequest, context: Context
    ) -> pb.RotateSecretsKeyResponse:
        keys, count = await self._keys.rotate()
        return pb.RotateSecretsKeyResponse(secrets=count, key_id=keys.secrets_key.id, key_file=self._keys.place)


def _message(secret: StoredSecret, problem: str = "") -> pb.Secret:
    made = pb.Secret(
        name=secret.name,
        version=secret.version,
        workflows=secret.workflows,
        provider=secret.provider,
        provider_key=secret.provider_key,
        created_by=secret.created_by,
        updated_by=secret.updated_by,
        last_used_by=secret.last_used_by,
        unreadable=problem if secret.data is not None else "",
    )
    made.created_at.FromDatetime(secret.created_at)
    made.updated_at.FromDatetime(secret.updated_at)
    if secret.last_used_at is not None:
        made.last_used_at.FromDatetime(secret.last_used_at)
    return made
