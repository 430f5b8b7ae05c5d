"""`toban dev` with a stand-in for the daemon: a program that announces itself and waits for the end."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from doubles.daemon.fake_daemon import DEADLINE

from .conftest import Cli, Program

if sys.platform == "win32":
    pytest.skip("its daemon stands in for one on a unix socket", allow_module_level=True)

STAND_IN = """
import json, os, signal, sys, threading
directory = sys.argv[sys.argv.index("--state-dir") + 1]
os.makedirs(directory, exist_ok=True)
print(json.dumps({key: value for key, value in os.environ.items() if key.startswith("TOBAN_")}), file=sys.stderr)
if os.path.exists(os.path.join(directory, "refuse")):
    sys.exit("toband: another daemon has it")
stop = threading.Event()
def told(signum, frame):
    with open(os.path.join(os.environ["HOME"], "stopped"), "a") as file:
        file.write(signal.Signals(signum).name + "\\n")
    stop.set()
for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, told)
with open(os.path.join(directory, "toband.json.new"), "w") as file:
    json.dump({"pid": os.getpid(), "listen": ["unix://" + directory + "/toban.sock"]}, file)
os.replace(os.path.join(directory, "toband.json.new"), os.path.join(directory, "toband.json"))
while not stop.wait(0.05):
    if os.path.exists(os.path.join(directory, "die")):
        sys.exit(7)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """The environment in which `python -m toband` is the stand-in."""
    package = tmp_path / "path" / "toband"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return {
        "PYTHONPATH": str(tmp_path / "path"),
        "HOME": str(tmp_path),
        "TMPDIR": str(temporary),
        "TOBAN_DATABASE": "postgresql://production",
        "TOBAN_LOG_LEVEL": "debug",
    }


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_it_is_stopped(
    program: Program, stand_in: dict[str, str], tmp_path: Path, signum: signal.Signals
) -> None:
    toban = program("dev", env=stand_in)
    assert toban.stdout is not None
    line = toban.stdout.readline().decode()
    assert line.startswith("export TOBAN_SERVER=unix://")
    (directory,) = (tmp_path / "tmp").iterdir()
    assert str(directory) in line
    toban.send_signal(signum)
    output, errors = toban.communicate(timeout=DEADLINE)
    assert (toban.returncode, output) == (0, b"")
    told = errors.decode()
    assert "Ctrl-C stops it" in told
    assert told.endswith("toban: the daemon has stopped\n")
    assert "Traceback" not in told
    # Told once, and in order; what belonged to it is gone.
    assert (tmp_path / "stopped").read_text() == "SIGTERM\n"
    assert list((tmp_path / "tmp").iterdir()) == []
    # Nothing of another daemon's settings reaches it.
    assert json.loads(told.splitlines()[0]) == {"TOBAN_LOG_LEVEL": "debug"}


def test_a_state_of_ones_own_is_kept(program: Program, stand_in: dict[str, str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    toban = program("dev", "--state-dir", str(state), env=stand_in)
    assert toban.stdout is not None
    assert toban.stdout.readline().decode() == f"export TOBAN_SERVER=unix://{state}/toban.sock\n"
    toban.send_signal(signal.SIGINT)
    toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 0
    assert (state / "toband.json").exists()


def test_a_daemon_that_does_not_start(program: Program, stand_in: dict[str, str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "refuse").touch()
    # Left by a daemon that was killed: not this one's.
    (state / "toband.json").write_text('{"pid": 1, "listen": ["unix:///old"]}')
    toban = program("dev", "--state-dir", str(state), env=stand_in)
    output, errors = toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 3
    assert output == b""
    assert "toband: another daemon has it" in errors.decode()
    assert "toban: cannot start a daemon: it exited with code 1" in errors.decode()


def test_a_daemon_that_ends_by_itself(program: Program, stand_in: dict[str, str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    toban = program("dev", "--state-dir", str(state), env=stand_in)
    assert toban.stdout is not None
    toban.stdout.readline()
    (state / "die").touch()
    _, errors = toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 3
    assert "the daemon exited unexpectedly with code 7" in errors.decode()


def test_without_the_daemons_libraries(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find(name: str, *rest: Any) -> Any:
        return None if name == "sqlalchemy" else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    result = bare("dev")
    assert result.code == 3
    assert result.err.splitlines() == [
        "toban: cannot start a daemon: sqlalchemy is not installed",
        "hint: pip install 'toban[daemon]'",
    ]


def test_a_long_temporary_directory_is_avoided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tempfile

    from toban.cli.commands.dev import _temporary

    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    directory = _temporary()
    os.rmdir(directory)
    assert len(directory) < 90
    assert list(deep.iterdir()) == []
