"""The daemon's own log: for people on a console, for programs in a file."""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from toband import daemon_log
from toband.systemd_journal import JournalSocket, is_journal

# The daemon keeps its log file and the socket of the journal open for life.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    # What other tests have left would be logged here when it is collected, such as a task whose error nobody took.
    gc.collect()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


def lines_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_json_lines_on_the_console_and_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_text('{"event": "of yesterday"}\n')
    daemon_log.set_up("info", "json", str(file))
    log = structlog.get_logger()
    log.debug("left out")
    log.info("served", action="serving", name="日本", lines="a\nb")
    (console,) = capsys.readouterr().err.splitlines()
    kept = lines_of(file)
    assert [line["event"] for line in kept] == ["of yesterday", "served"]
    assert json.loads(console) == kept[1]
    assert kept[1]["action"] == "serving"
    assert kept[1]["name"] == "日本"
    assert kept[1]["level"] == "info"
    assert "日本" in file.read_text(encoding="utf-8")


def test_words_on_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon_log.set_up("info", "console", str(tmp_path / "log"))
    structlog.get_logger().warning("slow", action="slow", took=3)
    shown = capsys.readouterr().err
    assert "slow" in shown
    assert "took=3" in shown
    assert "\x1b" not in shown, "no colours where nobody sees them"
    assert lines_of(tmp_path / "log")[0]["took"] == 3


def test_auto_is_json_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    daemon_log.set_up("info", "auto", "")
    structlog.get_logger().info("hello")
    assert json.loads(capsys.readouterr().err)["event"] == "hello"


def test_exceptions_are_one_line(tmp_path: Path) -> None:
    daemon_log.set_up("error", "json", str(tmp_path / "log"))
    try:
        raise ValueError("told\nin two lines")
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
    (line,) = lines_of(tmp_path / "log")
    assert "ValueError: told" in str(line["exception"])


def test_what_libraries_log_comes_in_our_form(tmp_path: Path) -> None:
    daemon_log.set_up("info", "json", str(tmp_path / "log"))
    library = logging.getLogger("some.library")
    library.info("chatter")
    library.warning("worth %s", "knowing")
    try:
        raise ValueError("inside")
    except ValueError:
        library.exception("broken")
    warning, broken = lines_of(tmp_path / "log")
    assert (warning["event"], warning["level"], warning["logger"]) == (
        "worth knowing",
        "warning",
        "some.library",
    )
    assert broken["level"] == "error"
    assert "ValueError: inside" in str(broken["exception"])


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        daemon_log.set_up("info", "json", f"{tmp_path}/none/log")


def test_a_full_disk_is_no_error_of_who_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stderr", full)
        daemon_log.set_up("info", "json", "/dev/full")
        for number in range(1000):
            structlog.get_logger().info("a line that goes nowhere", number=number)
        monkeypatch.undo()
        # What it could not write would be tried again when it is closed.
        with pytest.raises(OSError, match="No space left"):
            full.close()


