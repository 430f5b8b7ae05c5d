from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.sdk import Client, Conflict, DefinitionText, InvalidDefinition, NotFound
from toban.v1 import job_pb2, run_pb2

SOURCE = "jobs:\n  build:\n    run: make\n"


async def test_a_job_from_its_creation_to_its_end(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        created = await client.create_job(SOURCE, base_dir="/srv")
        assert (created.job.name, created.job.version) == ("build", 1)
        with pytest.raises(Conflict) as caught:
            await client.create_job(SOURCE)
        assert caught.value.reason == "JOB_EXISTS"

        updated = await client.update_job("build", SOURCE + "# new\n", base_dir="/srv")
        assert (updated.changed, updated.job.version) == (True, 2)
        assert (await client.get_job("build")).definition.source == SOURCE + "# new\n"
        versions = [version.version async for version in client.list_workflow_versions("build")]
        assert versions == [2, 1]

        await client.delete_job("build")
        with pytest.raises(NotFound) as gone:
            await client.get_job("build")
        assert gone.value.reason == "JOB_NOT_FOUND"


async def test_applying_a_job_names_the_workflows_that_changed_with_it(daemon: FakeDaemon) -> None:
    daemon.add_job("build", SOURCE).used_by.extend(["deploy", "nightly"])
    async with Client(daemon.address) as client:
        answers = [
            await client.apply_definitions([DefinitionText(source=source)]) for source in (SOURCE, SOURCE + "# new\n")
        ]
    unchanged, updated = (answer.definitions[0] for answer in answers)
    assert list(unchanged.updated_workflows) == []
    assert list(updated.updated_workflows) == ["deploy", "nightly"]


async def test_a_job_that_does_not_hold_is_refused(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidDefinition) as caught:
            await client.create_job(SOURCE.replace("make", "BROKEN"))
    assert caught.value.problems[0].line == 3


async def test_update_names_what_it_replaces(daemon: FakeDaemon) -> None:
    daemon.add_job("build")
    async with Client(daemon.address) as client:
        await client.update_job("build", SOURCE, etag="7")
    request = daemon.seen[-1]
    assert isinstance(request, job_pb2.UpdateJobRequest)
    assert list(request.update_mask.paths) == ["definition"]
    assert request.job.etag == "7"


async def test_a_list_goes_over_all_pages(daemon: FakeDaemon) -> None:
    names = [f"j{number}" for number in range(5)]
    for name in names:
        daemon.add_job(name)
    async with Client(daemon.address) as client:
        assert [job.name async for job in client.list_jobs(page_size=2)] == names
    assert daemon.calls["ListJobs"] == 3


async def test_a_job_in_use_stays(daemon: FakeDaemon) -> None:
    daemon.add_job("build").used_by.append("deploy")
    async with Client(daemon.address) as client:
        with pytest.raises(Conflict) as caught:
            await client.delete_job("build")
    assert caught.value.reason == "JOB_IN_USE"
    assert caught.value.metadata == {"workflows": "deploy"}


async def test_a_deletion_whose_answer_was_lost_is_done(daemon: FakeDaemon) -> None:
    daemon.add_job("build")
    daemon.lose["DeleteJob"] = 1
    async with Client(daemon.address) as client:
        await client.delete_job("build")
    assert daemon.jobs == {}


async def test_a_job_is_run_once_however_often_its_answer_is_lost(daemon: FakeDaemon) -> None:
    daemon.add_job("build")
    daemon.lose["RunJob"] = 1
    async with Client(daemon.address) as client:
        run = await client.run_job("build", triggered_by=run_pb2.TRIGGER_MANUAL)
    assert list(daemon.runs) == [run.id]
    assert (run.workflow, run.triggered_by) == ("build", run_pb2.TRIGGER_MANUAL)


async def test_it_is_disabled_and_enabled(daemon: FakeDaemon) -> None:
    daemon.add_job("build")
    async with Client(daemon.address) as client:
        assert not (await client.set_job_enabled("build", False)).enabled
        assert (await client.set_job_enabled("build", True)).enabled
        with pytest.raises(NotFound):
            await client.set_job_enabled("other", False)
