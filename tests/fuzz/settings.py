"""How long and with which seed: TOBAN_TEST_SEED, TOBAN_TEST_FUZZ_SECONDS (for each target)."""

from __future__ import annotations

import os

SEED = int(os.environ.get("TOBAN_TEST_SEED", "20261118"))
SECONDS = float(os.environ.get("TOBAN_TEST_FUZZ_SECONDS", "0.7"))
