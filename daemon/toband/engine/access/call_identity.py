"""Who makes the current call, and through which door. Tasks that a call starts inherit both."""

from __future__ import annotations

from contextvars import ContextVar

from toband.domain.identity import Identity

_IDENTITY: ContextVar[Identity | None] = ContextVar("call_identity", default=None)
_SOURCE: ContextVar[str] = ContextVar("call_source", default="")


def current() -> Identity | None:
    """None outside a call: the daemon itself."""
    return _IDENTITY.get()


def source() -> str:
    """The address of the daemon that was called, and the peer if it is known; empty outside a call."""
    return _SOURCE.get()


def enter(identity: Identity, source: str) -> None:
    """Sets both for the task of a call."""
    _IDENTITY.set(identity)
    _SOURCE.set(source)
