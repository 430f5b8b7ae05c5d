"""Approvals: who may decide a step that waits for one, and the decision.

What the decision means for the step is in `domain/transition.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from toband.domain.identity import Identity, IdentityKind, Role
from toband.domain.run_events import DecisionMade
from toband.domain.run_model import Phase, Run, StepState
from toband.engine.errors import NotApproverError, NotWaitingError, RunTerminalError, StepNotFoundError
from toband.engine.runs.registry import ActiveRuns


class Approvals:
    def __init__(self, active: ActiveRuns) -> None:
        self._active = active

    async def decide(self, run_id: str, step: str, *, approved: bool, note: str, by: Identity) -> Run:
        """Raises RunNotFoundError, RunTerminalError, StepNotFoundError, NotWaitingError, NotApproverError."""
        actor = await self._active.find(run_id)
        # The client has read in the database that the step waits; the actor may learn that a moment later.
        run = await actor.settled()
        if run.state.terminal:
            raise RunTerminalError(run)
        waiting = run.steps.get(step)
        if waiting is None:
            raise StepNotFoundError(run, step)
        approvers = actor.plan.step(step).approvers
        if approvers and not _is_among(by, approvers):
            raise NotApproverError(step, by, approvers)
        if waiting.phase is not Phase.APPROVAL or waiting.state is not StepState.RUNNING:
            raise NotWaitingError(run_id, step, waiting.state.value)
        run = await actor.ask(DecisionMade(step=step, approved=approved, by=by.name, note=note))
        decision = run.steps[step].result
        if not isinstance(decision, dict) or decision.get("by") != by.name:
            raise NotWaitingError(run_id, step, run.steps[step].state.value)
        return run


def _is_among(identity: Identity, approvers: Sequence[str]) -> bool:
    """Whether one of these names, or `role:ROLE` with at most its role, means this identity.

    An identity that is known only by its access to a socket has no name of its own, and so matches a role only.
    """
    for each in approvers:
        if each.startswith("role:"):
            wanted = Role.__members__.get(each.removeprefix("role:").upper())
            if wanted is not None and identity.has(wanted):
                return True
        elif identity.kind is not IdentityKind.SOCKET and (each == identity.name or each in identity.aliases):
            return True
    return False
