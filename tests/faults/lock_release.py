"""An operator who frees locks: those of attempts whose supervisor was killed, once their processes are gone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import grpc

from helpers.daemon import Daemon
from helpers.processes import marked
from toban.v1 import system_pb2, system_pb2_grpc

_EVERY = 0.3


@contextlib.contextmanager
def released_locks(daemon: Daemon) -> Iterator[None]:
    """Meanwhile locks that ended attempts keep held are released."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(_EVERY):
            with contextlib.suppress(grpc.RpcError):
                release_gone(daemon.system)

    thread = threading.Thread(target=work, name="operator")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def release_gone(system: system_pb2_grpc.SystemServiceStub) -> None:
    """One look. Raises RpcError."""
    for lock in system.ListLocks(system_pb2.ListLocksRequest(), timeout=2.5).locks:
        for run_id in {each.run_id for each in lock.leftovers}:
            if not marked(f"TOBAN_RUN_ID={run_id}"):
                request = system_pb2.ReleaseLockRequest(name=lock.name, run_id=run_id)
                system.ReleaseLock(request, timeout=2.5)
