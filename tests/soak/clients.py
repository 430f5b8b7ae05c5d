"""What clients do in the soak: each hour some of everything, decided by the seed."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from soak.daemon_life import DaemonLife
from soak.flows import EVENTS, Flow
from toban.definition import Schedule
from toban.token_text import TokenText
from toband.domain.audit_chain import AuditOutcome, AuditRecord
from toband.domain.identity import Role, user_identity
from toband.domain.run_model import DeadLetterState, Trigger
from toband.engine.errors import (
    EngineError,
    InvalidCredentialError,
    NotWaitingError,
    RunTerminalError,
    TokenNotFoundError,
)
from toband.ports import ActiveRunError, AuditedCall, DeadLetterClosedError, Request, auditing

DRAINED = 1800.0
_REFUSED = (
    ActiveRunError,
    DeadLetterClosedError,
    EngineError,
    NotWaitingError,
    RunTerminalError,
)
"""Answers that a client must expect, since others act at the same time."""


class Clients:
    """They remember only the last few things that they made, so that they do not grow."""

    def __init__(self, flows: list[Flow], chance: Random, pause: float) -> None:
        """`pause`: seconds between two rounds of requests, at most twice as long."""
        self.flows = flows
        self._pause = pause
        self._chance = chance
        self._tokens: deque[tuple[str, TokenText]] = deque(maxlen=20)
        self._gates: deque[str] = deque(maxlen=50)
        self._subjects: deque[str] = deque(maxlen=50)
        self._disabled: deque[str] = deque()
        self._count = 0
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    async def prepare(self, life: DaemonLife) -> None:
        await life.engine.secret_admin.set_value("db_password", "correct horse battery", ["flow-*"], by="soak")
        for flow in self.flows:
            await life.engine.workflows.create(flow.text(), "", None)

    async def act(self, life: DaemonLife) -> None:
        """Until it is cancelled. Never at a full minute, so that no schedule is due at that moment."""
        requests: Sequence[tuple[Callable[[DaemonLife], Awaitable[object]], float]] = (
            (self._start, 1.0),
            (self._emit, 0.8),
            (self._start_gate, 0.05),
            (self._decide, 0.03),
            (self._cancel, 0.3),
            (self._retry, 0.2),
            (self._letter, 0.2),
            (self._pin, 0.02),
            (self._remind, 0.2),
            (self._cancel_reminder, 0.05),
            (self._make_token, 0.1),
            (self._use_token, 0.5),
            (self._revoke_token, 0.05),
            (self._refused_call, 0.5),
            (self._store_secret, 0.05),
            (self._change, 0.4),
            (self._reschedule, 0.05),
            (self._switch, 0.1),
            (self._rename, 0.04),
            (self._drain, 0.02),
        )
        while True:
            await asyncio.sleep(2 * self._pause * self._chance.random())
            seconds = life.clock.now().second
            await asyncio.sleep(17 - seconds if seconds < 17 else 77 - seconds)
            for request, probability in requests:
                if self._chance.random() < probability:
                    await self._ask(life, request)
            self._count += 1

    async def _ask(self, life: DaemonLife, request: Callable[[DaemonLife], Awaitable[object]]) -> None:
        name = request.__name__.strip("_")
        call = AuditedCall(
            now=life.clock.now, actor="soak", role="admin", source="unix", method=f"Soak/{name}", target="x"
        )
        try:
            with auditing(call):
                await request(life)
                call.ended = True
            self.done[name] += 1
        except _REFUSED as error:
            self.refused[type(error).__name__] += 1

    def _request(self, rpc: str) -> Request:
        self._count += 1
        return Request(caller="soak", rpc=rpc, id=f"{rpc}-{self._count}", digest="d")

    def _flow(self) -> Flow:
        return self._chance.choice([flow for flow in self.flows if flow.rules and flow.rules[-1].until is None])

    # -- runs

    async def _start(self, life: DaemonLife) -> None:
        params = {"note": "n" * self._chance.choice([1, 6000]), "token": f"secret {self._chance.random()}"}
        name, given = self._chance.choice([("asked", params), (self._flow().name, {})])
        request = self._request("StartRun")
        intake = life.engine.runs.intake
        for _ in range(self._chance.choice([1, 2])):  # a client that lost the answer asks again
            await intake.start(
                name, given, trigger=Trigger.API, caller="soak", request=request, labels={"kind": "manual"}
            )

    async def _start_gate(self, life: DaemonLife) -> None:
        run = await life.engine.runs.intake.start("gate", {}, trigger=Trigger.API, caller="soak", request=None)
        self._gates.append(run.id)

    async def _decide(self, life: DaemonLife) -> None:
        """Some approvals stay open until their time is up."""
        if self._gates:
            run_id = self._gates.popleft()
            approved = self._chance.random() < 0.5
            await life.engine.approvals.decide(run_id, "agree", approved=approved, note="", by=_AIKO)

    async def _cancel(self, life: DaemonLife) -> None:
        active = await life.adapters.store.active_run_ids()
        if active:
            await life.engine.control.cancel(self._chance.choice(list(active)), "x", ends_finally=False)

    async def _retry(self, life: DaemonLife) -> None:
        for run in await life.adapters.store.list_runs(limit=20):
            if run.state.terminal and run.failed_steps:
                await life.engine.runs.intake.retry(run.id, caller="soak", request=self._request("RetryRun"))
                return

    async def _letter(self, life: DaemonLife) -> None:
        letters = await life.adapters.store.list_dead_letters(states=[DeadLetterState.OPEN], limit=5)
        if letters:
            letter = self._chance.choice(list(letters))
            if self._chance.random() < 0.5:
                await life.engine.runs.dead_letters.requeue(letter.id, caller="soak", request=self._request("Requeue"))
            else:
                await life.engine.runs.dead_letters.discard(letter.id, by="soak")

    async def _pin(self, life: DaemonLife) -> None:
        """At most a few runs are pinned at a time."""
        runs = await life.adapters.store.list_runs(limit=200)
        for run in runs:
            if run.pin is not None:
                await life.engine.control.unpin(run.id)
        if runs:
            await life.engine.control.pin(runs[0].id, by="soak", note="look")

    # -- events and reminders

    async def _emit(self, life: DaemonLife) -> None:
        payload = {"amount": self._chance.randrange(100), "page": self._chance.randrange(5), "x": "p" * 200}
        key = f"key-{self._count}" if self._chance.random() < 0.5 else ""
        for _ in range(self._chance.choice([1, 3])):
            await life.engine.events.emit(self._chance.choice(EVENTS), payload, caller="soak", dedupe_key=key)

    async def _remind(self, life: DaemonLife) -> None:
        rule: dict[str, Any] = self._chance.choice(
            [{"at": life.clock.now() + timedelta(hours=7)}, {"every": 7200.0, "max_occurrences": 6}]
        )
        subject = f"issue-{self._count}"
        self._subjects.append(subject)
        await life.engine.subjects.create(
            subject=subject,
            rule=Schedule(**rule),
            zone="",
            action="reminder",
            workflow=self._chance.choice(["", "reminded"]),
            dedupe_key="",
            caller="soak",
            request=self._request("CreateSchedule"),
        )

    async def _cancel_reminder(self, life: DaemonLife) -> None:
        if self._subjects:
            await life.engine.subjects.cancel_subject(self._subjects.popleft())

    # -- access and secrets

    async def _make_token(self, life: DaemonLife) -> None:
        self._count += 1
        ends = life.clock.now() + timedelta(days=self._chance.choice([1, 3]))
        token, text = await life.engine.access.tokens.create(f"t-{self._count}", Role.VIEWER, None, ends, by="soak")
        self._tokens.append((token.id, text))

    async def _use_token(self, life: DaemonLife) -> None:
        if self._tokens:
            try:
                life.engine.access.tokens.identify(self._chance.choice(self._tokens)[1])
            except InvalidCredentialError:
                self.refused["token"] += 1

    async def _revoke_token(self, life: DaemonLife) -> None:
        if self._tokens:
            try:
                await life.engine.access.tokens.revoke(self._tokens.popleft()[0], by="soak")
            except TokenNotFoundError:
                self.refused["token"] += 1

    async def _refused_call(self, life: DaemonLife) -> None:
        record = AuditRecord(
            at=life.clock.now(),
            actor=f"stranger-{self._count}",
            role="viewer",
            source="unix",
            method="RunService/StartRun",
            target="x",
            outcome=AuditOutcome.REFUSED,
            reason="ROLE",
        )
        life.engine.audit_log.refuse(record)

    async def _store_secret(self, life: DaemonLife) -> None:
        value = f"value {self._chance.random()}"
        await life.engine.secret_admin.set_value("db_password", value, ["flow-*"], by="soak")

    # -- definitions

    async def _change(self, life: DaemonLife) -> None:
        flow = self._flow()
        flow.notes += 1
        await life.engine.workflows.update(flow.name, flow.text(), "", "", None)

    async def _reschedule(self, life: DaemonLife) -> None:
        flow = self._flow()
        flow.reschedule(self._chance, life.clock.now())
        await life.engine.workflows.update(flow.name, flow.text(), "", "", None)

    async def _switch(self, life: DaemonLife) -> None:
        """A disabled workflow starts nothing, and its due times are still decided."""
        if len(self._disabled) < 5:
            flow = self._flow()
            await life.engine.workflows.set_enabled(flow.name, False)
            self._disabled.append(flow.name)
        else:
            await life.engine.workflows.set_enabled(self._disabled.popleft(), True)

    async def _rename(self, life: DaemonLife) -> None:
        """Deletes a workflow, and creates another one in its place."""
        flow = self._flow()
        await life.engine.workflows.delete(flow.name, "")
        now = life.clock.now()
        flow.rules[-1].until = now
        self._count += 1
        new = Flow(name=f"flow-new-{self._count}", kind=flow.kind)
        new.reschedule(self._chance, now)
        self.flows.append(new)
        await life.engine.workflows.create(new.text(), "", self._request("CreateWorkflow"))

    async def _drain(self, life: DaemonLife) -> None:
        life.engine.scheduling.drain()
        try:
            await asyncio.sleep(DRAINED)
        finally:
            life.engine.scheduling.resume()


_AIKO = user_identity(7, "aiko", None)
