"""Which files are read and stored together."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from toban.definition import parse
from toband.engine.definitions.file_claims import BYTES_AT_ONCE, READ_AT_ONCE, FirstClaims, portions
from toband.engine.definitions.file_loader import FileContent, ReadFile, parse_quick
from toband.ports import Mark, StoredWorkflow

PLAIN = "name: {0}\ndescription: x\nsteps: {{only: {{run: 'true'}}}}\n"
PARENT = "name: {0}\ndescription: x\nsteps: {{only: {{job_type: workflow, target: other}}}}\n"
USER = "name: {0}\ndescription: x\nsteps: {{only: {{job: elsewhere}}}}\n"
JOB = "jobs: {{{0}: {{description: x, run: 'true'}}}}\n"


def read(name: str, text: str) -> ReadFile:
    (file,), _ = parse_quick([FileContent(path=name, mark=None, data=text.format(name).encode())])
    assert file.problems == ()
    return file


def owned(owner: str) -> StoredWorkflow:
    at = datetime(2026, 2, 1, tzinfo=UTC)
    return StoredWorkflow(
        name="n",
        title="",
        description="",
        labels={},
        enabled=True,
        version=1,
        owner=owner,
        created_at=at,
        updated_at=at,
        etag="",
    )


def mark(size: int) -> Mark:
    return Mark(device=1, inode=1, size=size, modified_ns=1, changed_ns=1)


@pytest.mark.parametrize(("text", "plain"), [(PLAIN, True), (PARENT, False), (USER, False), (JOB, False)])
def test_what_stands_for_itself(text: str, plain: bool) -> None:
    assert read("a", text).plain is plain
    assert read("a", PLAIN + "---\n" + text.replace("{0}", "b")).plain is plain


def test_a_name_is_free_until_somebody_has_it() -> None:
    claims = FirstClaims({"mine": owned("/a"), "theirs": owned("/b")})
    assert claims.take("/a", ["mine", "new"])
    assert claims.take("/a", ["new"])
    assert not claims.take("/c", ["other", "new"])
    assert not claims.take("/d", ["other"])
    assert not claims.take("/a", ["theirs"])
    assert claims.take("/e", [])


def test_portions_are_bounded_by_number_and_by_size() -> None:
    many = {f"{number:03}": mark(10) for number in range(READ_AT_ONCE + 2)}
    assert [len(paths) for paths in portions(many)] == [READ_AT_ONCE, 2]
    large = {"a": mark(1), "b": mark(BYTES_AT_ONCE), "c": mark(2 * BYTES_AT_ONCE), "d": mark(1)}
    assert list(portions(large)) == [["a"], ["b"], ["c"], ["d"]]
    assert list(portions({})) == []


def test_a_known_content_is_not_understood_again() -> None:
    data = PLAIN.format("a").encode()
    (file,), _ = parse_quick([FileContent(path="a", mark=None, data=data)])
    (again,), _ = parse_quick([FileContent(path="a", mark=None, data=data, cached=file.digest)])
    assert (file.cached, again.cached, again.digest) == (False, True, file.digest)
    assert again.documents == ()


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_what_needs_no_jobs_is_the_same_read_by_itself(file: Path) -> None:
    """So it may be stored as it was read in its file."""
    for document in parse(file.read_bytes(), file.name).documents:
        if not document.uses:
            (alone,) = parse(document.source, "alone", {}).documents
            assert document.workflow is not None
            assert alone.workflow == document.workflow
