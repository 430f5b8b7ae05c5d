"""Callers of a daemon with one credential or another."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from toban.v1 import access_pb2, access_pb2_grpc, run_pb2_grpc, system_pb2_grpc, workflow_pb2_grpc

_ASK = """
import json, os, socket, sys
uid, path = int(sys.argv[1]), sys.argv[2]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
with socket.socket(socket.AF_UNIX) as client:
    client.connect(path)
    print(client.makefile().readline())
"""


class Caller:
    """Makes calls over a channel; `credential` is the text of a token, `origin` the attempt of a step."""

    def __init__(self, channel: grpc.Channel, credential: str = "", origin: str = "") -> None:
        metadata = []
        if credential:
            metadata.append(("authorization", f"Bearer {credential}"))
        if origin:
            metadata.append(("toban-origin", origin))
        self.channel = grpc.intercept_channel(channel, _Metadata(metadata)) if metadata else channel

    @property
    def access(self) -> access_pb2_grpc.AccessServiceStub:
        return access_pb2_grpc.AccessServiceStub(self.channel)

    @property
    def system(self) -> system_pb2_grpc.SystemServiceStub:
        return system_pb2_grpc.SystemServiceStub(self.channel)

    @property
    def runs(self) -> run_pb2_grpc.RunServiceStub:
        return run_pb2_grpc.RunServiceStub(self.channel)

    @property
    def workflows(self) -> workflow_pb2_grpc.WorkflowServiceStub:
        return workflow_pb2_grpc.WorkflowServiceStub(self.channel)

    def who(self) -> access_pb2.Identity:
        return self.access.WhoAmI(access_pb2.WhoAmIRequest(), timeout=20).identity


@contextmanager
def calling(
    target: str, credential: str = "", origin: str = "", tls: grpc.ChannelCredentials | None = None
) -> Iterator[Caller]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = grpc.secure_channel(target, tls, options) if tls else grpc.insecure_channel(target, options)
    with opened as channel:
        yield Caller(channel, credential, origin)


def logged_in(path: Path, uid: int | None = None) -> str:
    """The token from a credential socket, as this user or, for root, as another one."""
    if uid is None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(20)
            client.connect(str(path))
            line = client.makefile().readline()
    else:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK, str(uid), str(path)], capture_output=True, text=True, timeout=20, check=True
        )
        line = asked.stdout
    return str(json.loads(line)["token"])


class _Metadata(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, metadata: list[tuple[str, str]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with(details), request)

    def _with(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), *self._metadata])
