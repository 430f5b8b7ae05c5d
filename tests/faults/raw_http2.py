"""HTTP/2 by hand: connections that stop anywhere in the protocol, which no client library can."""

from __future__ import annotations

import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(window: int = 65_535) -> bytes:
    return frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, window))


def headers(method: str, stream: int = 1, **metadata: str | bytes) -> bytes:
    """The beginning of a call of gRPC; every field is written out."""
    fields: dict[str, str | bytes] = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        **metadata,
    }
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return frame(_HEADERS, _END_HEADERS, stream, block)


def request(message: bytes, stream: int = 1) -> bytes:
    return frame(_DATA, _END_STREAM, stream, b"\0" + struct.pack(">I", len(message)) + message)


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return _length(len(data)) + data


def _length(number: int) -> bytes:
    """An integer of HPACK with a prefix of seven bits."""
    if number < 127:
        return bytes([number])
    rest, found = number - 127, [127]
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes([*found, rest])


class RawConnection:
    """`sent` is what it says before it falls silent."""

    def __init__(self, path: str, sent: bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._socket.sendall(sent)
        self.received = b""

    def is_closed(self, within: float) -> bool:
        """Whether the other side ends the connection in that time. Reads what it sends, and answers nothing."""
        deadline = time.monotonic() + within
        try:
            while True:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                some = self._socket.recv(65_536)
                self.received += some
                if not some:
                    return True
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def wait_for(self, text: bytes, within: float) -> None:
        """Until the other side has sent it. Raises AssertionError."""
        received, deadline = b"", time.monotonic() + within
        while text not in received:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            some = self._socket.recv(65_536)
            assert some, f"the connection was closed without {text!r}: {received!r}"
            received += some

    def close(self) -> None:
        self._socket.close()
