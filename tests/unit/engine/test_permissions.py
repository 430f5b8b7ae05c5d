"""Who may make which call, and what it costs to find out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from contract.builders import NOW, launched, new_id, save, stored_run, text
from contract.scheduled import reminder
from doubles.store import FaultyStore
from toban.v1 import dead_letter_pb2, event_pb2, job_pb2, run_pb2, schedule_pb2, system_pb2, workflow_pb2
from toband.api.access_rules import access_rules
from toband.domain.access_rule import AccessRule
from toband.domain.author_limits import StepRights
from toband.domain.authority import Authority
from toband.domain.identity import Identity, IdentityKind, Narrowing, Role, StepIdentity, Visible, token_identity
from toband.domain.run_model import Run
from toband.engine.access.call_scope import visible
from toband.engine.access.permissions import Permissions
from toband.engine.errors import NotPermittedError, PermissionReason
from toband.store import SqlStore

RULES = {rule.method: rule for rule in access_rules().values() if rule is not None}
MINE = Narrowing(workflows=("mine",))
OPS = Narrowing(labels=(("team", "ops"),))


def rule(method: str) -> AccessRule:
    return RULES[method]


def narrowed(narrowing: Narrowing | None, role: Role = Role.ADMIN) -> Identity:
    return token_identity("id", "ci", role, narrowing, None)


class World:
    """A workflow that is visible, `mine`, and one that is not, `other`, each with one of everything."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.counted = FaultyStore(store)
        self.granted: Sequence[Authority] = ()
        self.startable: Visible = None
        self.permissions = Permissions(self.counted, self._rights)
        self.runs: dict[str, Run] = {}
        self.attempts: dict[str, str] = {}
        self.letters: dict[str, str] = {}
        self.schedules: dict[str, str] = {}

    async def _rights(self, step: StepIdentity) -> StepRights:
        return StepRights(granted=self.granted, startable=self.startable)

    async def create(self) -> None:
        for name, team in (("mine", "ops"), ("other", "dev")):
            await self.store.create_workflow(text(name, labels={"team": team}), at=NOW)
            run = await stored_run(self.store, name)
            running = launched(run, "s0")
            await save(self.store, run, running)
            self.runs[name] = running
            attempt = running.steps["s0"].attempt
            assert attempt is not None
            self.attempts[name] = attempt.id
            entry = reminder("issue-1", workflow=name)
            await self.store.create_schedule(entry)
            self.schedules[name] = entry.id

    async def may(self, identity: Identity, method: str, request: Any) -> PermissionReason | None:
        """None if it may."""
        try:
            await self.permissions.check(identity, rule(method), request)
        except NotPermittedError as error:
            self.text = str(error)
            return error.reason
        return None


@pytest.fixture
async def world(store: SqlStore) -> World:
    world = World(store)
    await world.create()
    return world


def requests_for(world: World, name: str) -> list[tuple[str, Any]]:
    run, attempt = world.runs[name].id, world.attempts[name]
    return [
        ("WorkflowService/GetWorkflow", workflow_pb2.GetWorkflowRequest(name=name)),
        ("RunService/StartRun", run_pb2.StartRunRequest(workflow=name)),
        ("RunService/GetRun", run_pb2.GetRunRequest(id=run)),
        ("RunService/CancelRun", run_pb2.CancelRunRequest(id=run)),
        ("RunService/StreamLogs", run_pb2.StreamLogsRequest(run_id=run)),
        ("RunService/StreamLogs", run_pb2.StreamLogsRequest(process_execution_id=attempt)),
        ("RunService/GetProcessExecution", run_pb2.GetProcessExecutionRequest(id=attempt)),
        ("RunService/ListProcessExecutions", run_pb2.ListProcessExecutionsRequest(run_id=run)),
        ("ScheduleService/GetSchedule", schedule_pb2.GetScheduleRequest(id=world.schedules[name])),
        ("ScheduleService/CreateSchedule", schedule_pb2.CreateScheduleRequest(workflow=name, subject="issue-1")),
    ]


@pytest.mark.parametrize("narrowing", [MINE, OPS, Narrowing(workflows=("m*",), labels=(("team", "none"),))])
async def test_a_narrowed_identity_reaches_its_own_and_nothing_else(world: World, narrowing: Narrowing) -> None:
    identity = narrowed(narrowing)
    for method, request in requests_for(world, "mine"):
        assert await world.may(identity, method, request) is None, method
        assert visible() == (narrowing,)
    for method, request in requests_for(world, "other"):
        assert await world.may(identity, method, request) is PermissionReason.WORKFLOW, method


async def test_what_does_not_exist_gets_the_same_answer_as_what_is_foreign(world: World) -> None:
    identity = narrowed(OPS)
    foreign, absent = world.runs["other"].id, new_id()
    texts = []
    for run_id in (foreign, absent):
        assert await world.may(identity, "RunService/GetRun", run_pb2.GetRunRequest(id=run_id))
        texts.append(world.text.replace(run_id, "RUN"))
    assert texts[0] == texts[1] == "token:ci is limited to those with team=ops, and 'RUN' is not among them"
    letters = dead_letter_pb2.GetDeadLetterRequest(id=absent)
    assert await world.may(identity, "DeadLetterService/GetDeadLetter", letters) is PermissionReason.WORKFLOW


