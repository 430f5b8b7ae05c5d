"""Ids that a test can foresee."""

from __future__ import annotations

from itertools import count

from toband.domain.transition import Ids


def numbered_ids(prefix: str = "id-") -> Ids:
    """`id-1`, `id-2`…; tokens are `t-1`, `t-2`…, and chance is always the middle."""
    ids, tokens = count(1), count(1)
    return Ids(
        new_id=lambda: f"{prefix}{next(ids)}",
        new_token=lambda: f"t-{next(tokens)}",
        boot_id="b",
        random=lambda: 0.5,
    )
