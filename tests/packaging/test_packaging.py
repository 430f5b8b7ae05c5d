"""The installed product: the wheel, the thin client made of it, and the shipped files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import toban
import toband
from helpers.daemon import Daemon
from helpers.gateway import running_gateway
from toband import config

ROOT = Path(__file__).parents[2]
DAEMON_ONLY = [
    "alembic",
    "apscheduler",
    "grpc_health",
    "grpc_reflection",
    "psutil",
    "sqlalchemy",
    "starlette",
    "structlog",
    "uvicorn",
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
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with the requirements of this one but not its Toban."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory)
    programs = directory / "bin"
    done = run([sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-deps", wheel])
    assert done.returncode == 0, done.stdout + done.stderr
    # Python does not follow the .pth files of that directory, such as the one that leads to the source tree.
    (site,) = directory.glob("lib/python*/site-packages")
    (site / "requirements.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return programs


@pytest.mark.skipif(not os.environ.get("TOBAN_TEST_WHEEL"), reason="TOBAN_TEST_WHEEL is not set: a working copy")
def test_the_tests_use_the_wheel_of_this_tree_and_not_the_tree() -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    assert [Path(str(each.__file__)).parents[1] for each in (toban, toband)] == [packages, packages]
    for name, top in (("toban", "client"), ("toband", "daemon")):
        here, there = packages / name, ROOT / top / name
        sources = [path.relative_to(there) for path in there.rglob("*.py")]
        assert len(sources) > 100
        assert [str(path) for path in sources if (here / path).read_bytes() != (there / path).read_bytes()] == []


def test_there_is_one_version(wheel: Path) -> None:
    assert toban.__version__ == wheel.name.split("-")[1]


def test_the_changelog_knows_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0] == toban.__version__


def test_the_wheel_holds_what_is_needed_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for needed in (
        "toban/gateway/static/index.html",
        "toban/gateway/static/licences.txt",
        "toban/py.typed",
        "toban/service_files/systemd/toband.service",
        "toban/service_files/systemd/toband.service.d/hardening.conf",
        "toban/service_files/systemd/user/toband.service",
        "toban/service_files/systemd/toban-web.service",
        "toban/service_files/systemd/user/toban-web.service",
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


def test_the_descriptions_for_the_package_index_are_valid(wheel: Path, tmp_path: Path) -> None:
    built = run([sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT])
    assert built.returncode == 0, built.stdout + built.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    checked = run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "scripts/lib/build_hook.py", "service-files/systemd/toband.service", "LICENSE"} <= names
    # The built console is there, and what built it is not.
    assert {"client/console/src/main.tsx", "client/toban/gateway/static/index.html"} <= names
    assert not any("node_modules" in name for name in names)


def test_the_installed_wheel_runs_without_the_source_tree(installed: Path, tmp_path: Path) -> None:
    place = run([installed / "python", "-c", "import toban, toband; print(toban.__file__, toband.__file__)"]).stdout
    assert [path.startswith(str(installed.parent)) for path in place.split()] == [True, True]
    daemon = Daemon(tmp_path / "s")
    daemon.program = (str(installed / "toband"),)
    environment = {"TOBAN_SERVER": daemon.socket, "HOME": str(tmp_path)}

    def toban(*words: str | Path) -> str:
        done = run([installed / "toban", *words], environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        daemon.start()
        toban("apply", ROOT / "examples/hello.yaml")
        assert "Hello, wheel!" in toban("run", "hello", "-p", "name=wheel", "--follow")
        assert "Hello, wheel!" in toban("logs", "hello")
        assert "complete" in toban("completion", "bash")
        assert (installed.parent / "share/man/man1/toban-run.1").read_text().startswith(".")
        # The console is in the wheel: nothing is built, and no Node.js is needed.
        nowhere = {"PATH": str(installed), "HOME": str(tmp_path)}
        with running_gateway(daemon.socket, program=(str(installed / "toban"),), environment=nowhere) as gateway:
            page = gateway.client().get("/runs")
            assert (page.status, b"<script type=" in page.body) == (200, True)
            assert "not built" not in gateway.said
    finally:
        daemon.clear()


def test_a_release_needs_a_section_of_the_changelog_and_a_clean_tree(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("scripts/release", "client/toban/__init__.py", "CHANGELOG.md"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)

    def git(*words: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-C", str(copy))
        subprocess.run(["git", *identity, *words], check=True, capture_output=True, timeout=60)

    def release() -> subprocess.CompletedProcess[str]:
        return run([copy / "scripts/release", "--dry-run"])

    git("init", "-q")
    assert "not committed" in release().stderr
    git("add", "-A")
    git("commit", "-qm", "x")
    assert f'no section "## [{toban.__version__}]"' in release().stderr
    text = (copy / "CHANGELOG.md").read_text("utf-8").replace("[Unreleased]", f"[{toban.__version__}]", 1)
    (copy / "CHANGELOG.md").write_text(text, "utf-8")
    git("commit", "-qam", "x")
    done = release()
    assert done.returncode == 0, done.stderr
    assert f"toban-{toban.__version__}.tar.gz" in done.stdout
    assert "SHA256SUMS" in done.stdout
    assert not (copy / "dist").exists()


def test_the_image_recipe_sets_valid_variables_and_checks_health_with_a_real_command() -> None:
    text = (ROOT / "service-files/container/Containerfile").read_text("utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.*)$", text, re.MULTILINE)
    variables = dict(word.split("=", 1) for word in line.split())
    settings = config.load(None, variables, {})
    assert not settings.warnings
    assert (settings.state_dir, settings.stop_policy) == ("/var/lib/toban", "wait")
    assert f"VOLUME {settings.state_dir}\n" in text
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    program, *words = json.loads(check)
    assert program == "toban"
    done = run([sys.executable, "-m", "toban.cli", *words], {"TOBAN_SERVER": "unix:///nonexistent/toban.sock"})
    assert done.returncode == 3, "it is a command, and fails without a daemon"


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
    served = run([thin / "toban", "web"])
    assert (served.returncode, served.stderr.splitlines()[-1]) == (2, "hint: pip install 'toban[web]'")


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
