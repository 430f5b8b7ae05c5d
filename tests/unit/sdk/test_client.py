from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from doubles.daemon.fake_errors import info
from toban.sdk import (
    Client,
    Conflict,
    DefinitionText,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unreachable,
)
from toban.v1 import dead_letter_pb2, job_pb2, run_pb2, system_pb2, workflow_pb2

SOURCE = "name: nightly\nsteps:\n  one:\n    run: echo hello\n"


async def test_a_workflow_from_its_creation_to_its_end(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        created = await client.create_workflow(SOURCE, base_dir="/srv")
        assert created.workflow.version == 1
        with pytest.raises(Conflict) as caught:
            await client.create_workflow(SOURCE)
        assert caught.value.reason == "WORKFLOW_EXISTS"

        updated = await client.update_workflow("nightly", SOURCE + "# new\n", base_dir="/srv")
        assert updated.changed
        assert updated.workflow.version == 2
        found = await client.get_workflow("nightly")
        assert found.definition.source == SOURCE + "# new\n"
        versions = [version async for version in client.list_workflow_versions("nightly")]
        assert [version.version for version in versions] == [2, 1]
        assert (await client.get_workflow_version("nightly", 1)).definition.source == SOURCE

        assert not (await client.set_workflow_enabled("nightly", False)).enabled
        assert (await client.validate_workflow(SOURCE)).valid
        await client.delete_workflow("nightly")
        with pytest.raises(NotFound):
            await client.get_workflow("nightly")


async def test_an_old_version_is_restored_as_a_new_one(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        await client.create_workflow(SOURCE)
        await client.update_workflow("nightly", SOURCE + "# new\n")
        daemon.lose["RestoreWorkflowVersion"] = 1
        restored = await client.restore_workflow_version("nightly", 1)
        assert (restored.changed, restored.version.version) == (True, 3)
        assert (await client.get_workflow("nightly")).definition.source == SOURCE
        assert not (await client.restore_workflow_version("nightly", 3)).changed
        with pytest.raises(NotFound):
            await client.restore_workflow_version("nightly", 9)


async def test_apply_says_what_it_did(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        answers = [
            await client.apply_definitions([DefinitionText(source=text)])
            for text in (SOURCE, SOURCE, SOURCE + "# new\n")
        ]
    assert [answer.definitions[0].outcome for answer in answers] == [
        workflow_pb2.APPLY_OUTCOME_CREATED,
        workflow_pb2.APPLY_OUTCOME_UNCHANGED,
        workflow_pb2.APPLY_OUTCOME_UPDATED,
    ]


async def test_definitions_are_applied_once_however_often_the_answer_is_lost(daemon: FakeDaemon) -> None:
    daemon.lose["ApplyDefinitions"] = 1
    async with Client(daemon.address) as client:
        answer = await client.apply_definitions([DefinitionText(source=SOURCE)], etags={"nightly": "7"}, force=True)
    assert (answer.definitions[0].name, answer.definitions[0].version) == ("nightly", 1)
    request = daemon.seen[-1]
    assert isinstance(request, workflow_pb2.ApplyDefinitionsRequest)
    assert (dict(request.etags), request.force, daemon.calls["ApplyDefinitions"]) == ({"nightly": "7"}, True, 2)


async def test_update_names_what_it_replaces(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    async with Client(daemon.address) as client:
        await client.update_workflow("nightly", SOURCE, etag="7")
    request = daemon.seen[-1]
    assert isinstance(request, workflow_pb2.UpdateWorkflowRequest)
    assert list(request.update_mask.paths) == ["definition"]
    assert request.workflow.etag == "7"


async def test_lists_go_over_all_pages(daemon: FakeDaemon) -> None:
    names = [f"w{number:03}" for number in range(25)]
    for name in names:
        daemon.add_workflow(name)
    for _ in range(7):
        daemon.add_run("w000", state=run_pb2.RUN_STATE_SUCCEEDED)
    async with Client(daemon.address) as client:
        found = [workflow.name async for workflow in client.list_workflows(page_size=10)]
        runs = [run.number async for run in client.list_runs(workflow="w000", page_size=3)]
    assert found == names
    assert daemon.calls["ListWorkflows"] == 3
    assert runs == [7, 6, 5, 4, 3, 2, 1]


async def test_a_list_that_is_left_early_asks_for_no_more(daemon: FakeDaemon) -> None:
    for number in range(5):
        daemon.add_workflow(f"w{number}")
    async with Client(daemon.address) as client:
        workflows = client.list_workflows(page_size=2)
        assert (await anext(workflows)).name == "w0"
        await workflows.aclose()
    assert daemon.calls["ListWorkflows"] == 1


async def test_a_run_comes_with_all_of_its_steps(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=[f"s{number}" for number in range(25)])
    daemon.steps_per_page = 10
    async with Client(daemon.address) as client:
        run = await client.get_run(record.run.id)
    assert [step.id for step in run.steps] == [f"s{number}" for number in range(25)]
    assert daemon.calls["GetRun"] == 3


async def test_a_lost_answer_does_not_start_a_second_run(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.lose["StartRun"] = 2
    async with Client(daemon.address) as client:
        run = await client.start_run("nightly", {"day": "monday"})
    assert daemon.calls["StartRun"] == 3
    assert list(daemon.runs) == [run.id]


async def test_a_lost_answer_does_not_create_twice(daemon: FakeDaemon) -> None:
    daemon.lose["CreateWorkflow"] = 1
    async with Client(daemon.address) as client:
        assert (await client.create_workflow(SOURCE)).workflow.version == 1
    assert daemon.calls["CreateWorkflow"] == 2


async def test_a_deletion_whose_answer_was_lost_is_done(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.lose["DeleteWorkflow"] = 1
    async with Client(daemon.address) as client:
        await client.delete_workflow("nightly")
        assert daemon.workflows == {}
        with pytest.raises(NotFound):
            await client.delete_workflow("nightly")


async def test_a_request_id_of_ones_own_is_kept(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    async with Client(daemon.address) as client:
        first = await client.start_run("nightly", request_id="mine")
        again = await client.start_run("nightly", request_id="mine")
        with pytest.raises(Conflict):
            await client.start_run("nightly")
    assert first.id == again.id
    ids = [request.request_id for request in daemon.seen if isinstance(request, run_pb2.StartRunRequest)]
    assert ids[:2] == ["mine", "mine"]
    assert len(ids[2]) == 32


async def test_a_call_waits_for_a_daemon_that_comes_back(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        assert (await client.get_info()).version == "9.9.9"
        daemon.stop()
        daemon.start()
        assert (await client.get_info()).version == "9.9.9"


async def test_retrying_ends(daemon: FakeDaemon) -> None:
    daemon.stop()
    async with Client(daemon.address, retry_for=0.3) as client:
        with pytest.raises(Unreachable):
            await client.get_info()


async def test_a_daemon_that_does_not_run_is_reported_soon(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.stop()
    began = asyncio.get_running_loop().time()
    async with Client(daemon.address) as client:
        with pytest.raises(Unreachable):
            await client.get_info()
        with pytest.raises(Unreachable):
            await anext(client.watch_run("x"))
    assert asyncio.get_running_loop().time() - began < 2 * 2
    # A step of a daemon that restarts waits for it.
    monkeypatch.setenv("TOBAN_SERVER", daemon.address)
    monkeypatch.setenv("TOBAN_RUN_ID", "r")
    monkeypatch.setenv("TOBAN_ATTEMPT_TOKEN", "t")
    async with Client(daemon.address, retry_for=60) as client:
        calling = asyncio.create_task(client.get_info())
        done, _ = await asyncio.wait([calling], timeout=1.5)
        assert not done
        daemon.start()
        assert (await calling).pid == 4711


async def test_a_daemon_never_reached_has_a_patience_of_its_own(daemon: FakeDaemon) -> None:
    daemon.lose["GetInfo"] = 1
    async with Client(daemon.address, retry_for=10, connect_for=0) as client:
        with pytest.raises(Unreachable):
            await client.get_info()
        assert daemon.calls["GetInfo"] == 1
        await client.get_info()
        daemon.lose["GetInfo"] = 1
        await client.get_info()
    assert daemon.calls["GetInfo"] == 4


async def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    # Whichever end closes first, the other may still have something to say.
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, 65536):
            await loop.sock_sendall(sink, data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


async def test_a_daemon_that_is_slow_to_greet_is_there(daemon: FakeDaemon) -> None:
    """A slow answer on a busy machine is not a missing daemon."""
    if sys.platform == "win32":
        pytest.skip("there are no such sockets")
    loop = asyncio.get_running_loop()
    path = str(daemon.path.with_name("slow.sock"))
    with socket.socket(socket.AF_UNIX) as front, socket.socket(socket.AF_UNIX) as behind:
        front.bind(path)
        front.listen()
        front.setblocking(False)
        behind.setblocking(False)
        async with Client(f"unix://{path}", connect_for=0) as client:
            calling = asyncio.create_task(client.get_info())
            # Connected, and for so long nothing more.
            done, _ = await asyncio.wait([calling], timeout=0.5)
            assert not done
            near, _ = await loop.sock_accept(front)
            with near:
                await loop.sock_connect(behind, str(daemon.path))
                passing = asyncio.gather(_pass_on(near, behind), _pass_on(behind, near))
                assert (await calling).pid == 4711
                await client.close()
                await passing


async def test_parameters_arrive_as_they_were_given(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    given = {"a": "x", "b": 2, "c": [1, None, {"d": True}], "e": 0.5}
    async with Client(daemon.address) as client:
        run = await client.start_run("nightly", given)
    assert dict(run.params.items()).keys() == given.keys()
    assert run.params["b"] == 2
    assert run.triggered_by == run_pb2.TRIGGER_API


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (2**53 + 1, "p"),
        ({"deep": [1, {2: 3}]}, "p.deep[1]"),
        ({1, 2}, "p"),
        ([b"bytes"], "p[0]"),
        (datetime.now(UTC), "p"),
    ],
)
async def test_a_parameter_that_would_arrive_changed_is_refused(daemon: FakeDaemon, value: Any, field: str) -> None:
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidArgument) as caught:
            await client.start_run("nightly", {"p": value})
    assert [violation.field for violation in caught.value.violations] == [field]
    assert daemon.calls["StartRun"] == 0


async def test_a_time_without_a_zone_is_refused(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidArgument, match="has no time zone"):
            async for _ in client.stream_logs("x", since=datetime(2026, 1, 1)):  # noqa: DTZ001
                pass


async def test_cancel_and_its_conflict(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    async with Client(daemon.address) as client:
        run = await client.cancel_run(record.run.id, reason="enough")
        assert run.HasField("cancel_requested_at")
        assert record.run.error_message == "enough"
        with pytest.raises(Conflict) as caught:
            await client.cancel_run(record.run.id)
    assert caught.value.reason == "RUN_ALREADY_TERMINAL"
    assert caught.value.metadata == {"state": "RUN_STATE_CANCELLED"}


async def test_a_cancel_whose_answer_was_lost_is_no_second_one(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    daemon.lose["CancelRun"] = 1
    async with Client(daemon.address) as client:
        with pytest.raises(Conflict):
            await client.cancel_run(record.run.id)
    asked = [each.is_retry for each in daemon.seen if isinstance(each, run_pb2.CancelRunRequest)]
    assert asked == [False, True]


async def test_pins(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    async with Client(daemon.address) as client:
        assert (await client.pin_run(record.run.id, note="kept")).pin.note == "kept"
        assert not (await client.unpin_run(record.run.id)).HasField("pin")


async def test_processes(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    record.processes.append(run_pb2.ProcessExecution(id="p1", step="one", exit_code=0, stdout="out"))
    async with Client(daemon.address) as client:
        found = [one.id async for one in client.list_process_executions(run_id=record.run.id)]
        assert found == ["p1"]
        failed = [run_pb2.PROCESS_STATE_FAILED]
        since = datetime(2026, 2, 1, tzinfo=UTC)
        listed = client.list_process_executions(workflow="x", job="j", states=failed, launched_after=since)
        assert [one.id async for one in listed] == []
        asked = daemon.seen[-1]
        assert isinstance(asked, run_pb2.ListProcessExecutionsRequest)
        assert (asked.workflow, asked.job, asked.launched_after.seconds) == ("x", "j", since.timestamp())
        one = await client.get_process_execution("p1")
        assert (one.step, one.stdout) == ("one", "out")
        assert (await client.get_process_execution("p1", output=False)).stdout == ""
        assert [message.HasField("end") async for message in client.stream_logs(process_execution_id="p1")] == [True]
        with pytest.raises(NotFound):
            await client.get_process_execution("p2")


async def test_system(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        assert (await client.get_info()).pid == 4711
        assert [value.key for value in await client.get_config()] == ["state_dir", "listen"]
        daemon.garbage.run_count = 3
        assert (await client.collect_garbage(dry_run=True)).run_count == 3
        assert daemon.collected == []
        assert (await client.collect_garbage()).run_count == 3
        assert daemon.collected == [daemon.garbage]
        await client.close()
        await client.close()


async def test_messages_of_many_megabytes_arrive(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", state=run_pb2.RUN_STATE_SUCCEEDED)
    daemon.write(record, "one", b"x" * (12 * 1024 * 1024))
    async with Client(daemon.address) as client:
        sizes = [
            sum(len(entry.data) for entry in message.chunk.records)
            async for message in client.stream_logs(record.run.id)
        ]
    assert sizes == [12 * 1024 * 1024, 0]


@pytest.mark.parametrize("module", [dead_letter_pb2, job_pb2, run_pb2, system_pb2, workflow_pb2])
def test_every_call_of_the_daemon_has_a_method(module: Any) -> None:
    for service in module.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert hasattr(Client, re.sub("(?<!^)(?=[A-Z])", "_", method.name).lower())


def test_the_sdk_loads_nothing_of_the_command_line() -> None:
    code = (
        "import sys, toban.sdk; "
        "print([name for name in ('rich', 'toban.cli', 'pydantic', 'ruamel') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_call_that_a_busy_daemon_refuses_is_made_again(daemon: FakeDaemon) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    daemon.add_workflow("nightly")
    daemon.fail["GetWorkflow"] = (code, "too many", (info("TOO_MANY_CALLS"),))

    def recover() -> None:
        if daemon.calls["GetWorkflow"] == 3:
            daemon.fail.clear()

    daemon.on_call["GetWorkflow"] = recover
    async with Client(daemon.address, connect_for=0) as client:
        assert (await client.get_workflow("nightly")).name == "nightly"
    assert daemon.calls["GetWorkflow"] >= 3


async def test_a_daemon_that_stays_busy_is_told_with_its_reason(daemon: FakeDaemon) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    daemon.fail["GetWorkflow"] = (code, "too many", (info("TOO_MANY_CALLS"),))
    async with Client(daemon.address, retry_for=0.2) as client:
        with pytest.raises(ResourceExhausted) as caught:
            await client.get_workflow("nightly")
    assert caught.value.reason == "TOO_MANY_CALLS"
    assert daemon.calls["GetWorkflow"] >= 2


async def test_what_has_another_reason_is_not_made_again(daemon: FakeDaemon) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    daemon.fail["GetWorkflow"] = (code, "full", (info("DISK_FULL"),))
    async with Client(daemon.address) as client:
        with pytest.raises(ResourceExhausted):
            await client.get_workflow("nightly")
    assert daemon.calls["GetWorkflow"] == 1
