"""Where a client connects to, and with which credentials: chosen from options, contexts, environment and machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from toban.sdk.address import Address, find_local, parse
from toban.sdk.credentials import ClientCredentials, TlsFiles, of_environment, read_tls_files
from toban.sdk.errors import InvalidArgument

_NONE = ClientCredentials()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a daemon, and the credentials for it."""

    address: Address
    credentials: ClientCredentials = _NONE
    tls: TlsFiles = field(default_factory=TlsFiles)


def resolve(
    server: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    given: ClientCredentials = _NONE,
) -> Endpoint:
    """The endpoint to use: what the caller gives, else what the environment gives, else a local daemon.

    The address is that of the first of `server`, the context `context`, `TOBAN_SERVER`, the context of `TOBAN_CONTEXT`,
    and the current context of the user. What `given` lacks comes from the context if the address does, else from the
    environment: a context's credentials go to its own daemon only, and those of the environment never to a context's.

    Raises InvalidArgument for an unusable address or credential, NotFound for an unknown context, and Unreachable if
    none is given and no local daemon is found.
    """
    if not server and (context or not environ.get("TOBAN_SERVER")):
        chosen = _of_context(context or environ.get("TOBAN_CONTEXT", ""), environ)
        if chosen is not None:
            return _endpoint(parse(chosen[0]), given, chosen[1])
    server = server or environ.get("TOBAN_SERVER")
    address, token_file = (parse(server), "") if server else find_local(environ)
    return _endpoint(address, given, of_environment(environ).over(ClientCredentials(token_file=token_file)))


def _endpoint(address: Address, given: ClientCredentials, further: ClientCredentials) -> Endpoint:
    if not address.tls:
        if given.has_tls:
            raise InvalidArgument(f"cannot use certificates for {address.text}: only tls://HOST:PORT has them")
        return Endpoint(address=address, credentials=given.over(further))
    credentials = given.over(further)
    return Endpoint(address=address, credentials=credentials, tls=read_tls_files(credentials))


def _of_context(chosen: str, environ: Mapping[str, str]) -> tuple[str, ClientCredentials] | None:
    """The server and the credentials of the context, or of the current one; None if there is none."""
    from toban.sdk import contexts  # not needed with an address

    if not chosen and not os.path.exists(contexts.contexts_file(environ)):
        return None
    known = contexts.load(environ)
    chosen = chosen or known.current
    return (known.server(chosen), known.credentials(chosen)) if chosen else None