async def test_second_references(world: World) -> None:
    identity, mine, other = narrowed(MINE), world.runs["mine"].id, world.runs["other"].id
    start = run_pb2.StartRunRequest(workflow="mine", only=["a"], from_run=other)
    assert await world.may(identity, "RunService/StartRun", start) is PermissionReason.WORKFLOW
    assert (
        await world.may(identity, "RunService/StartRun", run_pb2.StartRunRequest(workflow="mine", from_run=mine))
        is None
    )
    logs = run_pb2.StreamLogsRequest(run_id=mine, process_execution_id=world.attempts["other"])
    assert await world.may(identity, "RunService/StreamLogs", logs) is PermissionReason.WORKFLOW
    nothing = schedule_pb2.CreateScheduleRequest(subject="issue-1")
    assert await world.may(identity, "ScheduleService/CreateSchedule", nothing) is PermissionReason.WORKFLOW


async def test_what_is_about_the_whole_daemon(world: World) -> None:
    for method, request in (
        ("SystemService/ListLocks", system_pb2.ListLocksRequest()),
        ("EventService/ListEvents", event_pb2.ListEventsRequest()),
        ("EventService/GetEvent", event_pb2.GetEventRequest(id="x")),
        ("EventService/EmitEvent", event_pb2.EmitEventRequest(type="X")),
    ):
        assert await world.may(narrowed(Narrowing(workflows=("*",))), method, request) is PermissionReason.WORKFLOW
        assert await world.may(narrowed(None), method, request) is None
    assert await world.may(narrowed(MINE), "SystemService/GetInfo", system_pb2.GetInfoRequest()) is None


@pytest.mark.parametrize("role", [None, *Role])
async def test_roles(world: World, role: Role | None) -> None:
    identity = replace(narrowed(None), role=role)
    for method, each in RULES.items():
        if method.startswith("ServerReflection"):
            continue
        expected = None if identity.has(each.role) else PermissionReason.ROLE
        assert await world.may(identity, method, None) is expected, method
    if role is Role.VIEWER:
        await world.may(identity, "RunService/StartRun", None)
        assert world.text == (
            "RunService/StartRun needs the role operator, and token:ci has the role viewer; an administrator can "
            "create a token with it: toban tokens create NAME --role operator"
        )
    assert not world.counted.calls, "no reads for an identity that is not narrowed"


async def test_what_a_check_costs(world: World) -> None:
    identity, run_id = narrowed(MINE), world.runs["mine"].id
    await world.may(identity, "WorkflowService/GetWorkflow", workflow_pb2.GetWorkflowRequest(name="mine"))
    assert not world.counted.calls, "a name needs no read"
    for _ in range(3):
        await world.may(identity, "RunService/GetRun", run_pb2.GetRunRequest(id=run_id))
    assert dict(world.counted.calls) == {"run_origin": 1}


def step_of(run: Run, step: str = "s0") -> Identity:
    attempt = run.steps[step].attempt
    assert attempt is not None
    found = StepIdentity(run_id=run.id, token=attempt.token, workflow=run.workflow, step=step)
    return Identity(name=f"step:{run.workflow}/{step}", kind=IdentityKind.STEP, step=found)


async def test_a_step_reaches_its_run_and_what_that_started(world: World) -> None:
    own = world.runs["mine"]
    started = await stored_run(world.store, "other", caller=f"step:{own.id}/s0")
    child = await stored_run(world.store, "mine", caller=started.caller, parent_run=started.id)
    further = await stored_run(world.store, "other", caller=f"step:{child.id}/s1")
    identity = step_of(own)
    for run in (own, started, child, further):
        for method in ("GetRun", "WatchRun", "CancelRun", "PauseRun", "StreamLogs", "ListArtifacts"):
            request_type = getattr(run_pb2, f"{method}Request")
            field = rule(f"RunService/{method}").field
            assert await world.may(identity, f"RunService/{method}", request_type(**{field: run.id})) is None, method
    strangers = [world.runs["other"], await stored_run(world.store, "mine", caller="token:ci")]
    strangers.append(await stored_run(world.store, "mine", caller=f"step:{world.runs['other'].id}/s0"))
    for run in strangers:
        request = run_pb2.GetRunRequest(id=run.id)
        assert await world.may(identity, "RunService/GetRun", request) is PermissionReason.STEP
    logs = run_pb2.StreamLogsRequest(process_execution_id=world.attempts["other"])
    assert await world.may(identity, "RunService/StreamLogs", logs) is PermissionReason.STEP
    assert await world.may(identity, "RunService/GetRun", run_pb2.GetRunRequest(id="gone")) is PermissionReason.STEP


