"""How long and with which seed: TOBAN_TEST_SEED, TOBAN_TEST_KILLS, TOBAN_TEST_CUTS, TOBAN_TEST_LONG.

Without them the suite is short and always the same. `scripts/faults` sets them.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("TOBAN_TEST_SEED", "20261116"))
KILLS = int(os.environ.get("TOBAN_TEST_KILLS", "30"))
CUTS = int(os.environ.get("TOBAN_TEST_CUTS", "3"))
SHIM_ROUNDS = int(os.environ.get("TOBAN_TEST_SHIM_ROUNDS", "5"))
LONG = os.environ.get("TOBAN_TEST_LONG", "") not in ("", "0")
"""The times of the issue instead of shorter ones of the same shape."""


def announce(what: str) -> None:
    """Said first, so that a run that fails or hangs can be repeated."""
    print(f"TOBAN_TEST_SEED={SEED} {what}", flush=True)
