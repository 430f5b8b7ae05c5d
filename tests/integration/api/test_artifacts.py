"""RunService: artifacts of the steps of a run."""

from __future__ import annotations

import io
import json
import os
import tarfile
from typing import Any

import grpc
import pytest

from helpers.daemon import Daemon, run_state, steps_of
from helpers.refusal import refused
from toban.v1 import run_pb2 as pb

STEPS = {
    "make": {
        "run": "printf hello > one.txt; mkdir -p site/sub; printf a > site/a; printf bb > site/sub/b",
        "outputs": [
            {"name": "text", "path": "one.txt", "type": "text"},
            {"name": "site", "path": "site"},
        ],
    },
    "each": {
        "run": "printf {{ item }} > out.bin",
        "for_each": ["x", "yy"],
        # They write the same file.
        "max_parallel": 1,
        "outputs": [{"name": "out", "path": "out.bin"}],
    },
}


@pytest.fixture(scope="module")
def run(daemon: Daemon) -> pb.Run:
    definition = {"name": "leaves", "description": "for a test", "steps": STEPS}
    daemon.apply(json.dumps(definition))
    made = daemon.run("leaves")
    assert run_state(made) == "SUCCEEDED", made
    return made


def listed(daemon: Daemon, run_id: str, **how: Any) -> list[pb.StepArtifact]:
    found: list[pb.StepArtifact] = []
    token = ""
    while True:
        asked = pb.ListArtifactsRequest(run_id=run_id, page_token=token, **how)
        page = daemon.runs.ListArtifacts(asked, timeout=20)
        found += page.artifacts
        token = page.next_page_token
        if not token:
            return found


def download(daemon: Daemon, run_id: str, step: str, name: str, path: str = "") -> tuple[pb.ArtifactHeader, bytes]:
    asked = pb.DownloadArtifactRequest(run_id=run_id, step=step, name=name, path=path)
    first, *rest = daemon.runs.DownloadArtifact(asked, timeout=20)
    assert first.HasField("header")
    assert not any(message.HasField("header") for message in rest)
    return first.header, b"".join(message.data for message in rest)


def test_artifacts_are_listed_with_their_files(daemon: Daemon, run: pb.Run) -> None:
    found = listed(daemon, run.id)
    names = [(each.step, each.artifact.name) for each in found]
    assert sorted(names[:2]) == [("make", "site"), ("make", "text")]
    assert names[2:] == [("each[0]", "out"), ("each[1]", "out")]
    assert listed(daemon, run.id, page_size=1) == found
    by_name = {each.artifact.name: each for each in found[:2]}
    text, site = by_name["text"], by_name["site"]
    assert (text.artifact.type, text.artifact.files, text.artifact.bytes) == ("text", 1, 5)
    assert (site.artifact.files, site.artifact.bytes) == (2, 3)
    assert sorted(file.bytes for file in site.files) == [1, 2]
    assert list(steps_of(run)["make"].artifacts) == [each.artifact for each in found[:2]]
    assert [each.step for each in listed(daemon, run.id, step="each")] == ["each[0]", "each[1]"]
    assert [each.step for each in listed(daemon, run.id, step="each[1]")] == ["each[1]"]


def test_a_file_is_downloaded_as_it_is(daemon: Daemon, run: pb.Run) -> None:
    header, data = download(daemon, run.id, "make", "text")
    assert (header.file_name, header.bytes, header.tar, data) == ("one.txt", 5, False, b"hello")
    header, data = download(daemon, run.id, "each[1]", "out")
    assert (header.file_name, data) == ("out.bin", b"yy")


def test_a_directory_is_downloaded_as_an_archive_or_file_by_file(daemon: Daemon, run: pb.Run) -> None:
    header, data = download(daemon, run.id, "make", "site")
    assert (header.file_name, header.tar) == ("site.tar", True)
    assert not header.HasField("bytes")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        contents = {}
        for member in archive.getmembers():
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                contents[member.name.rpartition("/")[2]] = file.read()
    assert contents == {"a": b"a", "b": b"bb"}
    (site,) = (each for each in listed(daemon, run.id) if each.artifact.name == "site")
    (path,) = (file.path for file in site.files if file.path.endswith("b"))
    header, data = download(daemon, run.id, "make", "site", path)
    assert (header.file_name, header.bytes, data) == ("b", 2, b"bb")