async def test_what_else_a_step_may_do(world: World) -> None:
    own = world.runs["mine"]
    identity = step_of(own)
    attempt = identity.step
    assert attempt is not None
    event = event_pb2.EmitEventRequest(type="X")
    mine = event_pb2.EventOrigin(run_id=own.id, attempt_token=attempt.token)
    other = event_pb2.EventOrigin(run_id=world.runs["other"].id, attempt_token="t")
    of_other = run_pb2.StartRunRequest(workflow="other", from_run=world.runs["other"].id)
    expected: list[tuple[str, Any, bool]] = [
        ("EventService/EmitEvent", event, True),
        ("EventService/EmitEvent", event_pb2.EmitEventRequest(type="X", origin=mine), True),
        ("EventService/EmitEvent", event_pb2.EmitEventRequest(type="X", origin=other), False),
        ("EventService/ListEvents", event_pb2.ListEventsRequest(), False),
        ("EventService/GetEvent", event_pb2.GetEventRequest(id="x"), False),
        ("RunService/StartRun", run_pb2.StartRunRequest(workflow="other"), True),
        ("RunService/StartRun", of_other, False),
        ("RunService/ListRuns", run_pb2.ListRunsRequest(), False),
        ("RunService/RetryRun", run_pb2.RetryRunRequest(id=own.id), False),
        ("RunService/DecideApproval", run_pb2.DecideApprovalRequest(run_id=own.id), False),
        ("WorkflowService/GetWorkflow", workflow_pb2.GetWorkflowRequest(name="mine"), False),
        ("WorkflowService/ApplyDefinitions", workflow_pb2.ApplyDefinitionsRequest(), False),
        ("ScheduleService/CreateSchedule", schedule_pb2.CreateScheduleRequest(subject="issue-1"), True),
        ("ScheduleService/ListSchedules", schedule_pb2.ListSchedulesRequest(subject="issue-1"), True),
        ("ScheduleService/ListSchedules", schedule_pb2.ListSchedulesRequest(), False),
        ("ScheduleService/CancelBySubject", schedule_pb2.CancelBySubjectRequest(subject="issue-1"), True),
        ("ScheduleService/InterpretTime", schedule_pb2.InterpretTimeRequest(), True),
        ("SystemService/GetConfig", system_pb2.GetConfigRequest(), False),
    ]
    for method, request, allowed in expected:
        assert await world.may(identity, method, request) is (None if allowed else PermissionReason.STEP), method
    assert world.text == (
        "step:mine/s0 may not call SystemService/GetConfig: a step may control only what its own run started; to allow "
        "it, add `grants: [{role: admin}]` to the workflow mine"
    )


async def test_grants_of_the_workflow(world: World) -> None:
    identity = step_of(world.runs["mine"])
    world.granted = [Authority(role=Role.OPERATOR, narrowing=Narrowing(workflows=("other",)))]
    other = world.runs["other"].id
    assert await world.may(identity, "RunService/RetryRun", run_pb2.RetryRunRequest(id=other)) is None
    assert await world.may(identity, "RunService/ListRuns", run_pb2.ListRunsRequest()) is None
    assert visible() == (Narrowing(workflows=("other",)),)
    own = run_pb2.RetryRunRequest(id=world.runs["mine"].id)
    assert await world.may(identity, "RunService/RetryRun", own) is PermissionReason.WORKFLOW
    delete = workflow_pb2.DeleteWorkflowRequest(name="other")
    assert await world.may(identity, "WorkflowService/DeleteWorkflow", delete) is PermissionReason.STEP
    locks = system_pb2.ListLocksRequest()
    assert await world.may(identity, "SystemService/ListLocks", locks) is PermissionReason.WORKFLOW
    world.granted = [Authority(role=Role.VIEWER)]
    assert await world.may(identity, "SystemService/ListLocks", locks) is None


async def test_a_step_of_a_narrowed_author_starts_only_what_the_author_may_see(world: World) -> None:
    identity, world.startable = step_of(world.runs["mine"]), (OPS,)
    for name, allowed in (("mine", True), ("other", False), ("absent", False)):
        for method, request in (
            ("RunService/StartRun", run_pb2.StartRunRequest(workflow=name)),
            ("JobService/RunJob", job_pb2.RunJobRequest(name=name)),
            ("ScheduleService/CreateSchedule", schedule_pb2.CreateScheduleRequest(workflow=name, subject="s")),
            ("ScheduleService/CancelSchedule", schedule_pb2.CancelScheduleRequest(id=world.schedules.get(name, "x"))),
        ):
            assert await world.may(identity, method, request) is (None if allowed else PermissionReason.STEP), method
    listed = schedule_pb2.ListSchedulesRequest(subject="issue-1")
    assert await world.may(identity, "ScheduleService/ListSchedules", listed) is None
    assert visible() == (OPS,)
    all_of = schedule_pb2.CancelBySubjectRequest(subject="issue-1")
    assert await world.may(identity, "ScheduleService/CancelBySubject", all_of) is PermissionReason.STEP
    reminder_only = schedule_pb2.CreateScheduleRequest(subject="issue-1")
    assert await world.may(identity, "ScheduleService/CreateSchedule", reminder_only) is None
