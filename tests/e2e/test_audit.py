"""The audit log of a real daemon: every change of the contract has an entry, and nothing acknowledged lacks one."""

from __future__ import annotations

import hmac
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.daemon import CALL_WITHIN, Daemon, running_daemon, steps_of, waits_for
from helpers.wait import wait_until
from toban.v1 import (
    access_pb2,
    access_pb2_grpc,
    access_rule_pb2,
    dead_letter_pb2,
    event_pb2,
    hook_pb2,
    hook_pb2_grpc,
    job_pb2,
    run_pb2,
    schedule_pb2,
    secret_pb2,
    secret_pb2_grpc,
    system_pb2,
    workflow_pb2,
)
from toband.api.access_rules import access_rules
from toband.api.audited_calls import short

SLEEPY = """
name: sleepy
description: waits to be cancelled
overlap: allow
schedule: "0 3 * * *"
steps:
  - {name: only, run: sleep 300}
"""
LETTERS = """
name: letters
description: fails
overlap: allow
steps:
  - {name: only, run: "false", on_failure: retry, max_retries: 0}
"""
ASKING = """
name: asking
description: asks
steps:
  - {name: ask, job_type: approval, description: ask}
"""
JOB = "jobs: {tool: {description: %s, run: 'true'}}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("audit") / "state") as running:
        yield running