class Journal:
    """What the journal would get at a socket of a test."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(10)

    def entry(self) -> dict[str, str]:
        datagram, files, _, _ = socket.recv_fds(self.socket, 1 << 20, 1)
        for each in files:
            with open(each, "rb") as file:
                file.seek(0)
                datagram = file.read()
        return fields_of(datagram)


def fields_of(entry: bytes) -> dict[str, str]:
    found = {}
    while entry:
        line, _, entry = entry.partition(b"\n")
        name, separator, value = line.partition(b"=")
        if not separator:
            size, entry = int.from_bytes(entry[:8], "little"), entry[8:]
            value, entry = entry[:size], entry[size + 1 :]
        found[name.decode()] = value.decode()
    return found


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    # The name of a socket is short, and that of a test may be long.
    with tempfile.TemporaryDirectory(prefix="tb-") as directory:
        found = Journal(f"{directory}/socket")
        monkeypatch.setattr(daemon_log, "JournalSocket", lambda: JournalSocket(found.path))
        monkeypatch.setattr(daemon_log, "is_journal", lambda _: True)
        with open(f"{directory}/stderr", "w", encoding="utf-8") as stderr:
            monkeypatch.setattr(sys, "stderr", stderr)
            yield found
        assert Path(f"{directory}/stderr").read_text() == ""
        found.socket.close()


def test_the_journal_gets_fields_and_a_message_for_people(journal: Journal) -> None:
    daemon_log.set_up("info", "auto", "")
    daemon_log.name_runs(lambda run: {"0198": "nightly#12"}.get(run, ""))
    structlog.get_logger().warning("cannot collect", action="collect_failed", run="0198", step="dump", tries=3)
    assert journal.entry() == {
        "MESSAGE": "cannot collect step=dump tries=3 run_name=nightly#12 workflow=nightly",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "toband",
        "TOBAN_ACTION": "collect_failed",
        "TOBAN_RUN_ID": "0198",
        "TOBAN_RUN": "nightly#12",
        "TOBAN_WORKFLOW": "nightly",
        "TOBAN_STEP": "dump",
        "TOBAN_TRIES": "3",
    }
    daemon_log.name_runs(lambda _: "")
    structlog.get_logger().error("unknown run", run="0199")
    assert "TOBAN_RUN" not in journal.entry()


def test_a_traceback_and_a_large_value_reach_the_journal_whole(journal: Journal) -> None:
    daemon_log.set_up("info", "auto", "")
    try:
        raise ValueError("no such thing")
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error, detail="x" * 230_000)
    entry = journal.entry()
    assert entry["MESSAGE"].endswith("ValueError: no such thing")
    assert "\n" in entry["MESSAGE"]
    assert len(entry["TOBAN_DETAIL"]) == 230_000


def test_a_form_that_was_chosen_stays_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon_log, "is_journal", lambda _: True)
    daemon_log.set_up("info", "json", "")
    structlog.get_logger().info("served")
    assert json.loads(capsys.readouterr().err)["event"] == "served"


def test_a_journal_that_is_away_leaves_standard_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(daemon_log, "JournalSocket", lambda: JournalSocket("/nowhere/socket"))
    monkeypatch.setattr(daemon_log, "is_journal", lambda _: True)
    with open(tmp_path / "stderr", "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        daemon_log.set_up("info", "auto", "")
        structlog.get_logger().info("served")
    assert json.loads((tmp_path / "stderr").read_text())["event"] == "served"


def test_the_stream_of_the_journal_is_known_by_its_inode(tmp_path: Path) -> None:
    with open(tmp_path / "stream", "w", encoding="utf-8") as file:
        facts = os.fstat(file.fileno())
        assert is_journal(file.fileno(), {"JOURNAL_STREAM": f"{facts.st_dev}:{facts.st_ino}"})
        assert not is_journal(file.fileno(), {"JOURNAL_STREAM": f"{facts.st_dev}:{facts.st_ino + 1}"})
        assert not is_journal(file.fileno(), {})


def test_nothing_is_loaded_that_only_the_command_line_needs() -> None:
    program = "import sys; from toband import daemon_log; import rich; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "rich" in loaded, "others may load it"
    assert {"rich.traceback", "rich.console", "pygments"} & {*loaded} == set()


def test_a_file_that_was_moved_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toband.log_file.LOOK_EVERY", 0.0)
    file = tmp_path / "log"
    daemon_log.set_up("info", "json", str(file))
    log = structlog.get_logger()
    log.info("first")
    file.rename(tmp_path / "log.old")
    log.info("second")
    file.unlink()
    log.info("third")
    assert [line["event"] for line in lines_of(tmp_path / "log.old")] == ["first"]
    assert [line["event"] for line in lines_of(file)] == ["third"]


def test_a_file_is_rotated_by_size(tmp_path: Path) -> None:
    file = tmp_path / "log"
    daemon_log.set_up("info", "json", str(file), file_size=1000)
    for number in range(60):
        structlog.get_logger().info("x" * 100, number=number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2", "log.3"]
    kept = [line["number"] for name in ("log.3", "log.2", "log.1", "log") for line in lines_of(tmp_path / name)]
    assert kept == list(range(60 - len(kept), 60)), "no line between the files is lost"
    assert all(path.stat().st_size < 1300 for path in tmp_path.iterdir())
