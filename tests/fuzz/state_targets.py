"""Readers of the daemon's own files in the state directory, and of its configuration."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fuzz.mutation import mutated_json, mutated_lines, words_of
from fuzz.target import Check, Target, expect_type
from toban.sdk import address
from toban.sdk.errors import Unreachable
from toband.config import Config, ConfigError, load
from toband.config.declaration import ConfigProblem
from toband.file_watch.definition_memory import RememberedFiles
from toband.ports import KnownFile
from toband.state_dir import StateDir
from toband.supervise.artifacts.workspace_inputs import Ledger

BOOT = "7f2c9a52-1111-2222-3333-444455556666"
NOW = datetime(2026, 11, 18, 2, 0, tzinfo=UTC)
READER = "0.1.0 UTC 00"


@contextlib.contextmanager
def _boot(work: Path) -> Iterator[Check]:
    state = StateDir(str(work))
    path = work / "boot.json"

    def check(data: bytes) -> str:
        """The boot is known from before, or is noticed now."""
        path.write_bytes(data)
        noticed = state.boot(BOOT, NOW)
        expect_type(noticed.at, datetime, "at")
        expect_type(noticed.done, bool, "done")
        assert json.loads(path.read_bytes())["boot_id"] == BOOT
        return f"done={noticed.done} known={noticed.at != NOW}"

    yield check


@contextlib.contextmanager
def _announcement(work: Path) -> Iterator[Check]:
    path = work / "toband.json"

    def check(data: bytes) -> str:
        """A client finds the daemon's address, or says that there is none."""
        path.write_bytes(data)
        try:
            found, _ = address.find_local({"TOBAN_STATE_DIR": str(work)})
        except Unreachable as error:
            return str(error)
        expect_type(found.text, str, "address")
        return found.text[:8]

    yield check


@contextlib.contextmanager
def _known_files(work: Path) -> Iterator[Check]:
    memory_file = work / "definition-files.jsonl"
    mine = {"/a.yaml": KnownFile(digest="00", stored={"a": "1"}, warnings=())}

    def check(data: bytes) -> str:
        """Each line is believed or is not; the next note is read back as it was written."""
        memory_file.write_bytes(data)
        memory = RememberedFiles(str(memory_file), READER)
        found = asyncio.run(memory.recall())
        # Not only Unicode: the name of a file may be any bytes.
        for path, known in found.items():
            texts = (path, known.digest, *known.stored, *known.stored.values(), *known.warnings)
            assert all(type(text) is str for text in texts), known
        asyncio.run(memory.remember({**found, **mine}, ["/a.yaml"]))
        again = asyncio.run(RememberedFiles(str(memory_file), READER).recall())
        assert again == {**found, **mine}, "a note is not read back"
        return f"{min(len(found), 5)} files"

    yield check


@contextlib.contextmanager
def _placed(work: Path) -> Iterator[Check]:
    ledger = Ledger(str(work / "placed"))
    # Notes of inputs that are gone are removed.
    ledger.note(str(work), "identity")
    (path,) = (work / "placed").iterdir()

    def check(data: bytes) -> str:
        """An entry that says something else is one that is not there."""
        path.write_bytes(data)
        return str(ledger.knows(str(work), "identity"))

    yield check


@contextlib.contextmanager
def _config(work: Path) -> Iterator[Check]:
    path = work / "toband.toml"

    def check(data: bytes) -> str:
        """A configuration, or every problem of it in a line."""
        path.write_bytes(data)
        try:
            found = load(str(path), {"HOME": str(work)}, {"state_dir": str(work)})
        except ConfigError as error:
            for problem in error.problems:
                expect_type(problem, ConfigProblem, "problem")
                assert problem.line <= data.count(b"\n") + 1
            return str(error.problems[0]).replace(str(work), "")
        # `values` has those of all keys, each as its own field has it.
        expect_type(dataclasses.replace(found, values={}), Config, "config")
        for each in found.shown():
            assert each.key, each.origin
            json.dumps(each.value, ensure_ascii=False).encode()
        return "ok"

    yield check


CONFIG = b"""\
listen = ["unix:///run/toban.sock", "127.0.0.1:0"]
database = "postgresql://toban:secret@localhost:5432/toban?sslmode=require"
timezone = "Asia/Tokyo"
blackout = ["0 2 * * sun/2h", "30 12 1 * */15m"]
definitions = ["workflows", "/etc/toban/jobs"]
definitions_removed = "delete"
stop_policy = "wait"
stop_deadline = "30s"
default_run_timeout = "none"
max_attempts_running = 64
event_concurrency = 4
disk_reserve = "1GiB"
cgroup = "off"

[limits]
attempt_log = "100MiB"
total_logs = "none"

[retention]
age = "30d"
runs = 100
bytes = "1GiB"
compress_after = "10m"

[log]
level = "debug"
format = "json"
file = "/var/log/toband.log"
"""

TARGETS = (
    Target(
        name="boot",
        reads="boot.json",
        samples=(
            json.dumps({"boot_id": BOOT, "at": "2026-11-17T00:00:00+00:00", "done": True}).encode(),
            json.dumps({"boot_id": "x", "at": "2026-11-17T00:00:00+00:00", "done": False}).encode(),
        ),
        mutate=mutated_json,
        opened=_boot,
    ),
    Target(
        name="announcement",
        reads="toband.json, by clients",
        samples=(
            json.dumps({"pid": 1, "listen": ["unix:///tmp/a.sock"], "version": "0.1.0"}).encode(),
            json.dumps({"pid": 1, "listen": ["127.0.0.1:7777"], "version": "0.1.0"}).encode(),
        ),
        mutate=mutated_json,
        opened=_announcement,
    ),
    Target(
        name="definition-files",
        reads="definition-files.jsonl",
        samples=(
            b"\n".join(
                json.dumps(line).encode()
                for line in (
                    {"reader": READER},
                    {"path": "/a.yaml", "digest": "aa", "stored": {"a": "1", "b": "2"}},
                    {"path": "/b.yaml", "digest": "bb", "stored": {}, "warnings": ["w"]},
                    {"path": "/a.yaml"},
                )
            )
            + b"\n",
        ),
        mutate=mutated_lines,
        opened=_known_files,
    ),
    Target(
        name="placed",
        reads="the ledger of inputs that were laid out elsewhere",
        samples=(json.dumps({"path": "/somewhere", "identity": "identity"}).encode(),),
        mutate=mutated_json,
        opened=_placed,
    ),
    Target(
        name="config",
        reads="the configuration file",
        samples=(CONFIG,),
        mutate=words_of(
            "=",
            "[",
            "]",
            "[[",
            "]]",
            "{",
            "}",
            '"',
            "'''",
            "\n",
            ".",
            "#",
            "true",
            "nan",
            "-inf",
            "0x",
            "1e400",
            "2026-11-18T00:00:00Z",
            "9" * 4400,
            "none",
            "auto",
            "unix://",
            "127.0.0.1:",
            "[::1",
            "sqlite://",
            "postgresql://[",
            "~root",
            "~",
            "\\u0000",
            "\\uD800",
            "Etc/GMT+25",
            "1w",
            "999999999999d",
            "* * * * *",
        ),
        opened=_config,
    ),
)