@dataclass
class Calls:
    """Calls by the name of their method, in an order in which each succeeds; the texts that their entries have."""

    daemon: Daemon
    run: str = ""
    letters: list[str] = field(default_factory=list)
    schedule: str = ""
    session: str = ""
    hook_secret: str = ""

    def definition(self, source: str) -> workflow_pb2.Definition:
        return workflow_pb2.Definition(source=source)

    def all(self) -> Mapping[str, tuple[Callable[[], Any], str]]:
        """By method: the call, and a part of the detail or the target of its entry."""
        d, workflow = self.daemon, workflow_pb2
        return {
            "WorkflowService/CreateWorkflow": (self._create, "created workflow sleepy"),
            "WorkflowService/UpdateWorkflow": (
                lambda: d.workflows.UpdateWorkflow(
                    workflow.UpdateWorkflowRequest(
                        workflow=workflow.Workflow(
                            name="sleepy", definition=self.definition(SLEEPY.replace("300", "301"))
                        )
                    )
                ),
                "+  - {name: only, run: sleep 301}",
            ),
            "WorkflowService/ApplyDefinitions": (self._apply, "created workflow letters"),
            "WorkflowService/SetWorkflowEnabled": (
                lambda: d.workflows.SetWorkflowEnabled(
                    workflow.SetWorkflowEnabledRequest(name="letters", enabled=False)
                ),
                "enabled=false; disabled workflow letters",
            ),
            "WorkflowService/RestoreWorkflowVersion": (
                lambda: d.workflows.RestoreWorkflowVersion(
                    workflow.RestoreWorkflowVersionRequest(workflow="sleepy", version=1)
                ),
                "-  - {name: only, run: sleep 301}",
            ),
            "WorkflowService/BackfillSchedule": (self._backfill, "sleepy"),
            "JobService/CreateJob": (
                lambda: d.jobs.CreateJob(job_pb2.CreateJobRequest(definition=self.definition(JOB % "one"))),
                "created job tool",
            ),
            "JobService/UpdateJob": (
                lambda: d.jobs.UpdateJob(
                    job_pb2.UpdateJobRequest(job=job_pb2.Job(name="tool", definition=self.definition(JOB % "two")))
                ),
                "updated job tool, version 2",
            ),
            "JobService/SetJobEnabled": (
                lambda: d.jobs.SetJobEnabled(job_pb2.SetJobEnabledRequest(name="tool", enabled=True)),
                "enabled=true",
            ),
            "JobService/RunJob": (self._run_job, "run tool#1"),
            "JobService/DeleteJob": (lambda: d.jobs.DeleteJob(job_pb2.DeleteJobRequest(name="tool")), "deleted job"),
            "RunService/StartRun": (self._start, "run sleepy#"),
            "RunService/PauseRun": (lambda: d.runs.PauseRun(run_pb2.PauseRunRequest(id=self.run)), ""),
            "RunService/ResumeRun": (lambda: d.runs.ResumeRun(run_pb2.ResumeRunRequest(id=self.run)), ""),
            "RunService/CancelRun": (self._cancel, "reason=enough"),
            "RunService/RetryRun": (self._retry, "everything=true; run sleepy#"),
            "RunService/PinRun": (
                lambda: d.runs.PinRun(run_pb2.PinRunRequest(id=self.run, note="keep it")),
                "note=keep it",
            ),
            "RunService/UnpinRun": (lambda: d.runs.UnpinRun(run_pb2.UnpinRunRequest(id=self.run)), ""),
            "RunService/DeleteRun": (lambda: d.runs.DeleteRun(run_pb2.DeleteRunRequest(id=self.run)), ""),
            "RunService/DecideApproval": (self._decide, "step=ask, decision=APPROVAL_DECISION_APPROVED"),
            "DeadLetterService/RequeueDeadLetter": (self._requeue, "run letters#"),
            "DeadLetterService/DiscardDeadLetter": (
                lambda: d.dead_letters.DiscardDeadLetter(dead_letter_pb2.DiscardDeadLetterRequest(id=self.letters[0])),
                "",
            ),
            "EventService/EmitEvent": (lambda: d.emit("it.happened", {"password": "hidden"}), "event "),
            "ScheduleService/CreateSchedule": (self._schedule, "schedule "),
            "ScheduleService/CancelSchedule": (
                lambda: d.schedules.CancelSchedule(schedule_pb2.CancelScheduleRequest(id=self.schedule)),
                "subject issue-42",
            ),
            "ScheduleService/CancelBySubject": (
                lambda: d.schedules.CancelBySubject(schedule_pb2.CancelBySubjectRequest(subject="issue-42")),
                "0 cancelled",
            ),
            "SecretService/SetSecret": (
                lambda: self.secrets.SetSecret(secret_pb2.SetSecretRequest(name="DB", value="hidden-value")),
                "DB",
            ),
            "SecretService/GrantSecret": (
                lambda: self.secrets.GrantSecret(secret_pb2.GrantSecretRequest(name="DB", workflows=["nightly-*"])),
                "workflows=nightly-*",
            ),
            "SecretService/RevokeSecretGrant": (
                lambda: self.secrets.RevokeSecretGrant(
                    secret_pb2.RevokeSecretGrantRequest(name="DB", workflows=["nightly-*"])
                ),
                "workflows=nightly-*",
            ),
            "SecretService/RotateSecretsKey": (
                lambda: self.secrets.RotateSecretsKey(secret_pb2.RotateSecretsKeyRequest()),
                "",
            ),
            "SecretService/DeleteSecret": (
                lambda: self.secrets.DeleteSecret(secret_pb2.DeleteSecretRequest(name="DB")),
                "DB",
            ),
            "AccessService/CreateToken": (
                lambda: self.access.CreateToken(
                    access_pb2.CreateTokenRequest(name="ci", role=access_rule_pb2.ROLE_VIEWER)
                ),
                "role=ROLE_VIEWER",
            ),
            "AccessService/RevokeToken": (
                lambda: self.access.RevokeToken(access_pb2.RevokeTokenRequest(token="ci")),
                "ci",
            ),
            "AccessService/CreateSession": (self._session, "of token:aiko, role=viewer"),
            "AccessService/RevokeSession": (
                lambda: self.access.RevokeSession(access_pb2.RevokeSessionRequest(id=self.session)),
                "browser",
            ),
            "HookService/CreateHook": (self._hook, "push"),
            "HookService/DeliverHook": (self._deliver, "push"),
            "HookService/DeleteHook": (lambda: self.hooks.DeleteHook(hook_pb2.DeleteHookRequest(name="push")), "push"),
            "SystemService/Backup": (lambda: list(d.system.Backup(system_pb2.BackupRequest())), ""),
            "SystemService/CollectGarbage": (lambda: d.system.CollectGarbage(system_pb2.CollectGarbageRequest()), ""),
            "SystemService/Doctor": (lambda: d.system.Doctor(system_pb2.DoctorRequest(repair=True)), ""),
            "SystemService/Drain": (lambda: d.system.Drain(system_pb2.DrainRequest()), ""),
            "SystemService/Resume": (lambda: d.system.Resume(system_pb2.ResumeRequest()), ""),
            "SystemService/ReleaseLock": (
                lambda: d.system.ReleaseLock(system_pb2.ReleaseLockRequest(name="db")),
                "db",
            ),
            "SystemService/ReloadConfig": (lambda: d.system.ReloadConfig(system_pb2.ReloadConfigRequest()), ""),
            "SystemService/Reload": (lambda: d.system.Reload(system_pb2.ReloadRequest()), ""),
            "WorkflowService/DeleteWorkflow": (
                lambda: d.workflows.DeleteWorkflow(workflow.DeleteWorkflowRequest(name="asking")),
                "deleted workflow asking",
            ),
        }

    @property
    def secrets(self) -> secret_pb2_grpc.SecretServiceStub:
        return secret_pb2_grpc.SecretServiceStub(self.daemon.channel)

    @property
    def access(self) -> access_pb2_grpc.AccessServiceStub:
        return access_pb2_grpc.AccessServiceStub(self.daemon.channel)

    @property
    def hooks(self) -> hook_pb2_grpc.HookServiceStub:
        return hook_pb2_grpc.HookServiceStub(self.daemon.channel)

    def _hook(self) -> None:
        request = hook_pb2.CreateHookRequest(name="push", event_type="PUSHED", form=hook_pb2.HOOK_FORM_HMAC)
        self.hook_secret = self.hooks.CreateHook(request).secret_value

    def _deliver(self) -> None:
        at = str(int(time.time()))
        digest = hmac.new(self.hook_secret.encode(), f"{at}.{{}}".encode(), "sha256").hexdigest()
        headers = {"X-Toban-Timestamp": at, "X-Toban-Signature": f"sha256={digest}"}
        self.hooks.DeliverHook(hook_pb2.DeliverHookRequest(name="push", headers=headers, body=b"{}"))

    def _create(self) -> None:
        request = workflow_pb2.CreateWorkflowRequest(definition=self.definition(SLEEPY), request_id="create-1")
        self.daemon.workflows.CreateWorkflow(request)

    def _apply(self) -> None:
        texts = [
            workflow_pb2.DefinitionText(file=f"{number}.yaml", definition=self.definition(source))
            for number, source in enumerate((LETTERS, ASKING))
        ]
        request = workflow_pb2.ApplyDefinitionsRequest(texts=texts, validate_only=True)
        self.daemon.workflows.ApplyDefinitions(request)
        request.validate_only = False
        self.daemon.workflows.ApplyDefinitions(request)

    def _backfill(self) -> None:
        request = workflow_pb2.BackfillScheduleRequest(workflow="sleepy")
        request.from_time.FromJsonString("2026-01-01T00:00:00Z")
        request.to_time.FromJsonString("2026-01-01T01:00:00Z")
        self.daemon.workflows.BackfillSchedule(request)

    def _run_job(self) -> None:
        run = self.daemon.jobs.RunJob(job_pb2.RunJobRequest(name="tool")).run
        self.daemon.wait_run(run.id)

    def _start(self) -> None:
        self.run = self.daemon.start_run("sleepy")

    def _cancel(self) -> None:
        self.daemon.cancel(self.run, "enough")
        self.daemon.wait_run(self.run)

    def _retry(self) -> None:
        run = self.daemon.runs.RetryRun(run_pb2.RetryRunRequest(id=self.run, everything=True)).run
        self.daemon.cancel(run.id)
        self.daemon.wait_run(run.id)

    def _decide(self) -> None:
        run_id = self.daemon.start_run("asking")
        wait_until(lambda: waits_for(steps_of(self.daemon.get_run(run_id))["ask"]), "no approval")
        decision = run_pb2.APPROVAL_DECISION_APPROVED
        self.daemon.runs.DecideApproval(run_pb2.DecideApprovalRequest(run_id=run_id, step="ask", decision=decision))
        self.daemon.wait_run(run_id)

    def _requeue(self) -> None:
        for _ in range(2):
            self.daemon.run("letters")
        listed = self.daemon.dead_letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest())
        *self.letters, first = [letter.id for letter in listed.dead_letters]
        made = self.daemon.dead_letters.RequeueDeadLetter(dead_letter_pb2.RequeueDeadLetterRequest(id=first))
        self.daemon.wait_run(made.run.id)

    def _schedule(self) -> None:
        request = schedule_pb2.CreateScheduleRequest(subject="issue-42", action=schedule_pb2.SCHEDULE_ACTION_REMINDER)
        request.rule.words = "in 3 days at 9am"
        self.schedule = self.daemon.schedules.CreateSchedule(request).schedule.id

    def _session(self) -> None:
        # A session needs an owner, and a socket is none.
        owner = self.access.CreateToken(access_pb2.CreateTokenRequest(name="aiko", role=access_rule_pb2.ROLE_ADMIN))
        request = access_pb2.CreateSessionRequest(label="browser", role=access_rule_pb2.ROLE_VIEWER)
        metadata = (("authorization", f"Bearer {owner.text}"),)
        self.session = self.access.CreateSession(request, metadata=metadata).session.id


