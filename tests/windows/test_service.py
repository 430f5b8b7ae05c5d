"""The daemon as a Windows service: installed, started, stopped and removed through the service control manager."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows: scripts/test-windows", allow_module_level=True)

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pywintypes
import win32service

from helpers.wait import wait_until
from toban.cli.control_manager.service_control import ServiceControl
from toban.cli.control_manager.service_place import SERVICE, ServicePlace, service_place, service_sid
from toban.sdk import DefinitionText
from windows.machine import DEADLINE, PYTHON, SAY, WAIT, Patient, Process, alive, run_state, seen, step, written

pytestmark = pytest.mark.timeout(600)


def toban(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [PYTHON, "-m", "toban.cli", *words], capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def control(code: int) -> None:
    manager = win32service.OpenSCManager(None, None, win32service.SC_MANAGER_CONNECT)
    service = win32service.OpenService(manager, SERVICE, win32service.SERVICE_ALL_ACCESS)
    win32service.ControlService(service, code)


class Service:
    """The installed one, its API and its process."""

    def __init__(self, place: ServicePlace, work: Path) -> None:
        self.place = place
        self.work = work
        self.client = Patient(self._address, Path(place.directory) / "admin.token")

    def _address(self) -> str:
        facts: dict[str, Any] = json.loads((Path(self.place.directory) / "toband.json").read_text())
        return str(facts["listen"][0])

    def begin(self, name: str, *steps: dict[str, Any]) -> str:
        source = json.dumps({"name": name, "description": "x", "steps": list(steps)})
        self.client.apply_definitions([DefinitionText(source=source, base_dir=str(self.work))])
        return self.client.start_run(name).id

    def process(self) -> Process:
        return seen(ServiceControl().state().pid)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = service_place()
    assert "would be created: service toban" in toban("service", "install", "--dry-run")
    assert not os.path.exists(place.directory)
    assert "it is not installed" in toban("service", "status", code=5)
    try:
        installed = toban("service", "install")
        assert "started: service toban" in installed
        assert "is running" in installed
        made = Service(place, tmp_path_factory.mktemp("work"))
        yield made
        made.client.close()
    finally:
        if ServiceControl().exists():
            toban("service", "uninstall", "--purge")
        assert not os.path.exists(place.directory)


def test_it_runs_workflows_and_takes_no_pause(service: Service) -> None:
    run = service.client.wait_run(service.begin("greet", {"name": "say", "job_type": "cmd", "target": "echo hello"}))
    assert run_state(run) == "SUCCEEDED"
    with pytest.raises(pywintypes.error) as refused:
        control(win32service.SERVICE_CONTROL_PAUSE)
    assert refused.value.winerror == 1052
    shown = json.loads(toban("service", "status", "-o", "json"))
    assert (shown["state"], shown["account"]) == ("running", r"NT AUTHORITY\LocalService")
    assert shown["pid"] == service.process().pid


def test_a_step_goes_on_through_a_restart(service: Service, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    code = f"{SAY}{WAIT}\nimport sys\nsay(sys.argv[1], str(os.getpid()))\nwait(sys.argv[2])\nprint('whole')"
    run_id = service.begin("long", step("wait", code, str(tmp_path / "pid"), gate))
    running = seen(int(written(tmp_path / "pid")))
    before = service.process()
    control(win32service.SERVICE_CONTROL_STOP)
    wait_until(lambda: ServiceControl().state().name == "stopped", "the service does not stop", DEADLINE)
    wait_until(lambda: not alive(before), "the daemon does not end", DEADLINE)
    assert alive(running)
    service.client.close()
    assert "started toband" in toban("service", "start")
    assert alive(running)
    Path(gate).touch()
    assert run_state(service.client.wait_run(run_id)) == "SUCCEEDED"
    assert '"event": "stopped"' in toban("service", "logs", "--tail", "1000")


def test_the_configuration_is_the_administrators(service: Service) -> None:
    """Its mistakes are said by the start, and a repeated installation leaves it alone."""
    config = Path(service.place.config)
    text = config.read_text(encoding="utf-8")
    service.client.close()
    toban("service", "stop")
    config.write_text(f"nonsense = 1\n{text}", encoding="utf-8")
    assert "the daemon ended with code 2" in toban("service", "start", code=3)
    config.write_text(f"{text}# edited\n", encoding="utf-8")
    assert f"unchanged: {config}" in toban("service", "install")
    assert config.read_text(encoding="utf-8") == f"{text}# edited\n"
    assert ServiceControl().state().name == "running"


def test_the_identity_is_the_one_that_windows_derives() -> None:
    """Of TrustedInstaller it is well known."""
    assert service_sid("TrustedInstaller") == "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
