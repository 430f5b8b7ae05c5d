"""DPAPI: data that only the user who encrypted it can decrypt, on the same machine."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _UI_FORBIDDEN = 1

    class _Blob(ctypes.Structure):
        _fields_ = (("size", wintypes.DWORD), ("data", ctypes.POINTER(ctypes.c_char)))

    def protect(data: bytes) -> bytes:
        """Raises OSError."""
        return _call(ctypes.windll.crypt32.CryptProtectData, data)

    def unprotect(data: bytes) -> bytes:
        """Raises OSError for data of another user, or that was changed."""
        return _call(ctypes.windll.crypt32.CryptUnprotectData, data)

    def _call(function: ctypes._NamedFuncPointer, data: bytes) -> bytes:
        given = _Blob(
            len(data), ctypes.cast(ctypes.create_string_buffer(data, len(data)), ctypes.POINTER(ctypes.c_char))
        )
        made = _Blob()
        if not function(ctypes.byref(given), None, None, None, None, _UI_FORBIDDEN, ctypes.byref(made)):
            raise ctypes.WinError()
        try:
            return ctypes.string_at(made.data, made.size)
        finally:
            ctypes.windll.kernel32.LocalFree(made.data)
