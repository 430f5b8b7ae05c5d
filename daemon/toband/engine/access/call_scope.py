"""The scope of the current call: what its caller may do, and which workflows it may see.

Permissions sets it before the call is handled; lists and definitions ask for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextvars import ContextVar

from toband.domain.authority import Authority
from toband.domain.identity import Visible, needs_labels, sees
from toband.ports import DefinitionStore

_AUTHORITIES: ContextVar[Sequence[Authority] | None] = ContextVar("call_authorities", default=None)
_VISIBLE: ContextVar[Visible] = ContextVar("call_visible", default=None)


def visible() -> Visible:
    """The workflows that the caller may see; None: all."""
    return _VISIBLE.get()


def authorities() -> Sequence[Authority] | None:
    """What the caller may do; None outside a call: the daemon itself."""
    return _AUTHORITIES.get()


def enter_scope(authorities: Sequence[Authority], visible: Visible) -> None:
    """Sets both for the task of a call."""
    _AUTHORITIES.set(authorities)
    _VISIBLE.set(visible)


async def visible_among(names: Collection[str], store: DefinitionStore) -> Collection[str]:
    """Those of the names that the caller may see. Reads the store only if labels decide."""
    return await seen_with(visible(), names, store)


async def seen_with(visible: Visible, names: Collection[str], store: DefinitionStore) -> Collection[str]:
    """Those of the names that are visible."""
    if visible is None or not names:
        return names
    labels = await store.labels_of(names) if needs_labels(visible) else {}
    return {name for name in names if sees(visible, name, labels.get(name, {}))}
