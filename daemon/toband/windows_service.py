"""toband as a Windows service: start, stop and status, as the service control manager asks for them.

The dispatcher of the control manager has threads of its own; the daemon keeps the main thread, as it does elsewhere.
This is a program of its own, `python -m toband.windows_service NAME …`, with the arguments of `toband` after the name:
it answers the control manager, which waits half a minute at most, before it imports the daemon.
"""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this needs Windows")

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import servicemanager
import win32api
import win32con
import win32service

from toband import exit_codes

_BEAT = 2.0
_HINT = 30_000
"""Milliseconds within which the control manager expects the next report of a start or a stop."""
_LAST_REPORT = 5.0
_OWN_CODE = 1066
"""ERROR_SERVICE_SPECIFIC_ERROR: the exit code of the daemon follows."""
_STOPS = frozenset({win32service.SERVICE_CONTROL_STOP, win32service.SERVICE_CONTROL_PRESHUTDOWN})
_EVENT_LIMIT = 31_000
"""Characters of one entry in the event log."""

Report = Callable[[int, int, int], None]


class NotAServiceError(Exception):
    """The control manager did not start this process."""


class WindowsService:
    """Reports the state of the daemon to the service control manager, and receives its requests.

    `connect` first; then `serving`, `stopping` and `ended`, from the main thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._state = win32service.SERVICE_START_PENDING
        self._report: Report | None = None
        self._exit_code = 0
        self._changed = threading.Condition()
        self._started = threading.Event()
        self._reported_end = threading.Event()
        self._refused: Exception | None = None
        self._stop_asked = False
        self._stop: Callable[[], object] | None = None

    def connect(self) -> None:
        """Returns when the control manager has started the service. Raises NotAServiceError."""
        # Ctrl-C in a console and users who log off do not concern a service.
        win32api.SetConsoleCtrlHandler(_ignore_console, True)
        servicemanager.Initialize(self.name, servicemanager.__file__)
        servicemanager.PrepareToHostSingle(_service_class(self))
        threading.Thread(target=self._dispatch, name="service-dispatcher", daemon=True).start()
        self._started.wait()
        if self._refused is not None:
            raise NotAServiceError(
                "this program is for the service control manager: start the service with `toban service start`, "
                f"or run toband ({self._refused})"
            )
        # Which interpreter this is; other interpreters must not take it for theirs.
        os.environ.pop("__PYVENV_LAUNCHER__", None)
        # A service has no console.
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for life
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for life

    def call_to_stop(self, stop: Callable[[], object]) -> None:
        """`stop` is called from another thread when the service is asked to stop, at once if it already was."""
        with self._changed:
            self._stop = stop
            asked = self._stop_asked
        if asked:
            stop()

    def serving(self, detail: str) -> None:
        self._enter(win32service.SERVICE_RUNNING)
        servicemanager.LogInfoMsg(f"toband is serving: {detail}")

    def stopping(self) -> None:
        self._enter(win32service.SERVICE_STOP_PENDING)

    def ended(self, code: int, problems: Sequence[str] = ()) -> None:
        """Reports the end, with the problems in the event log.

        A failed daemon reports none, unless it was asked to stop: the control manager then sees a crash, and takes the
        recovery actions of the service. They do not help against an invalid configuration, or another daemon.
        """
        for problem in problems:
            self.log_error(problem)
        if code == exit_codes.FAILED and not self._stop_asked:
            return
        with self._changed:
            self._exit_code = 0 if self._stop_asked else code
        self._enter(win32service.SERVICE_STOPPED)
        self._reported_end.wait(_LAST_REPORT)

    def log_error(self, text: str) -> None:
        servicemanager.LogErrorMsg(text[:_EVENT_LIMIT])

    def _enter(self, state: int) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _dispatch(self) -> None:
        dispatch: Callable[[], object] = servicemanager.StartServiceCtrlDispatcher
        try:
            dispatch()
        except win32service.error as error:
            self._refused = error
            self._started.set()

    # -- in threads of the control manager

    def run(self, report: Report) -> None:
        """Reports each state until the service has stopped; the control manager ends the process soon after."""
        self._report = report
        self._started.set()
        with self._changed:
            while self._state != win32service.SERVICE_STOPPED:
                known = self._state
                self._tell()
                # A start or stop that takes long is reported repeatedly, so that it does not count as hung.
                beat = None if known == win32service.SERVICE_RUNNING else _BEAT
                self._changed.wait_for(partial(self._has_left, known), beat)
            self._tell()
        self._reported_end.set()
        # The caller would report the end again, without its code. The process ends with the main thread.
        threading.Event().wait()

    def _has_left(self, state: int) -> bool:
        return self._state != state

    def control(self, control: int) -> None:
        if control in _STOPS:
            with self._changed:
                self._stop_asked = True
                stop = self._stop
                if self._state == win32service.SERVICE_RUNNING:
                    self._state = win32service.SERVICE_STOP_PENDING
                    self._changed.notify_all()
            if stop is not None:
                stop()
        elif control == win32service.SERVICE_CONTROL_INTERROGATE:
            with self._changed:
                self._tell()

    def _tell(self) -> None:
        assert self._report is not None
        pending = self._state in (win32service.SERVICE_START_PENDING, win32service.SERVICE_STOP_PENDING)
        self._report(self._state, _HINT if pending else 0, self._exit_code)


def _service_class(host: WindowsService) -> type:
    """The class whose object `servicemanager` makes, in a thread of the control manager."""

    class Service:
        _svc_name_ = host.name
        _svc_display_name_ = "Toban"

        def __init__(self, args: Sequence[str]) -> None:
            self._handle = servicemanager.RegisterServiceCtrlHandler(args[0], self._control, True)
            self._checkpoint = 0

        def SvcRun(self) -> None:  # noqa: N802 - called by servicemanager
            host.run(self._report)

        def _control(self, control: int, event_type: int, data: Any) -> None:
            host.control(control)

        def _report(self, state: int, hint: int, exit_code: int) -> None:
            # Pause is not among the accepted controls: `toban system drain` does what it would mean.
            accepted = 0
            if state == win32service.SERVICE_RUNNING:
                accepted = win32service.SERVICE_ACCEPT_STOP | win32service.SERVICE_ACCEPT_PRESHUTDOWN
            self._checkpoint = self._checkpoint + 1 if hint else 0
            status = (
                win32service.SERVICE_WIN32_OWN_PROCESS,
                state,
                accepted,
                _OWN_CODE if exit_code else 0,
                exit_code,
                self._checkpoint,
                hint,
            )
            win32service.SetServiceStatus(self._handle, status)

    return Service


def _ignore_console(event: int) -> bool:
    return event != win32con.CTRL_CLOSE_EVENT


def main(arguments: Sequence[str]) -> int:
    service = WindowsService(arguments[0] if arguments else "toban")
    try:
        service.connect()
    except NotAServiceError as error:
        print(f"toband: {error}", file=sys.stderr)
        return exit_codes.USAGE
    problems: list[str] = []
    try:
        from toband.__main__ import run_with

        code = run_with(arguments[1:], problems.append, service)
    except BaseException as error:
        service.ended(exit_codes.FAILED, [*problems, f"toband crashed: {error!r}"])
        raise
    service.ended(code, problems)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
