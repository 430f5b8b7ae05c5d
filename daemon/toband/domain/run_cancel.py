"""What a request to cancel a run does: the first one lets the `finally` steps run, a second one ends them.

`run_ending` stops the steps. `engine/runs/run_control.py` has the request of a client, which child runs get too.
"""

from __future__ import annotations

from toband.domain import run_texts
from toband.domain.run_ending import end_run
from toband.domain.run_events import CancelRequested
from toband.domain.run_model import EndingCause
from toband.domain.run_mutation import RunMutation


def cancel_requested(draft: RunMutation, event: CancelRequested) -> None:
    """The first request never ends `finally` steps. A second one does, if it says so and they have begun."""
    again = draft.run.cancel_requested_at is not None
    if not again:
        draft.set_run(cancel_requested_at=draft.at)
    if (again and event.ends_finally) if draft.run.finally_part is not None else not again:
        end_run(draft, EndingCause.CANCELLED, run_texts.cancelled(event.reason))
