"""The service control manager of Windows: creates, starts, stops, describes and deletes the service."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this needs Windows")

import os
import time
import winreg
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from toban.cli.control_manager.service_place import SERVICE, ServicePlace
from toban.cli.error_report import Failure
from toban.cli.exits import Exit

try:
    import pywintypes
    import servicemanager
    import win32security
    import win32service
    import winerror
except ImportError:
    hint = "pip install 'toban[daemon]'"
    raise Failure("cannot manage the service: the module pywin32 is missing", Exit.USAGE, hint=hint) from None


LOCAL_SERVICE: Final = r"NT AUTHORITY\LocalService"
START_WITHIN: Final = 300.0
STOP_WITHIN: Final = 300.0
_LOOK_AGAIN: Final = 0.2
_DISPLAYED: Final = "Toban workflow daemon"
_DESCRIPTION: Final = "Runs workflows on schedules and events, and supervises their processes."
_PRESHUTDOWN_MS: Final = 60_000
_RESTARTS: Final = [(win32service.SC_ACTION_RESTART, delay) for delay in (1_000, 10_000, 60_000)]
_FORGET_FAILURES_AFTER: Final = 86_400
_SID_TYPE_UNRESTRICTED: Final = 1
_LOGON_RIGHT: Final = "SeServiceLogonRight"
_EVENTS: Final = rf"SYSTEM\CurrentControlSet\Services\EventLog\Application\{SERVICE}"
_ENTRY: Final = rf"SYSTEM\CurrentControlSet\Services\{SERVICE}"
_STATES: Final = {
    win32service.SERVICE_STOPPED: "stopped",
    win32service.SERVICE_START_PENDING: "starting",
    win32service.SERVICE_STOP_PENDING: "stopping",
    win32service.SERVICE_RUNNING: "running",
}


class ServiceState(NamedTuple):
    name: str
    pid: int
    exit_code: int


class ServiceControl:
    """The service, by its name. Methods raise Failure."""

    def __init__(self) -> None:
        with _explained("reach the service control manager"):
            self._manager = win32service.OpenSCManager(None, None, win32service.SC_MANAGER_CONNECT)

    def exists(self) -> bool:
        try:
            win32service.CloseServiceHandle(
                win32service.OpenService(self._manager, SERVICE, win32service.SERVICE_QUERY_STATUS)
            )
        except pywintypes.error as error:
            if error.winerror == winerror.ERROR_SERVICE_DOES_NOT_EXIST:
                return False
            raise _failure("look at the service", error) from None
        return True

    def put(self, place: ServicePlace, account: str, password: str) -> list[str]:
        """Creates the service, or brings it to this state; returns what this system does not support.

        Without an account it is LocalService.
        """
        password_or_none = password or None
        command = f'"{_interpreter()}" -m toband.windows_service {SERVICE} --config "{place.config}"'
        kind = (
            win32service.SERVICE_WIN32_OWN_PROCESS,
            win32service.SERVICE_AUTO_START,
            win32service.SERVICE_ERROR_NORMAL,
            command,
            None,
            False,
            None,
            account or LOCAL_SERVICE,
            password_or_none,
        )
        with _explained("install the service"):
            if self.exists():
                handle = win32service.OpenService(self._manager, SERVICE, win32service.SERVICE_ALL_ACCESS)
                win32service.ChangeServiceConfig(handle, *kind, _DISPLAYED)
            else:
                manager = win32service.OpenSCManager(None, None, win32service.SC_MANAGER_CREATE_SERVICE)
                access = win32service.SERVICE_ALL_ACCESS
                handle = win32service.CreateService(manager, SERVICE, _DISPLAYED, access, *kind)
            if account:
                _allow_logon(account)
            unsupported = _configure(handle)
            win32service.CloseServiceHandle(handle)
            _register_events()
            _set_environment()
        return unsupported

    def state(self) -> ServiceState:
        with self._opened("look at the service", win32service.SERVICE_QUERY_STATUS) as handle:
            facts: Any = win32service.QueryServiceStatusEx(handle)
        code = facts["ServiceSpecificExitCode"] or facts["Win32ExitCode"]
        return ServiceState(_STATES.get(facts["CurrentState"], "unknown"), facts["ProcessId"], code)

    def account(self) -> str:
        with self._opened("look at the service", win32service.SERVICE_QUERY_CONFIG) as handle:
            return str(win32service.QueryServiceConfig(handle)[7])

    def start(self) -> None:
        """Returns when the daemon serves."""
        with self._opened("start the service", win32service.SERVICE_START) as handle:
            try:
                win32service.StartService(handle, None)
            except pywintypes.error as error:
                if error.winerror != winerror.ERROR_SERVICE_ALREADY_RUNNING:
                    raise
        self._wait("running", START_WITHIN, "start")

    def stop(self) -> None:
        """Returns when the daemon has stopped, as its stop policy says."""
        with self._opened("stop the service", win32service.SERVICE_STOP) as handle:
            try:
                win32service.ControlService(handle, win32service.SERVICE_CONTROL_STOP)
            except pywintypes.error as error:
                if error.winerror not in (
                    winerror.ERROR_SERVICE_NOT_ACTIVE,
                    winerror.ERROR_SERVICE_CANNOT_ACCEPT_CTRL,
                ):
                    raise
        self._wait("stopped", STOP_WITHIN, "stop")

    def delete(self) -> None:
        with self._opened("remove the service", win32service.SERVICE_ALL_ACCESS) as handle:
            win32service.DeleteService(handle)
        with _explained("remove the source in the event log"):
            try:
                winreg.DeleteKey(winreg.HKEY_LOCAL_MACHINE, _EVENTS)
            except FileNotFoundError:
                return

    def _wait(self, wanted: str, seconds: float, doing: str) -> None:
        deadline = time.monotonic() + seconds
        while True:
            found = self.state()
            if found.name == wanted:
                return
            if wanted == "running" and found.name == "stopped":
                raise Failure(
                    f"cannot {doing} the service: the daemon ended with code {found.exit_code}",
                    Exit.UNREACHABLE,
                    hint="the event log (Application, source toban) and `toban service logs` say why",
                )
            if time.monotonic() > deadline:
                raise Failure(
                    f"cannot {doing} the service: it is still {found.name} after {seconds:g} s", Exit.UNREACHABLE
                )
            time.sleep(_LOOK_AGAIN)

    @contextmanager
    def _opened(self, doing: str, access: int) -> Iterator[Any]:
        with _explained(doing):
            handle = win32service.OpenService(self._manager, SERVICE, access)
            try:
                yield handle
            finally:
                win32service.CloseServiceHandle(handle)


def _configure(handle: Any) -> list[str]:
    """What has no place in CreateService; the names of what this system does not support."""
    restart = {"ResetPeriod": _FORGET_FAILURES_AFTER, "RebootMsg": "", "Command": "", "Actions": _RESTARTS}
    settings: list[tuple[str, int, Any]] = [
        ("description", win32service.SERVICE_CONFIG_DESCRIPTION, _DESCRIPTION),
        ("recovery actions", win32service.SERVICE_CONFIG_FAILURE_ACTIONS, restart),
        ("delayed start", win32service.SERVICE_CONFIG_DELAYED_AUTO_START_INFO, True),
        ("time before shutdown", win32service.SERVICE_CONFIG_PRESHUTDOWN_INFO, _PRESHUTDOWN_MS),
        ("identity of its own", win32service.SERVICE_CONFIG_SERVICE_SID_INFO, _SID_TYPE_UNRESTRICTED),
    ]
    unsupported = []
    for name, level, value in settings:
        try:
            win32service.ChangeServiceConfig2(handle, level, value)
        except pywintypes.error as error:
            if error.winerror != winerror.ERROR_INVALID_LEVEL:
                raise
            unsupported.append(name)
    return unsupported


def _interpreter() -> str:
    """Not the launcher of a virtual environment: the service would be a child of the process that Windows watches."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return os.path.join(sys.base_prefix, os.path.basename(sys.executable))


