"""Errors of a request itself, found before the engine is asked."""

from __future__ import annotations


class InvalidFieldError(Exception):
    """An invalid field. `args` are its path and what it must be."""


class UnreadableRequestError(Exception):
    """Bytes that are not the request message of the call; the text says why."""


class SlowClientError(Exception):
    """The request of a call did not arrive in time; the argument is the time in seconds."""


class UnclearTimeError(Exception):
    """A field that does not say when something is due. `args` are its path and the reason, for people."""
