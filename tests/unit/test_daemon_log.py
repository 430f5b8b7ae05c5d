"""The daemon's own log: for people on a console, for programs in a file."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from toband import daemon_log

# The daemon keeps its log file open for life.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


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