def _set_environment() -> None:
    """Makes the interpreter use the virtual environment, as its launcher does."""
    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _ENTRY, 0, winreg.KEY_SET_VALUE) as key:
        if sys.prefix != sys.base_prefix:
            winreg.SetValueEx(key, "Environment", 0, winreg.REG_MULTI_SZ, [f"__PYVENV_LAUNCHER__={sys.executable}"])
            return
        try:
            winreg.DeleteValue(key, "Environment")
        except FileNotFoundError:
            return


def _register_events() -> None:
    with winreg.CreateKey(winreg.HKEY_LOCAL_MACHINE, _EVENTS) as key:
        winreg.SetValueEx(key, "EventMessageFile", 0, winreg.REG_EXPAND_SZ, servicemanager.__file__)
        winreg.SetValueEx(key, "TypesSupported", 0, winreg.REG_DWORD, 7)


def _allow_logon(account: str) -> None:
    # Its stubs know no local machine, which is None.
    security: Any = win32security
    user, _, _ = security.LookupAccountName(None, account.removeprefix(".\\"))
    policy = security.LsaOpenPolicy(None, security.POLICY_ALL_ACCESS)
    security.LsaAddAccountRights(policy, user, (_LOGON_RIGHT,))


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Raises Failure for an error of the system."""
    try:
        yield
    except pywintypes.error as error:
        raise _failure(doing, error) from None
    except OSError as error:
        code = Exit.REFUSED if isinstance(error, PermissionError) else Exit.INTERNAL
        raise Failure(f"cannot {doing}: {error.strerror or error}", code) from None


def _failure(doing: str, error: Any) -> Failure:
    if error.winerror == winerror.ERROR_ACCESS_DENIED:
        return Failure(
            f"cannot {doing}: this needs an administrator", Exit.REFUSED, hint="run it in an elevated prompt"
        )
    if error.winerror == winerror.ERROR_SERVICE_DOES_NOT_EXIST:
        return Failure(
            f"cannot {doing}: it is not installed", Exit.NOT_FOUND, hint="`toban service install` installs it"
        )
    return Failure(f"cannot {doing}: {str(error.strerror).rstrip('.')}", Exit.INTERNAL)
