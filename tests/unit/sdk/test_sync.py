from __future__ import annotations

import gc
import inspect
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon
from toban.sdk import Client, NotFound, SyncClient, Unreachable
from toban.v1 import run_pb2


def test_it_has_every_method_of_the_asynchronous_one() -> None:
    methods = {
        name
        for name, member in inspect.getmembers(Client)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }
    assert methods <= set(dir(SyncClient))
    assert SyncClient.start_run.__doc__ == Client.start_run.__doc__
    assert inspect.signature(SyncClient.start_run) == inspect.signature(Client.start_run)


def test_calls_lists_and_streams(daemon: FakeDaemon) -> None:
    for number in range(5):
        daemon.add_workflow(f"w{number}")
    with SyncClient(daemon.address) as client:
        assert client.address.local
        assert [one.name for one in client.list_workflows(page_size=2)] == [
            "w0",
            "w1",
            "w2",
            "w3",
            "w4",
        ]
        run = client.start_run("w0")
        record = daemon.runs[run.id]
        daemon.write(record, "one", b"hello\n")
        changes = client.watch_run(run.id)
        assert next(changes).run.id == run.id
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        assert [change.run.state for change in changes] == [run_pb2.RUN_STATE_SUCCEEDED]
        logs = list(client.stream_logs(run.id, follow=True))
        assert logs[0].chunk.records[0].data == b"hello\n"
        assert client.wait_run(run.id).state == run_pb2.RUN_STATE_SUCCEEDED
        with pytest.raises(NotFound):
            client.get_workflow("none")
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.get_info()


def test_a_stream_goes_on_after_a_restart(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    with SyncClient(daemon.address) as client:
        logs = client.stream_logs(record.run.id, follow=True)
        daemon.write(record, "one", b"a")
        assert next(logs).chunk.records[0].data == b"a"
        daemon.stop()
        daemon.write(record, "one", b"b")
        daemon.start()
        assert next(logs).chunk.records[0].data == b"b"
        logs.close()


def test_a_stream_left_open_is_ended_with_the_client(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    client = SyncClient(daemon.address)
    changes = client.watch_run(record.run.id)
    next(changes)
    client.close()
    changes.close()


def test_threads_may_share_it(daemon: FakeDaemon) -> None:
    daemon.add_workflow("w")
    found: list[str] = []
    with SyncClient(daemon.address) as client:
        threads = [threading.Thread(target=lambda: found.append(client.get_workflow("w").name)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=DEADLINE)
    assert found == ["w"] * 8


def test_no_daemon_is_an_error_not_a_wait(daemon: FakeDaemon) -> None:
    daemon.stop()
    with SyncClient(daemon.address, connect_for=0) as client, pytest.raises(Unreachable):
        client.get_info()


def test_a_program_that_forgets_to_close_still_ends(daemon: FakeDaemon) -> None:
    code = "import sys; from toban.sdk import SyncClient; print(SyncClient(sys.argv[1]).get_info().pid)"
    done = subprocess.run(
        [sys.executable, "-c", code, daemon.address],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4711\n", "")


def test_ctrl_c_ends_a_wait(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    code = """
import sys
from toban.sdk import SyncClient
with SyncClient(sys.argv[1]) as client:
    try:
        for change in client.watch_run(sys.argv[2]):
            print("watching", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, daemon.address, record.run.id],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "watching\n"
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=DEADLINE)
    assert (program.returncode, output, errors) == (0, "interrupted\n", "")


@pytest.mark.parametrize("where", ["before", "after"])
def test_ctrl_c_strikes_while_a_call_is_handed_over(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """No coroutine is left without an await, and no stream without a reader."""
    record = daemon.add_run("x")
    with SyncClient(daemon.address) as client:
        changes = client.watch_run(record.run.id)
        next(changes)
        loop = client._loop
        assert loop is not None
        hand_over = loop.call_soon_threadsafe

        def struck(*work: Any) -> None:
            monkeypatch.undo()
            if where == "after":
                hand_over(*work)
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "call_soon_threadsafe", struck)
        with pytest.raises(KeyboardInterrupt):
            next(changes)
        assert next(changes, None) is None
        gc.collect()
        assert client.get_info().pid == 4711
