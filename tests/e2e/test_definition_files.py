"""Definitions follow their files: at once, whole or not at all, and a broken file changes nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from toban.v1 import job_pb2, run_pb2, system_pb2, workflow_pb2

WITHIN = 2.0
"""Seconds in which a change of a file is applied; a busy machine gets more in most tests here."""
YEARLY, EVERY_SECOND = '"0 0 1 1 *"', '"* * * * * *"'
BROKEN = system_pb2.DEFINITION_FILE_STATE_BROKEN


def definition(name: str, schedule: str = YEARLY, title: str = "", run: str = "true") -> str:
    return (
        f"name: {name}\ndescription: x\ntitle: '{title or name}'\noverlap: allow\n"
        f"schedule: {schedule}\nsteps: {{only: {{run: '{run}'}}}}\n"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "definitions"
    folder.mkdir()
    return folder


@pytest.fixture
def daemon(tmp_path: Path, folder: Path) -> Iterator[Daemon]:
    (folder / "kept.yaml").write_text(definition("kept"))
    with running_daemon(tmp_path / "state", environment=surroundings(folder)) as running:
        wait_until(lambda: get(running, "kept"), "the file was not loaded")
        yield running


def surroundings(folder: Path) -> dict[str, str]:
    return {"TOBAN_TIMEZONE": "UTC", "TOBAN_DEFINITIONS": str(folder)}


def get(daemon: Daemon, name: str) -> workflow_pb2.Workflow | None:
    try:
        request = workflow_pb2.GetWorkflowRequest(name=name)
        return daemon.workflows.GetWorkflow(request, timeout=20).workflow
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise


def enabled(daemon: Daemon, name: str) -> bool:
    found = get(daemon, name)
    return found is not None and found.enabled


def titled(daemon: Daemon, name: str, title: str) -> bool:
    found = get(daemon, name)
    return found is not None and found.title == title


def files_of(daemon: Daemon) -> dict[str, system_pb2.DefinitionFile]:
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    return {Path(file.path).name: file for file in info.definition_files}


def is_broken(daemon: Daemon, name: str) -> bool:
    found = files_of(daemon).get(name)
    return found is not None and found.state == BROKEN


def conditions(daemon: Daemon) -> set[str]:
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    return {each.name for each in info.health.conditions}


def reload(daemon: Daemon) -> system_pb2.ReloadResponse:
    return daemon.system.Reload(system_pb2.ReloadRequest(), timeout=60)


def write(path: Path, text: str) -> None:
    """As an editor does: beside it, then in its place."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


@contextlib.contextmanager
def load(daemon: Daemon) -> Iterator[None]:
    """Somebody starts runs all the time."""
    daemon.apply(definition("busy"))
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            daemon.run("busy")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()


def seconds_until_applied(daemon: Daemon, folder: Path, title: str) -> float:
    write(folder / "kept.yaml", definition("kept", EVERY_SECOND, title))
    began = time.monotonic()
    wait_until(lambda: titled(daemon, "kept", title), "it was not applied")
    return time.monotonic() - began


def test_an_edit_under_load_changes_the_schedule_within_two_seconds(daemon: Daemon, folder: Path) -> None:
    with load(daemon):
        # A machine that is busy with something else is so for a while, and not for all of these.
        took = [seconds_until_applied(daemon, folder, "edit 1")]
        while min(took) >= WITHIN and len(took) < 10:
            took.append(seconds_until_applied(daemon, folder, f"edit {len(took) + 1}"))
        found = get(daemon, "kept")
        assert found is not None
        assert found.version == 1 + len(took)
        assert "second" in found.schedules[0]
        runs = run_pb2.ListRunsRequest(workflow="kept")
        wait_until(lambda: daemon.runs.ListRuns(runs, timeout=20).runs, "it never became due")
        write(folder / "kept.yaml", definition("kept"))
        wait_until(lambda: titled(daemon, "kept", "kept"), "it was not applied")
    assert min(took) < WITHIN