def test_what_is_not_there_is_not_found(daemon: Daemon, run: pb.Run) -> None:
    for step, name, path in (
        ("make", "nothing", ""),
        ("make", "text", "other.txt"),
        ("make", "site", "../text/one.txt"),
        ("each", "out", ""),
    ):
        refusal = refused(lambda: download(daemon, run.id, step, name, path))  # noqa: B023
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.NOT_FOUND,
            "ARTIFACT_NOT_FOUND",
        )
    assert refused(lambda: download(daemon, run.id, "none", "x")).reason == "STEP_NOT_FOUND"
    assert refused(lambda: download(daemon, "none", "make", "text")).reason == "RUN_NOT_FOUND"
    assert refused(lambda: listed(daemon, "none")).reason == "RUN_NOT_FOUND"
    assert refused(lambda: listed(daemon, run.id, step="none")).reason == "STEP_NOT_FOUND"
    asked = pb.ListArtifactsRequest(run_id=run.id, page_token="bm8")
    wrong = refused(lambda: daemon.runs.ListArtifacts(asked, timeout=20))
    assert wrong.violations[0][0] == "page_token"


NO_TEXT = b"n\xff\xc3o"
SHOWN = r"n\xff\xc3o"


def test_names_that_are_not_utf_8_are_kept_handed_on_and_shown_escaped(daemon: Daemon) -> None:
    """Nothing is lost: the bytes of a name are the same for the next step, in the archive and on disk."""
    name = r"$(printf 'n\377\303o')"
    make = f'mkdir -p "d/{name}"; printf one > "d/{name}/{name}"; printf two > d/plain'
    given = {"from": "make", "artifact": "d", "as": "given"}
    definition = {
        "name": "bytes-in-names",
        "description": "x",
        "steps": {
            "make": {
                "run": make,
                "outputs": [{"name": "d", "path": "d"}, {"name": "some", "path": "d/*/*"}],
            },
            "read": {
                "run": f'cat "given/{name}/{name}"; find given -type f | od -An -c',
                "depends_on": ["make"],
                "inputs": [given],
                "outputs": [{"name": "again", "path": "given"}],
            },
        },
    }
    daemon.apply(json.dumps(definition))
    made = daemon.run("bytes-in-names")
    assert run_state(made) == "SUCCEEDED", made.error_message
    assert daemon.log_of(made.id, "read")[pb.LOG_STREAM_STDOUT].startswith(b"one")
    files = {each.artifact.name: [f.path for f in each.files] for each in listed(daemon, made.id)}
    one = f"{SHOWN}/{SHOWN}"
    assert files == {
        "d": [f"d/{one}", "d/plain"],
        "some": [f"d/{one}"],
        "again": [f"given/{one}", "given/plain"],
    }
    header, data = download(daemon, made.id, "make", "d", f"d/{one}")
    assert (header.file_name, data) == (SHOWN, b"one")
    header, data = download(daemon, made.id, "make", "some")
    assert (header.file_name, data) == (SHOWN, b"one")
    header, data = download(daemon, made.id, "read", "again")
    assert header.tar
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        names = [os.fsencode(member.name) for member in archive if member.isfile()]
    assert names == [b"given/%s/%s" % (NO_TEXT, NO_TEXT), b"given/plain"]
    context = daemon.state_dir / "runs" / made.id / "context"
    assert json.loads((context / "make" / "_meta.json").read_text())["artifacts"][0]["name"] == "d"


@pytest.mark.parametrize("output", [{"path": "d"}, {"path": "d/*"}, {"path": "d", "optional": True}])
def test_a_refusal_that_names_such_a_file_is_told(daemon: Daemon, output: dict[str, Any]) -> None:
    """In the run, in its notes and in what waits for it."""
    make = r"""mkdir d; mkfifo "d/$(printf 'n\377\303o')" """
    step = {"run": make, "outputs": [{"name": "d", **output}]}
    name = f"bad-name-{len(str(output))}"
    daemon.apply(json.dumps({"name": name, "description": "x", "steps": {"make": step}}))
    made = daemon.run(name)
    assert run_state(made) == "FAILED"
    assert f'cannot keep output "d": d/{SHOWN} is a named pipe' in made.error_message
    meta = daemon.state_dir / "runs" / made.id / "context" / "make" / "_meta.json"
    assert SHOWN in json.loads(meta.read_text())["workerResult"]["observations"][0]["summary"]
