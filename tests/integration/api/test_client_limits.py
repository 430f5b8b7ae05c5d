"""Each limit of clients is reached on a real daemon, while another client is served as before."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest

from faults.raw_http2 import PREFACE, RawConnection, headers, request, settings
from helpers import certificates
from helpers.daemon import CALL_WITHIN, Daemon, running_daemon
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.token_text import TokenText, new_token_text
from toban.v1 import run_pb2, run_pb2_grpc, system_pb2, system_pb2_grpc, workflow_pb2, workflow_pb2_grpc

Metadata = tuple[tuple[str, str], ...]
CONNECTIONS, CALLS, STREAMS, BURST, FAILURES = 8, 10, 3, 20, 3


def bearer(text: str) -> Metadata:
    return (("authorization", f"Bearer {text}"),)


@pytest.fixture(scope="module")
def tokens() -> dict[str, TokenText]:
    return {name: new_token_text() for name in ("one", "other")}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, TokenText]) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("limits")
    config = directory / "toband.toml"
    files = certificates.store(certificates.server(certificates.authority()), directory)
    text = f"""
listen = ["unix://{directory}/s/toban.sock", "127.0.0.1:0", "tls://127.0.0.1:0"]
[tls]
certificate = "{files.certificate}"
key = "{files.key}"
[limits]
message_size = "64KiB"
connections = {CONNECTIONS}
handshake_time = "1s"
keepalive = "1s"
client_time = "1s"
calls_per_identity = {CALLS}
streams_per_identity = {STREAMS}
request_rate = 1
request_burst = {BURST}
failed_logins = {FAILURES}
"""
    for name, token in tokens.items():
        text += f'[access.tokens.{name}]\nrole = "editor"\ndigest = "{token.digest}"\n'
    config.write_text(text)
    with running_daemon(directory / "s", "--config", str(config)) as running:
        yield running


def listening(daemon: Daemon, begin: str) -> str:
    """The address that begins so."""
    announced = json.loads((daemon.state_dir / "toband.json").read_bytes())["listen"]
    addresses = [str(each["address"] if isinstance(each, dict) else each) for each in announced]
    return next(each for each in addresses if each.startswith(begin))


@pytest.fixture
def port(daemon: Daemon) -> str:
    return listening(daemon, "127.0.0.1:")


def info(daemon: Daemon, metadata: Metadata = ()) -> system_pb2.GetInfoResponse:
    return daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=CALL_WITHIN, metadata=metadata)


def test_a_request_that_is_too_large(daemon: Daemon) -> None:
    definition = workflow_pb2.Definition(source="#" * 100_000)
    with pytest.raises(grpc.RpcError) as caught:
        daemon.workflows.ValidateWorkflow(workflow_pb2.ValidateWorkflowRequest(definition=definition))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    info(daemon)


def test_too_many_connections(daemon: Daemon, port: str) -> None:
    host, _, number = port.rpartition(":")
    with ExitStack() as stack:
        connections = []
        for _ in range(CONNECTIONS + 4):
            connection = stack.enter_context(socket.create_connection((host, int(number)), timeout=10))
            connection.sendall(PREFACE + settings())
            connections.append(connection)

        def closed() -> int:
            return sum(_is_closed(each) for each in connections)

        wait_until(lambda: closed() == 4, "the surplus is not closed")
        # Another address is served as before.
        info(daemon)
    with grpc.insecure_channel(port) as channel:
        stub = system_pb2_grpc.SystemServiceStub(channel)
        wait_until(lambda: _answers(stub), "the place of a closed connection is not free")


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    with contextlib.suppress(TimeoutError):
        try:
            while connection.recv(1000):
                pass
        except ConnectionError:
            pass
        return True
    return False


def _answers(stub: system_pb2_grpc.SystemServiceStub) -> bool:
    try:
        stub.GetInfo(system_pb2.GetInfoRequest(), timeout=CALL_WITHIN)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.UNAUTHENTICATED
    return True


def test_handshakes_that_do_not_end(daemon: Daemon) -> None:
    host, _, number = listening(daemon, "tls://").removeprefix("tls://").rpartition(":")
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((host, int(number)), timeout=10)) for _ in range(CONNECTIONS)
        ]
        for each in connections[::2]:
            # The header of a record of TLS, without its content.
            each.sendall(bytes.fromhex("16030100ff"))
        info(daemon)
        wait_until(lambda: all(map(_is_closed, connections)), "handshakes go on")


def test_a_stream_whose_client_is_gone(daemon: Daemon) -> None:
    """It answers no ping. A client that does keeps its stream."""
    watched = daemon.runs.WatchRuns(run_pb2.WatchRunsRequest())
    next(watched)
    watch = request(run_pb2.WatchRunsRequest().SerializeToString())
    begun = PREFACE + settings() + headers("/toban.v1.RunService/WatchRuns") + watch
    with contextlib.closing(RawConnection(f"{daemon.state_dir}/toban.sock", begun)) as gone:
        assert gone.is_closed(CALL_WITHIN)
    assert watched.is_active()
    watched.cancel()


def test_too_many_calls_per_second(daemon: Daemon, tokens: dict[str, TokenText]) -> None:
    one, other = (bearer(tokens[name].text) for name in ("one", "other"))

    def again() -> None:
        for _ in range(2 * BURST):
            info(daemon, one)

    refusal = refused(again)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
    assert refusal.metadata == {"kind": "rate", "limit": "1"}
    info(daemon, other)
    # Without a credential all callers of the socket are one.
    for _ in range(2 * BURST):
        info(daemon)


def test_too_many_streams_of_one_identity(daemon: Daemon, tokens: dict[str, TokenText]) -> None:
    daemon.apply("{name: long, description: x, steps: [{name: a, run: exec sleep 300, kill_grace: 1s}]}")
    run_id = daemon.start_run("long")
    watched = [daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id)) for _ in range(STREAMS)]
    for each in watched:
        next(each)
    refusal = refused(lambda: daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id)))
    assert refusal.reason == "TOO_MANY_STREAMS"
    other = daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), metadata=bearer(tokens["other"].text))
    assert next(other).run.id == run_id
    for each in (*watched, other):
        each.cancel()
    daemon.cancel(run_id)
    daemon.wait_run(run_id)


def test_calls_whose_request_does_not_come(daemon: Daemon, tokens: dict[str, TokenText]) -> None:
    """They have all slots of their identity for a second, and those of the others are free."""
    method = "/toban.v1.RunService/GetRun"
    calls = b"".join(headers(method, stream) for stream in range(1, 2 * CALLS + 3, 2))
    with contextlib.closing(RawConnection(f"{daemon.state_dir}/toban.sock", PREFACE + settings() + calls)) as stalled:
        stalled.wait_for(f"{CALLS} read calls of this identity are being handled".encode(), CALL_WITHIN)
        stub = run_pb2_grpc.RunServiceStub(daemon.channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetRun(run_pb2.GetRunRequest(id="none"), timeout=CALL_WITHIN, metadata=bearer(tokens["other"].text))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        stalled.wait_for(b"the request did not arrive within 1", CALL_WITHIN)
        assert refused(lambda: stub.GetRun(run_pb2.GetRunRequest(id="none"), timeout=CALL_WITHIN)).code.name == (
            "NOT_FOUND"
        )


def test_a_source_that_guesses_tokens(daemon: Daemon, port: str, tokens: dict[str, TokenText]) -> None:
    with grpc.insecure_channel(port) as channel:
        stub = workflow_pb2_grpc.WorkflowServiceStub(channel)

        def guess() -> object:
            wrong = bearer(new_token_text().text)
            return stub.ListWorkflows(workflow_pb2.ListWorkflowsRequest(), timeout=CALL_WITHIN, metadata=wrong)

        for _ in range(FAILURES + 1):
            assert refused(guess).reason == "CREDENTIAL_INVALID"
        assert refused(guess).reason == "TOO_MANY_FAILURES"
        # Others at the same address are not locked out.
        request = workflow_pb2.ListWorkflowsRequest()
        stub.ListWorkflows(request, timeout=CALL_WITHIN, metadata=bearer(tokens["other"].text))
        assert refused(guess).reason == "TOO_MANY_FAILURES"
        wait_until(lambda: refused(guess).reason == "CREDENTIAL_INVALID", "the source has to wait for too long")