def test_a_broken_file_keeps_what_it_defined_and_says_so(daemon: Daemon, folder: Path) -> None:
    file = folder / "kept.yaml"
    write(file, "name: kept\nsteps: {only: {run: [\n")
    wait_until(lambda: is_broken(daemon, "kept.yaml"), "it was not reported")
    told = files_of(daemon)["kept.yaml"]
    assert told.problems[0].startswith(f"{file}:")
    assert list(told.definitions) == ["kept"]
    wait_until(lambda: "definitions" in conditions(daemon), "nobody is told")
    kept = get(daemon, "kept")
    assert kept is not None
    assert (kept.version, kept.enabled, kept.owner_path) == (1, True, str(file))
    # A restart does not forget it either.
    daemon.stop()
    daemon.start()
    wait_until(lambda: is_broken(daemon, "kept.yaml"), "it was not reported after the restart")
    assert (kept := get(daemon, "kept")) is not None
    assert kept.enabled
    file.write_bytes(b"name: \xff\xfe\n")
    wait_until(
        lambda: any("UTF-8" in line for line in files_of(daemon)["kept.yaml"].problems),
        "it was not read",
    )
    write(file, definition("kept", title="again"))
    wait_until(lambda: titled(daemon, "kept", "again"), "it was not applied")
    wait_until(lambda: "definitions" not in conditions(daemon), "it is still not well")


def test_two_documents_of_which_one_is_broken_store_neither(daemon: Daemon, folder: Path) -> None:
    both = definition("one", title="new") + "---\n" + definition("two", title="new")
    write(folder / "both.yaml", both.replace("name: two", "name: two\nunheard_of: 1"))
    wait_until(lambda: is_broken(daemon, "both.yaml"), "it was not reported")
    assert get(daemon, "one") is None
    # Nor if what is wrong is found only beside what is stored: a job that nobody has, a name that is taken.
    missing = "name: two\ndescription: x\nsteps: {only: {job: nowhere}}\n"
    write(folder / "both.yaml", definition("one") + "---\n" + missing)
    wait_until(lambda: "nowhere" in str(files_of(daemon)["both.yaml"].problems), "not reported")
    write(folder / "both.yaml", definition("one") + "---\n" + definition("kept", title="stolen"))
    wait_until(lambda: "defined twice" in str(files_of(daemon)["both.yaml"].problems), "not told")
    daemon.apply(definition("mine"))
    write(folder / "both.yaml", definition("one") + "---\n" + definition("mine", title="stolen"))
    wait_until(lambda: "over the API" in str(files_of(daemon)["both.yaml"].problems), "not told")
    assert get(daemon, "one") is None
    assert not titled(daemon, "kept", "stolen")
    assert not titled(daemon, "mine", "stolen")
    write(folder / "both.yaml", both)
    wait_until(lambda: titled(daemon, "two", "new"), "it was not applied")
    assert titled(daemon, "one", "new")


def test_what_is_removed_is_disabled_and_is_back_with_its_file(daemon: Daemon, folder: Path) -> None:
    write(folder / "kept.yaml", definition("kept") + "---\n" + definition("left"))
    wait_until(lambda: get(daemon, "left"), "it was not applied")
    write(folder / "kept.yaml", definition("kept"))
    wait_until(lambda: (w := get(daemon, "left")) and not w.enabled, "it is still enabled")
    assert (kept := get(daemon, "kept")) is not None
    assert kept.enabled
    (folder / "kept.yaml").unlink()
    wait_until(lambda: (w := get(daemon, "kept")) and not w.enabled, "it is still enabled")
    assert (kept := get(daemon, "kept")) is not None
    assert (kept.owner_path, kept.owner_kind) == (str(folder / "kept.yaml"), workflow_pb2.OWNER_KIND_REMOVED_FILE)
    write(folder / "kept.yaml", definition("kept"))
    wait_until(lambda: (w := get(daemon, "kept")) and w.enabled, "it is still disabled")
    # What no file has any more may be deleted by anybody.
    delete = workflow_pb2.DeleteWorkflowRequest(name="left")
    daemon.workflows.DeleteWorkflow(delete, timeout=20)


