"""The installed product: the wheel, the thin client made of it, and the shipped files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import toban
import toband
from toband import config

ROOT = Path(__file__).parents[2]
DAEMON_ONLY = [
    "alembic",
    "apscheduler",
    "grpc_health",
    "grpc_reflection",
    "psutil",
    "sqlalchemy",
    "structlog",
]

pytestmark = pytest.mark.timeout(600)


def run(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TOBAN_", "PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        command,
        env=clean | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    built = run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", directory, ROOT])
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def thin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel without any extra."""
    directory = tmp_path_factory.mktemp("thin")
    venv.create(directory)
    # Compiling what is used a few times takes longer than installing it.
    options = ["--no-compile", "--disable-pip-version-check"]
    installed = run([sys.executable, "-m", "pip", "--python", directory, "install", *options, wheel])
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return directory / "bin"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_versions_agree(project: dict[str, Any]) -> None:
    assert toban.__version__ == toband.__version__ == project["version"]


def test_the_changelog_knows_this_version(project: dict[str, Any]) -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0] == project["version"]


def test_the_wheel_holds_what_is_needed_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for needed in (
        "toban/py.typed",
        "toban/service_files/systemd/toband.service",
        "toban/service_files/systemd/toband.service.d/hardening.conf",
        "toban/service_files/systemd/user/toband.service",
        "toban/service_files/systemd/toban.sysusers",
        "toban/service_files/systemd/toban.tmpfiles",
        "toban/service_files/toband.toml",
        "toban/step/step_context.py",
        "toban/step/runner.py",
        "toban/v1/run_pb2.pyi",
        "toban/v1/run_pb2_grpc.py",
        "toband/py.typed",
        "toband/store/sql/migrations/env.py",
    ):
        assert needed in names
    migrations = "toband/store/sql/migrations/versions/"
    shipped = {name for name in names if name.startswith(migrations)}
    written = {migrations + path.name for path in (ROOT / "daemon" / migrations).glob("*.py")}
    assert written
    assert shipped >= written
    manuals = {name.rpartition("/")[2] for name in names if ".data/data/share/man/man1/" in name}
    assert manuals >= {"toban.1", "toban-runs.1"}
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name and ".data/" not in name} == {
        "toban",
        "toband",
    }
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_thin_client_brings_nothing_of_the_daemon(thin: Path) -> None:
    program = (
        "import importlib.util, json, sys; print(json.dumps([n for n in sys.argv[1:] if importlib.util.find_spec(n)]))"
    )
    found = run([thin / "python", "-c", program, "grpc", *DAEMON_ONLY])
    assert json.loads(found.stdout) == ["grpc"]


def test_the_thin_client_is_consistent(thin: Path) -> None:
    checked = run([sys.executable, "-m", "pip", "--python", thin.parent, "check"])
    assert checked.returncode == 0, checked.stdout


def test_the_thin_client_helps(thin: Path) -> None:
    shown = run([thin / "toban", "--help"])
    assert shown.returncode == 0, shown.stderr
    assert "apply" in shown.stdout


def test_the_thin_client_validates_the_examples(thin: Path) -> None:
    checked = run([thin / "toban", "validate", ROOT / "examples"])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    lines = checked.stdout.splitlines()
    assert lines
    about_ids = [line for line in lines if "the id of the step" in line]
    assert about_ids
    assert [line for line in lines if not line.endswith("is valid") and line not in about_ids] == []


def test_the_thin_client_cannot_be_the_daemon_and_says_so(thin: Path, tmp_path: Path) -> None:
    started = run([thin / "toband", "--state-dir", tmp_path])
    assert started.returncode not in (0, 130)
    assert "Traceback" not in started.stderr
    assert "toban[daemon]" in started.stderr


def test_the_example_configuration_holds_and_names_every_key() -> None:
    path = ROOT / "service-files" / "toband.toml"
    # Without the # before keys and tables that show their default, or an example, it is a complete configuration.
    complete = re.sub(r"^# (?=[a-z_]+ = |\[)", "", path.read_text("utf-8"), flags=re.MULTILINE)
    tables = tomllib.loads(complete)
    named = {
        f"{key}.{inner}" if inner else key
        for key, value in tables.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    shown = {each.key for each in config.load(str(path), {}, {}).shown()}
    assert named == shown
