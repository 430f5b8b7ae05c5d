"""Who makes the current call, and through which door. Tasks that a call starts inherit both."""

from __future__ import annotations

from contextvars import ContextVar

from toband.domain.identity import Identity

_IDENTITY: ContextVar[Identity | None] = ContextVar("call_identity", default=None)
_ADDRESS: ContextVar[str] = ContextVar("call_address", default="")
_PEER: ContextVar[str] = ContextVar("call_peer", default="")


def current() -> Identity | None:
    """None outside a call: the daemon itself."""
    return _IDENTITY.get()


def address() -> str:
    """The address of the daemon that was called; empty outside a call."""
    return _ADDRESS.get()


def source() -> str:
    """That address, and the peer if it is known; empty outside a call."""
    return f"{_ADDRESS.get()} {_PEER.get()}".strip()


def enter(identity: Identity, address: str, peer: str) -> None:
    """Sets them for the task of a call. `peer` is empty for a socket, whose peers have no address."""
    _IDENTITY.set(identity)
    _ADDRESS.set(address)
    _PEER.set(peer)


def peer() -> str:
    """The peer of the call as gRPC names it; empty for a socket, and outside a call."""
    return _PEER.get()