def test_a_renamed_file_changes_nothing_but_the_owner(daemon: Daemon, folder: Path) -> None:
    (folder / "kept.yaml").rename(folder / "renamed.yaml")
    wait_until(
        lambda: (w := get(daemon, "kept")) and w.owner_path == str(folder / "renamed.yaml"),
        "it still belongs to the old file",
    )
    assert (kept := get(daemon, "kept")) is not None
    assert (kept.version, kept.enabled) == (1, True)


def test_a_restart_with_unchanged_files_makes_no_new_versions(daemon: Daemon, folder: Path) -> None:
    job = "jobs: {tool: {description: x, run: 'true'}}\n"
    user = "name: a-user\ndescription: x\nsteps: {only: {job: tool}}\n"
    # In order of name the workflow comes first.
    write(folder / "a.yaml", user)
    write(folder / "jobs.yaml", job)
    wait_until(lambda: get(daemon, "a-user"), "it was not applied")
    daemon.stop()
    daemon.start()
    wait_until(
        lambda: all(file.HasField("loaded_at") for file in files_of(daemon).values()) and len(files_of(daemon)) == 3,
        "the files were not loaded",
    )
    for name in ("kept", "a-user"):
        assert (found := get(daemon, name)) is not None
        assert (found.version, found.etag) == (1, "1-0")
    # With the job, what uses it.
    write(folder / "jobs.yaml", job.replace("true", "false"))
    wait_until(lambda: (w := get(daemon, "a-user")) and w.version == 2, "it has the old job")
    tool = daemon.jobs.GetJob(job_pb2.GetJobRequest(name="tool"), timeout=20).job
    assert (tool.version, tool.owner_path) == (2, str(folder / "jobs.yaml"))