def entries(daemon: Daemon) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(f"file:{daemon.state_dir}/toban.db?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        return database.execute("SELECT * FROM audit_entries ORDER BY sequence").fetchall()


def test_every_audited_call_leaves_an_entry(daemon: Daemon) -> None:
    calls = Calls(daemon).all()
    audited = {short(method) for method, rule in access_rules().items() if rule is not None and rule.audited}
    assert audited == set(calls), "each audited method of the contract needs a call here"
    for method, (call, text) in calls.items():
        before = len(entries(daemon))
        call()
        new = [entry for entry in entries(daemon)[before:] if entry["method"] == method]
        assert new, f"{method} left no entry"
        assert any(text in entry["detail"] or text in entry["target"] for entry in new), [dict(entry) for entry in new]
        assert all(entry["actor"] and entry["source"] and entry["outcome"] == "DONE" for entry in new)
    assert next(entry["request_id"] for entry in entries(daemon)) == "create-1"
    assert not [entry for entry in entries(daemon) if "hidden" in json.dumps(dict(entry))]


def test_calls_that_change_nothing_leave_none(daemon: Daemon) -> None:
    before = len(entries(daemon))
    daemon.system.Doctor(system_pb2.DoctorRequest())
    daemon.system.CollectGarbage(system_pb2.CollectGarbageRequest(dry_run=True))
    daemon.runs.ListRuns(run_pb2.ListRunsRequest())
    with pytest.raises(grpc.RpcError):
        daemon.start_run("there-is-none")
    assert len(entries(daemon)) == before


def test_changes_of_definition_files_are_recorded(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    file = flows / "a.yaml"
    file.write_text(LETTERS)
    with running_daemon(tmp_path / "s", environment={"TOBAN_DEFINITIONS": str(flows)}) as daemon:

        def recorded() -> list[str]:
            return [entry["detail"] for entry in entries(daemon) if entry["actor"] == "files"]

        wait_until(lambda: len(recorded()) == 1, "no entry of a new file")
        file.write_text(LETTERS.replace("fails", "fails twice"))
        wait_until(lambda: len(recorded()) == 2, "no entry of a changed file")
        file.unlink()
        wait_until(lambda: len(recorded()) == 3, "no entry of a removed file")
        first, second, third = recorded()
        assert first.startswith("created workflow letters, version 1\n@@ -0,0 ")
        assert "\n-description: fails\n+description: fails twice\n" in second
        assert third == "disabled workflow letters, version 2"
        assert {entry["source"] for entry in entries(daemon)} == {str(file)}


def test_a_flood_of_refused_calls_is_a_few_entries(daemon: Daemon) -> None:
    before = len(entries(daemon))
    metadata = (("authorization", "Bearer toban_0000_nothing"),)
    calls = [
        daemon.runs.GetRun.future(run_pb2.GetRunRequest(id=str(number)), metadata=metadata, timeout=CALL_WITHIN)
        for number in range(10_000)
    ]
    assert {call.code() for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}

    def refusals() -> list[sqlite3.Row]:
        return [entry for entry in entries(daemon)[before:] if entry["outcome"] == "REFUSED"]

    wait_until(refusals, "the refusal was not recorded")
    first = refusals()[0]
    assert (first["method"], first["reason"]) == ("RunService/GetRun", "CREDENTIAL_INVALID")
    # One, or two if a minute began meanwhile, each with a sum of what followed.
    assert len(refusals()) <= 4


def test_nothing_acknowledged_lacks_an_entry_after_kill_9(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        daemon.apply("{name: quick, description: x, overlap: allow, steps: [{name: a, run: 'true'}]}")
        daemon.apply(ASKING)
        acknowledged: list[tuple[str, str]] = []
        enough = threading.Event()

        def change(number: int) -> None:
            for count in range(1000):
                enabled = workflow_pb2.SetWorkflowEnabledRequest(name="asking", enabled=bool(count % 2))
                request = run_pb2.StartRunRequest(workflow="quick", request_id=f"{number}.{count}")
                event = event_pb2.EmitEventRequest(type="it.happened", request_id=f"{number}.{count}")
                try:
                    acknowledged.append(("run", daemon.runs.StartRun(request, timeout=CALL_WITHIN).run.id))
                    daemon.workflows.SetWorkflowEnabled(enabled, timeout=CALL_WITHIN)
                    acknowledged.append(("event", daemon.events.EmitEvent(event, timeout=CALL_WITHIN).event.id))
                except (grpc.RpcError, ValueError):
                    return
                if len(acknowledged) > 60:
                    enough.set()

        threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        daemon.kill()
        for thread in threads:
            thread.join(60)
        found = " ".join(entry["detail"] for entry in entries(daemon))
        assert [each for _, each in acknowledged if each not in found] == []
        assert len(acknowledged) > 60
