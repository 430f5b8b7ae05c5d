"""Calls of the SecretService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from functools import cached_property

from toban.sdk.base import Calls, paged
from toban.v1 import secret_pb2, secret_pb2_grpc


class SecretCalls(Calls):
    """Sets, lists, grants and deletes secrets. No call returns a value."""

    @cached_property
    def _secrets(self) -> secret_pb2_grpc.SecretServiceAsyncStub:
        return secret_pb2_grpc.SecretServiceStub(self._connection.channel)

    async def set_secret(self, name: str, value: str, *, workflows: Iterable[str] = ()) -> secret_pb2.Secret:
        """Creates a secret, or gives it another value, and lets workflows use it, by name or pattern.

        Raises InvalidArgument, and Conflict `SECRETS_KEY_UNUSABLE`.
        """
        return await self._set(secret_pb2.SetSecretRequest(name=name, value=value, workflows=workflows))

    async def set_provided_secret(
        self, name: str, provider: str, key: str = "", *, workflows: Iterable[str] = ()
    ) -> secret_pb2.Secret:
        """Creates a secret whose value a provider of the daemon's configuration has, under `key`, by default its name.

        Raises InvalidArgument.
        """
        provided = secret_pb2.ProvidedSecret(provider=provider, key=key)
        return await self._set(secret_pb2.SetSecretRequest(name=name, provided=provided, workflows=workflows))

    async def _set(self, request: secret_pb2.SetSecretRequest) -> secret_pb2.Secret:
        answer = await self._connection.call(self._secrets.SetSecret, request)
        return answer.secret

    async def get_secret(self, name: str) -> secret_pb2.Secret:
        """A secret without its value. Raises NotFound."""
        answer = await self._connection.call(self._secrets.GetSecret, secret_pb2.GetSecretRequest(name=name))
        return answer.secret

    def list_secrets(self, *, page_size: int = 0) -> AsyncGenerator[secret_pb2.Secret, None]:
        """Secrets by name, without their values."""

        async def fetch(token: str) -> tuple[list[secret_pb2.Secret], str]:
            request = secret_pb2.ListSecretsRequest(page_size=page_size, page_token=token)
            answer = await self._connection.call(self._secrets.ListSecrets, request)
            return list(answer.secrets), answer.next_page_token

        return paged(fetch)

    async def delete_secret(self, name: str) -> None:
        """Deletes a secret: steps that use it fail from now on. Raises NotFound."""
        await self._connection.delete(self._secrets.DeleteSecret, secret_pb2.DeleteSecretRequest(name=name))

    async def grant_secret(self, name: str, workflows: Iterable[str]) -> secret_pb2.Secret:
        """Lets further workflows use a secret. Raises NotFound and InvalidArgument; may be repeated."""
        request = secret_pb2.GrantSecretRequest(name=name, workflows=workflows)
        answer = await self._connection.call(self._secrets.GrantSecret, request)
        return answer.secret

    async def revoke_secret_grant(self, name: str, workflows: Iterable[str]) -> secret_pb2.Secret:
        """Removes names and patterns that were granted. Raises NotFound; may be repeated."""
        request = secret_pb2.RevokeSecretGrantRequest(name=name, workflows=workflows)
        answer = await self._connection.call(self._secrets.RevokeSecretGrant, request)
        return answer.secret

    async def rotate_secrets_key(self) -> secret_pb2.RotateSecretsKeyResponse:
        """Encrypts all secrets with another key. Raises Conflict `SECRETS_KEY_UNUSABLE`."""
        return await self._connection.call(self._secrets.RotateSecretsKey, secret_pb2.RotateSecretsKeyRequest())