def test_the_api_leaves_them_alone_unless_it_is_forced(daemon: Daemon, folder: Path) -> None:
    changed = workflow_pb2.Definition(source=definition("kept", title="by hand"))
    workflow = workflow_pb2.Workflow(name="kept", definition=changed)
    update = workflow_pb2.UpdateWorkflowRequest(workflow=workflow)
    restore = workflow_pb2.RestoreWorkflowVersionRequest(workflow="kept", version=1)
    delete = workflow_pb2.DeleteWorkflowRequest(name="kept")
    for call in (
        lambda: daemon.workflows.UpdateWorkflow(update, timeout=20),
        lambda: daemon.workflows.RestoreWorkflowVersion(restore, timeout=20),
        lambda: daemon.workflows.DeleteWorkflow(delete, timeout=20),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert isinstance(refused.value, grpc.Call)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert str(folder / "kept.yaml") in (refused.value.details() or "")
    pause = workflow_pb2.SetWorkflowEnabledRequest(name="kept", enabled=False)
    assert not daemon.workflows.SetWorkflowEnabled(pause, timeout=20).workflow.enabled
    update.force = True
    forced = daemon.workflows.UpdateWorkflow(update, timeout=20).workflow
    assert (forced.title, forced.owner_path) == ("by hand", str(folder / "kept.yaml"))
    answer = reload(daemon)
    assert [(change.name, change.outcome) for change in answer.changes] == [
        ("kept", system_pb2.DEFINITION_OUTCOME_UPDATED)
    ]
    assert (kept := get(daemon, "kept")) is not None
    # The file has its way again; that somebody disabled it stays.
    assert (kept.title, kept.enabled) == ("kept", False)
    # A restored version lasts as long: the file was not changed, but what is stored was.
    restore.version, restore.force = forced.version, True
    assert daemon.workflows.RestoreWorkflowVersion(restore, timeout=20).changed
    assert (restored := get(daemon, "kept")) is not None
    assert (restored.title, restored.owner_path) == ("by hand", str(folder / "kept.yaml"))
    daemon.stop()
    daemon.start()
    wait_until(lambda: titled(daemon, "kept", "kept"), "the file does not have its way")
    delete.force = True
    daemon.workflows.DeleteWorkflow(delete, timeout=20)
    assert [change.name for change in reload(daemon).changes] == ["kept"]
    again = reload(daemon)
    assert (list(again.changes), again.files, list(again.broken)) == ([], 1, [])


@pytest.mark.skipif(sys.platform != "linux", reason="needs names that are only bytes")
def test_names_that_are_no_text_are_told_and_in_nobodys_way(daemon: Daemon, folder: Path) -> None:
    inside = folder / os.fsdecode(b"k\xe9")
    inside.mkdir()
    write(inside / "k.yaml", definition("inside"))
    write(folder / os.fsdecode(b"bad\xff.yaml"), definition("bad"))
    (folder / "kept.yaml").unlink()
    write(folder / "good.yaml", definition("good"))
    wait_until(lambda: get(daemon, "good"), "the others are not followed")
    wait_until(lambda: not enabled(daemon, "kept"), "it is still enabled")
    answer = reload(daemon)
    assert [Path(file.path).name for file in answer.broken] == ["bad\\xff.yaml", "k\\xe9"]
    assert all("not UTF-8: rename it" in file.problems[0] for file in answer.broken)
    assert is_broken(daemon, "k\\xe9")
    assert conditions(daemon) == {"definitions"}
    assert (get(daemon, "inside"), get(daemon, "bad")) == (None, None)
    inside.rename(folder / "k")
    (folder / os.fsdecode(b"bad\xff.yaml")).rename(folder / "bad.yaml")
    wait_until(lambda: not conditions(daemon), "it is not well again")
    assert enabled(daemon, "inside")
    assert enabled(daemon, "bad")


def test_what_no_file_has_is_enabled_when_somebody_applies_it(daemon: Daemon, folder: Path) -> None:
    (folder / "kept.yaml").unlink()
    wait_until(lambda: not enabled(daemon, "kept"), "it is still enabled")
    changed = workflow_pb2.Definition(source=definition("kept"))
    workflow = workflow_pb2.Workflow(name="kept", definition=changed)
    update = workflow_pb2.UpdateWorkflowRequest(workflow=workflow)
    applied = daemon.workflows.UpdateWorkflow(update, timeout=20).workflow
    assert (applied.enabled, applied.owner_kind) == (True, workflow_pb2.OWNER_KIND_API)


def test_a_workflow_becomes_a_job_when_the_old_one_is_deleted(daemon: Daemon, folder: Path) -> None:
    write(folder / "kept.yaml", "jobs: {kept: {description: x, run: 'true'}}\n")
    wait_until(lambda: is_broken(daemon, "kept.yaml"), "it was taken")
    [problem] = files_of(daemon)["kept.yaml"].problems
    assert problem.endswith("delete it first: toban workflows delete kept --force")
    delete = workflow_pb2.DeleteWorkflowRequest(name="kept", force=True)
    daemon.workflows.DeleteWorkflow(delete, timeout=20)
    # A broken file is tried again now and then: that may be just now.
    assert {change.name for change in reload(daemon).changes} <= {"kept"}
    assert daemon.jobs.GetJob(job_pb2.GetJobRequest(name="kept"), timeout=20).job.version == 2
    assert not is_broken(daemon, "kept.yaml")


def test_jobs_of_a_file_are_due_and_belong_to_it(daemon: Daemon, folder: Path) -> None:
    file = folder / "jobs.yaml"

    def text(schedule: str, run: str) -> str:
        return f"jobs: {{tick: {{description: x, schedule: {schedule}, run: '{run}'}}}}\n"

    def tick() -> job_pb2.Job:
        return daemon.jobs.GetJob(job_pb2.GetJobRequest(name="tick"), timeout=20).job

    def ticks() -> Sequence[run_pb2.Run]:
        request = run_pb2.ListRunsRequest(workflow="tick")
        return daemon.runs.ListRuns(request, timeout=20).runs

    write(file, text(EVERY_SECOND, "true"))
    wait_until(ticks, "it never became due")
    assert ticks()[0].triggered_by == run_pb2.TRIGGER_SCHEDULE
    write(file, text(YEARLY, "true"))
    wait_until(lambda: tick().version == 2, "it was not applied")
    wait_until(lambda: all(run.HasField("finished_at") for run in ticks()), "it still runs")

    by_hand = workflow_pb2.Definition(source=text(YEARLY, "false"))
    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="tick", definition=by_hand))
    delete = job_pb2.DeleteJobRequest(name="tick")
    for call in (
        lambda: daemon.jobs.UpdateJob(update, timeout=20),
        lambda: daemon.jobs.DeleteJob(delete, timeout=20),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert isinstance(refused.value, grpc.Call)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert str(file) in (refused.value.details() or "")
    update.force = delete.force = True
    forced = daemon.jobs.UpdateJob(update, timeout=20).job
    assert (forced.version, forced.owner_path) == (3, str(file))
    # The file has its way again.
    assert [change.name for change in reload(daemon).changes] == ["tick"]
    assert "true" in tick().definition.source
    daemon.jobs.DeleteJob(delete, timeout=20)
    # Nothing of the file changed, but what it defines is not there.
    assert [change.name for change in reload(daemon).changes] == ["tick"]
    assert tick().owner_path == str(file)
    assert not reload(daemon).changes


def test_a_link_to_the_root_directory_is_told_and_not_walked(tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    (folder / "sub").mkdir(parents=True)
    (folder / "root").symlink_to("/")
    (folder / "sub" / "kept.yaml").write_text(definition("kept"))
    environment = {"TOBAN_TIMEZONE": "UTC", "TOBAN_DEFINITIONS": str(folder)}
    with running_daemon(tmp_path / "state", environment=environment) as daemon:
        wait_until(lambda: get(daemon, "kept"), "the file beside it was not loaded")
        wait_until(lambda: is_broken(daemon, "root"), "nobody was told")
        (folder / "new").mkdir()
        (folder / "new" / "added.yaml").write_text(definition("added"))
        wait_until(lambda: get(daemon, "added"), "a new directory was not noticed")


def test_places_that_appear_later_and_links_that_lead_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    single = tmp_path / "single.yaml"
    places = os.pathsep.join((str(folder), str(single)))
    environment = {
        "TOBAN_TIMEZONE": "UTC",
        "TOBAN_DEFINITIONS": places,
        "TOBAN_DEFINITIONS_REMOVED": "delete",
    }
    with running_daemon(tmp_path / "state", environment=environment) as daemon:
        wait_until(lambda: is_broken(daemon, "mounted"), "nobody misses the directory")
        single.write_text(definition("single"))
        wait_until(lambda: get(daemon, "single"), "the file was not loaded")
        # As Kubernetes does it: a link to a directory that is exchanged as a whole.
        folder.mkdir()
        for generation in ("1", "2"):
            (folder / f"..{generation}").mkdir()
            text = definition("linked", title=generation)
            (folder / f"..{generation}" / "linked.yaml").write_text(text)
        (folder / "..data").symlink_to("..1")
        (folder / "linked.yaml").symlink_to("..data/linked.yaml")
        (folder / "loop").symlink_to(".")
        wait_until(lambda: titled(daemon, "linked", "1"), "the link was not followed")
        (folder / "..new").symlink_to("..2")
        (folder / "..new").rename(folder / "..data")
        wait_until(lambda: titled(daemon, "linked", "2"), "the exchange was not noticed")
        single.unlink()
        wait_until(lambda: get(daemon, "single") is None, "it was not deleted")
        # A directory that is gone may come back: until then nothing is lost.
        folder.rename(tmp_path / "elsewhere")
        wait_until(lambda: is_broken(daemon, "mounted"), "nobody misses the directory")
        assert titled(daemon, "linked", "2")
        (tmp_path / "elsewhere").rename(folder)
        wait_until(lambda: not is_broken(daemon, "mounted"), "it is still missed")
        assert (linked := get(daemon, "linked")) is not None
        assert linked.enabled
