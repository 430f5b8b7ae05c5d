"""The Windows API for the shim and the launcher: jobs, events, locks, processes, and the identity of the boot.

Handles are plain integers. The caller closes them with `close`; none is inherited by a child process. Everything here
raises OSError with the reason from Windows. Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("these are calls of Windows")

import ctypes
import hashlib
import msvcrt
import os
import struct
from collections.abc import Callable
from ctypes import wintypes
from typing import Any

WAIT_TIMEOUT = 0x102
INFINITE = 0xFFFFFFFF

_ERROR_INVALID_PARAMETER = 87
_ERROR_LOCK_VIOLATION = 33
_ERROR_IO_PENDING = 997
_INVALID_HANDLE = ctypes.c_void_p(-1).value
_GENERIC_READ, _GENERIC_WRITE = 0x80000000, 0x40000000
_SHARE_ALL = 0x7
_CREATE_NEW = 1
_OPEN_EXISTING = 3
_FILE_ATTRIBUTE_NORMAL = 0x80
_FILE_ALLOCATION = 5
_LOCK_EXCLUSIVE_NOW = 0x3
# Windows does not let others read a locked range: this one is far beyond any byte ever written.
_LOCK_OFFSET_HIGH = 0x40000000
_SYNCHRONIZE = 0x00100000
_PROCESS_TERMINATE = 0x0001
_PROCESS_QUERY_LIMITED = 0x1000
_EVENT_MODIFY_STATE = 0x0002
_WT_EXECUTEONLYONCE = 0x8
_CTRL_BREAK = 1
_JOB_ACCOUNTING = 1
_JOB_EXTENDED_LIMITS = 9
_JOB_CPU_RATE = 15
_LIMIT_PRIORITY_CLASS = 0x20
_LIMIT_ACTIVE_PROCESS = 0x8
_LIMIT_JOB_MEMORY = 0x200
_LIMIT_KILL_ON_CLOSE = 0x2000
_CPU_RATE_HARD_CAP = 0x1 | 0x4
_SYSTEM_PROCESSES = 5
_STATUS_TOO_SMALL = 0xC0000004
_SDDL_REVISION = 1
# Its owner and the system, for everything below it too; nothing is inherited from above.
_PRIVATE = "D:P(A;OICI;FA;;;OW)(A;OICI;FA;;;SY)"
_WAIT_CALLBACK = ctypes.WINFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ubyte)

_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_ntdll = ctypes.WinDLL("ntdll")
_advapi = ctypes.WinDLL("advapi32", use_last_error=True)


class _Overlapped(ctypes.Structure):
    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", wintypes.DWORD),
        ("offset_high", wintypes.DWORD),
        ("event", wintypes.HANDLE),
    )


class _Accounting(ctypes.Structure):
    _fields_ = (
        ("user_time", ctypes.c_int64),
        ("kernel_time", ctypes.c_int64),
        ("period_user_time", ctypes.c_int64),
        ("period_kernel_time", ctypes.c_int64),
        ("page_faults", wintypes.DWORD),
        ("total_processes", wintypes.DWORD),
        ("active_processes", wintypes.DWORD),
        ("terminated_processes", wintypes.DWORD),
    )


class _Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION, with its inner structures spread out."""

    _fields_ = (
        ("process_user_time", ctypes.c_int64),
        ("job_user_time", ctypes.c_int64),
        ("flags", wintypes.DWORD),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("active_processes", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority_class", wintypes.DWORD),
        ("scheduling_class", wintypes.DWORD),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class _SecurityAttributes(ctypes.Structure):
    _fields_ = (("length", wintypes.DWORD), ("descriptor", ctypes.c_void_p), ("inherit", wintypes.BOOL))


class _CpuRate(ctypes.Structure):
    _fields_ = (("flags", wintypes.DWORD), ("rate", wintypes.DWORD))


class _MemoryCounters(ctypes.Structure):
    _fields_ = (
        ("size", wintypes.DWORD),
        ("page_faults", wintypes.DWORD),
        ("peak_working_set", ctypes.c_size_t),
        ("counters", ctypes.c_size_t * 7),
    )


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_kernel, name)
    function.restype = result
    function.argtypes = arguments
    return function


_BOOL, _DWORD, _HANDLE, _TEXT, _POINTER = (
    wintypes.BOOL,
    wintypes.DWORD,
    wintypes.HANDLE,
    wintypes.LPCWSTR,
    ctypes.c_void_p,
)
_close_handle = _declare("CloseHandle", _BOOL, _HANDLE)
_create_file = _declare("CreateFileW", _HANDLE, _TEXT, _DWORD, _DWORD, _POINTER, _DWORD, _DWORD, _HANDLE)
_lock_file = _declare("LockFileEx", _BOOL, _HANDLE, _DWORD, _DWORD, _DWORD, _DWORD, _POINTER)
_unlock_file = _declare("UnlockFileEx", _BOOL, _HANDLE, _DWORD, _DWORD, _DWORD, _POINTER)
_set_file = _declare("SetFileInformationByHandle", _BOOL, _HANDLE, ctypes.c_int, _POINTER, _DWORD)
_create_event = _declare("CreateEventW", _HANDLE, _POINTER, _BOOL, _BOOL, _TEXT)
_set_event = _declare("SetEvent", _BOOL, _HANDLE)
_create_job = _declare("CreateJobObjectW", _HANDLE, _POINTER, _TEXT)
_set_job = _declare("SetInformationJobObject", _BOOL, _HANDLE, ctypes.c_int, _POINTER, _DWORD)
_query_job = _declare("QueryInformationJobObject", _BOOL, _HANDLE, ctypes.c_int, _POINTER, _DWORD, _POINTER)
_assign = _declare("AssignProcessToJobObject", _BOOL, _HANDLE, _HANDLE)
_terminate_job = _declare("TerminateJobObject", _BOOL, _HANDLE, wintypes.UINT)
_terminate_process = _declare("TerminateProcess", _BOOL, _HANDLE, wintypes.UINT)
_resume = _declare("ResumeThread", _DWORD, _HANDLE)
_open_process = _declare("OpenProcess", _HANDLE, _DWORD, _BOOL, _DWORD)
_process_times = _declare("GetProcessTimes", _BOOL, _HANDLE, *[_POINTER] * 4)
_exit_code = _declare("GetExitCodeProcess", _BOOL, _HANDLE, _POINTER)
_memory_info = _declare("K32GetProcessMemoryInfo", _BOOL, _HANDLE, _POINTER, _DWORD)
_wait_one = _declare("WaitForSingleObject", _DWORD, _HANDLE, _DWORD)
_wait_many = _declare("WaitForMultipleObjects", _DWORD, _DWORD, _POINTER, _BOOL, _DWORD)
_console_event = _declare("GenerateConsoleCtrlEvent", _BOOL, _DWORD, _DWORD)
_register_wait = _declare(
    "RegisterWaitForSingleObject",
    _BOOL,
    ctypes.POINTER(_HANDLE),
    _HANDLE,
    _WAIT_CALLBACK,
    _POINTER,
    _DWORD,
    _DWORD,
)
_unregister_wait = _declare("UnregisterWaitEx", _BOOL, _HANDLE, _HANDLE)
_create_directory = _declare("CreateDirectoryW", _BOOL, _TEXT, _POINTER)
_local_free = _declare("LocalFree", _POINTER, _POINTER)
_descriptor_of = _advapi.ConvertStringSecurityDescriptorToSecurityDescriptorW
_descriptor_of.restype = _BOOL
_descriptor_of.argtypes = [_TEXT, _DWORD, _POINTER, _POINTER]


def _failed(what: str = "") -> OSError:
    error = ctypes.WinError(ctypes.get_last_error())
    if what:
        error.strerror = f"{what}: {error.strerror}"
    return error


def close(handle: int) -> None:
    _close_handle(handle)


# -- files


def create_new(path: str) -> int:
    """A descriptor of a new file that may be renamed and deleted while it is open."""
    handle = _open(path, _GENERIC_READ | _GENERIC_WRITE, _CREATE_NEW)
    return msvcrt.open_osfhandle(handle, os.O_RDWR | os.O_BINARY | os.O_NOINHERIT)


def open_to_read(path: str) -> int:
    """A descriptor that does not prevent renaming or deleting the file, and can be opened even during that."""
    handle = _open(path, _GENERIC_READ, _OPEN_EXISTING)
    return msvcrt.open_osfhandle(handle, os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT)


def _open(path: str, access: int, how: int) -> int:
    handle = _create_file(path, access, _SHARE_ALL, None, how, _FILE_ATTRIBUTE_NORMAL, None)
    if handle is None or handle == _INVALID_HANDLE:
        error = _failed()
        error.filename = path
        raise error
    return int(handle)


def create_private_directory(path: str) -> None:
    """A directory that only its owner and the system may use."""
    descriptor = _POINTER()
    if not _descriptor_of(_PRIVATE, _SDDL_REVISION, ctypes.byref(descriptor), None):
        raise _failed("cannot describe the access to a directory")
    try:
        attributes = _SecurityAttributes(ctypes.sizeof(_SecurityAttributes), descriptor, False)
        if not _create_directory(path, ctypes.byref(attributes)):
            raise _failed("cannot create a directory")
    finally:
        _local_free(descriptor)


def try_lock(fd: int) -> bool:
    """Takes the claim's lock; False if another process has it. Released with the descriptor, or with the process."""
    where = _Overlapped(offset_high=_LOCK_OFFSET_HIGH)
    handle = msvcrt.get_osfhandle(fd)
    if _lock_file(handle, _LOCK_EXCLUSIVE_NOW, 0, 1, 0, ctypes.byref(where)):
        return True
    if ctypes.get_last_error() in (_ERROR_LOCK_VIOLATION, _ERROR_IO_PENDING):
        return False
    raise _failed("cannot lock")


def unlock(fd: int) -> None:
    where = _Overlapped(offset_high=_LOCK_OFFSET_HIGH)
    if not _unlock_file(msvcrt.get_osfhandle(fd), 0, 1, 0, ctypes.byref(where)):
        raise _failed("cannot unlock")


def allocate(fd: int, size: int) -> None:
    """Allocates that much disk space for the file without making it longer. `size` is never less than its length."""
    wanted = ctypes.c_int64(size)
    handle = msvcrt.get_osfhandle(fd)
    if not _set_file(handle, _FILE_ALLOCATION, ctypes.byref(wanted), ctypes.sizeof(wanted)):
        raise _failed("cannot allocate")


# -- events


def cancel_event(token: str) -> int:
    """The event that requests the end of an attempt: created by the first opener, it exists while a handle is open.

    `Global`, so that a daemon restarted in another session finds it. The token itself is not part of its name.
    """
    name = hashlib.sha256(f"toban cancel {token}".encode()).hexdigest()[:40]
    handle = _create_event(None, True, False, f"Global\\toban-{name}")
    if not handle:
        raise _failed("cannot make an event")
    return int(handle)


def set_event(handle: int) -> None:
    if not _set_event(handle):
        raise _failed("cannot set an event")


# -- waiting


def wait(handles: list[int], seconds: float | None) -> int | None:
    """The index of the signalled handle; None after the timeout."""
    array = (_HANDLE * len(handles))(*handles)
    limit = INFINITE if seconds is None else max(0, int(seconds * 1000) + 1)
    answer = int(_wait_many(len(handles), array, False, limit))
    if answer == WAIT_TIMEOUT:
        return None
    if answer >= len(handles):
        raise _failed("cannot wait")
    return answer


class HandleWait:
    """Calls back once, in a thread of the system, when a handle is signalled, unless it is closed before."""

    def __init__(self, handle: int, callback: Callable[[], None]) -> None:
        def called(_context: object, _timed_out: int) -> None:
            callback()

        # Referenced for as long as the system may call it.
        self._called = _WAIT_CALLBACK(called)
        registered = _HANDLE()
        if not _register_wait(ctypes.byref(registered), handle, self._called, None, INFINITE, _WT_EXECUTEONLYONCE):
            raise _failed("cannot wait for a process")
        self._handle = registered.value

    def close(self) -> None:
        """When it returns, no call is running and none will come."""
        if self._handle is not None:
            _unregister_wait(self._handle, _INVALID_HANDLE)
            self._handle = None


# -- processes


def open_process(pid: int) -> int | None:
    """A handle to wait on and query; None if there is no such process."""
    handle = _open_process(_SYNCHRONIZE | _PROCESS_QUERY_LIMITED, False, pid)
    if handle:
        return int(handle)
    if ctypes.get_last_error() == _ERROR_INVALID_PARAMETER:
        return None
    raise _failed(f"cannot open process {pid}")


def created(process: int) -> int:
    """When a process was created, in units of 100 ns: unique together with its pid, even if the pid is reused."""
    times = [ctypes.c_int64() for _ in range(4)]
    if not _process_times(process, *map(ctypes.byref, times)):
        raise _failed("cannot ask a process for its times")
    return times[0].value


def lives(process: int) -> bool:
    return int(_wait_one(process, 0)) == WAIT_TIMEOUT


def exit_code(process: int) -> int:
    """Exit code of an ended process, signed as in Windows' own tools: 0xC0000005 is -1073741819."""
    code = _DWORD()
    if not _exit_code(process, ctypes.byref(code)):
        raise _failed("cannot ask a process for its exit code")
    return ctypes.c_int32(code.value).value


def peak_memory(process: int) -> int:
    """The peak working set of a process; 0 if the system does not report it."""
    counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
    if not _memory_info(process, ctypes.byref(counters), counters.size):
        return 0
    return int(counters.peak_working_set)


def resume(thread: int) -> None:
    if _resume(thread) == 0xFFFFFFFF:
        raise _failed("cannot resume the process")


def terminate(process: int) -> None:
    _terminate_process(process, 1)


def send_break(group: int) -> bool:
    """CTRL_BREAK to the processes of a group that share this console. False if it cannot be sent."""
    return bool(_console_event(_CTRL_BREAK, group))


# -- jobs


class JobObject:
    """A Windows job object. This process has the only handle: when it closes, every process in the job ends."""

    def __init__(
        self,
        *,
        memory: int | None = None,
        pids: int | None = None,
        cpu: float | None = None,
        nice: int | None = None,
    ) -> None:
        handle = _create_job(None, None)
        if not handle:
            raise _failed("cannot make a job")
        self._handle = int(handle)
        limits = _Limits(flags=_LIMIT_KILL_ON_CLOSE)
        if memory is not None:
            limits.flags |= _LIMIT_JOB_MEMORY
            limits.job_memory = memory
        if pids is not None:
            limits.flags |= _LIMIT_ACTIVE_PROCESS
            limits.active_processes = pids
        if nice is not None:
            limits.flags |= _LIMIT_PRIORITY_CLASS
            limits.priority_class = priority_class(nice)
        self._set(_JOB_EXTENDED_LIMITS, limits, "cannot set the limits of a job")
        if cpu is not None:
            # In hundredths of a per cent of the whole machine.
            rate = max(1, min(10_000, round(cpu * 10_000 / (os.cpu_count() or 1))))
            limit = _CpuRate(flags=_CPU_RATE_HARD_CAP, rate=rate)
            self._set(_JOB_CPU_RATE, limit, "cannot limit the cpu of a job")

    def _set(self, kind: int, value: ctypes.Structure, what: str) -> None:
        if not _set_job(self._handle, kind, ctypes.byref(value), ctypes.sizeof(value)):
            error = _failed(what)
            self.close()
            raise error

    def assign(self, process: int) -> None:
        if not _assign(self._handle, process):
            raise _failed("cannot put the process into its job")

    def active(self) -> int:
        """Number of processes in it. 0 proves that none is left."""
        return int(self._accounting().active_processes)

    def times(self) -> tuple[float, float]:
        """Seconds that its processes, live and ended, spent in user and in kernel mode."""
        found = self._accounting()
        return found.user_time / 1e7, found.kernel_time / 1e7

    def terminate(self) -> None:
        if not _terminate_job(self._handle, 1):
            raise _failed("cannot terminate the job")

    def close(self) -> None:
        close(self._handle)

    def _accounting(self) -> _Accounting:
        found = _Accounting()
        size = ctypes.sizeof(found)
        if not _query_job(self._handle, _JOB_ACCOUNTING, ctypes.byref(found), size, None):
            raise _failed("cannot ask the job")
        return found


def priority_class(nice: int) -> int:
    """The class nearest to a niceness."""
    for least, value in ((15, 0x40), (1, 0x4000), (0, 0x20), (-9, 0x8000)):
        if nice >= least:
            return value
    return 0x80


# -- the machine


def boot_id() -> str:
    """The identity of this boot of the machine. TOBAN_BOOT_ID replaces it in tests.

    The clock may be set, so the boot time is no identity. The service manager is started once per boot, and the machine
    goes down with it: the creation time of that process does not change.
    """
    given = os.environ.get("TOBAN_BOOT_ID")
    return given or f"services-{_services_created():x}"


def _services_created() -> int:
    size = 1 << 20
    while True:
        buffer = ctypes.create_string_buffer(size)
        used = wintypes.ULONG()
        status = _ntdll.NtQuerySystemInformation(_SYSTEM_PROCESSES, buffer, wintypes.ULONG(size), ctypes.byref(used))
        if status & 0xFFFFFFFF != _STATUS_TOO_SMALL:
            break
        size *= 2
    if status != 0:
        raise OSError(f"cannot list the system's processes: status {status & 0xFFFFFFFF:#x}")
    at = 0
    while True:
        (following,) = struct.unpack_from("<I", buffer, at)
        (when,) = struct.unpack_from("<q", buffer, at + 32)
        length, _, text = struct.unpack_from("<HHxxxxQ", buffer, at + 56)
        if text and ctypes.wstring_at(text, length // 2).lower() == "services.exe":
            return int(when)
        if not following:
            return 0
        at += following
