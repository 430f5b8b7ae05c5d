"""Clients in other languages: they can be built from proto/, they work, and their documentation is true."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from toban.v1 import dead_letter_pb2, event_pb2, job_pb2, run_pb2, schedule_pb2, system_pb2, workflow_pb2

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "examples/integrations"
FILES = (dead_letter_pb2, event_pb2, job_pb2, run_pb2, schedule_pb2, system_pb2, workflow_pb2)
SOURCES = {
    "go": "go/main.go",
    "typescript": "typescript/src/client.ts",
    "java": "java/src/main/java/greeting/Client.java",
}
# Read at once: tests change the environment.
WANTED = os.environ.get("TOBAN_TEST_INTEGRATIONS", "1") != "0"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not WANTED, reason="TOBAN_TEST_INTEGRATIONS is 0")
@pytest.mark.parametrize("language", SOURCES)
def test_the_client_works(language: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts/test-integrations", language],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        pytest.fail(done.stdout, pytrace=False)
    if skipped := re.search(r"SKIPPED: (.*)", done.stdout):
        pytest.skip(skipped[1])
    assert f"{language}: passed" in done.stdout


@pytest.mark.parametrize("language", SOURCES)
def test_the_documented_lines_are_in_the_client(language: str) -> None:
    text = (ROOT / "docs/integrations.md").read_text("utf-8")
    (shown,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    source = (CLIENTS / SOURCES[language]).read_text("utf-8")
    lines = {line.strip() for line in source.splitlines()}
    assert shown.strip()
    assert [line for line in shown.splitlines() if line not in lines] == []


def test_lock_files_name_no_host() -> None:
    """Each machine gets the libraries from where it is configured to."""
    text = (CLIENTS / "typescript/package-lock.json").read_text("utf-8")
    assert '"integrity"' in text
    assert re.findall(r"https?://[^\"]*\.tgz", text) == []


def messages(found: Descriptor) -> Iterator[Descriptor]:
    yield found
    for nested in found.nested_types:
        yield from messages(nested)


def accessors(field: FieldDescriptor) -> list[str]:
    """The names of a field's accessors in Java, in the form of names of fields."""
    suffixes = [""]
    if field.is_repeated:
        suffixes += ["_list", "_count"]
    if field.type == FieldDescriptor.TYPE_STRING:
        suffixes += ["_bytes"]
    return [field.name + suffix for suffix in suffixes]


def test_no_two_fields_have_the_same_accessor_in_java() -> None:
    everything = [
        each for file in FILES for top in file.DESCRIPTOR.message_types_by_name.values() for each in messages(top)
    ]
    assert "toban.v1.Run" in {message.full_name for message in everything}
    for message in everything:
        names = [name for field in message.fields for name in accessors(field)]
        assert sorted(names) == sorted(set(names)), message.full_name
