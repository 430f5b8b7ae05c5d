"""Pauses that grow while something fails."""

from __future__ import annotations

from toband.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_start_again_after_a_success() -> None:
    backoff = Backoff(1, 5)
    assert [backoff.pause() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.pause() == 1
