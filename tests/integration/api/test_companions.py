"""The services that every gRPC server has: health and reflection; and SystemService."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from faults.raw_http2 import PREFACE, RawConnection, headers, request, settings
from helpers.daemon import Daemon, running_daemon
from toban.v1 import system_pb2
from toband.api.call_limits import SERVED

SERVICES = [service.full_name for service in SERVED]
States = health_pb2.HealthCheckResponse


def test_every_service_says_that_it_serves(daemon: Daemon) -> None:
    stub = health_pb2_grpc.HealthStub(daemon.channel)
    listed = stub.List(health_pb2.HealthListRequest(), timeout=20).statuses
    assert {name: each.status for name, each in listed.items()} == dict.fromkeys(("", *SERVICES), States.SERVING)
    for name in ("", *SERVICES):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
        assert answer.status == States.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="absent"), timeout=20)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watcher_sees_the_stop_although_another_one_takes_nothing(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        watch, asked = "/grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest().SerializeToString()
        deaf = PREFACE + settings(window=0) + headers(watch) + request(asked)
        with contextlib.closing(RawConnection(f"{daemon.state_dir}/toban.sock", deaf)):
            stub = health_pb2_grpc.HealthStub(daemon.channel)
            unknown = stub.Watch(health_pb2.HealthCheckRequest(service="absent"), timeout=60)
            assert next(unknown).status == States.SERVICE_UNKNOWN
            watched = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
            assert next(watched).status == States.SERVING
            assert daemon.process is not None
            daemon.process.terminate()
            assert next(watched).status == States.NOT_SERVING
            assert [*watched] == []
        assert daemon.process.wait(60) == 0


def test_reflection_knows_every_service(daemon: Daemon) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(daemon.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([asked]), timeout=20)
    names = {service.name for service in answer.list_services_response.service}
    assert {*SERVICES, "grpc.health.v1.Health"} <= names
    symbol = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICES[0])
    (answer,) = stub.ServerReflectionInfo(iter([symbol]), timeout=20)
    assert answer.file_descriptor_response.file_descriptor_proto


def test_info_tells_what_the_daemon_is_and_does(daemon: Daemon) -> None:
    text = "name: counted\ndescription: for a test\nsteps: [{name: only, run: sleep 60}]\n"
    before = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert (before.pid, before.state_dir) == (daemon.pid, str(daemon.state_dir))
    assert before.version
    assert before.database == system_pb2.DATABASE_KIND_SQLITE
    assert list(before.listen) == [daemon.socket]
    assert before.recovery.HasField("finished_at")
    daemon.apply(text)
    run = daemon.start_run("counted")
    daemon.wait_started(run, "only")
    during = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert during.workflows == before.workflows + 1
    assert during.active_runs == before.active_runs + 1
    assert during.running_processes == before.running_processes + 1
    assert during.started_at == before.started_at
    daemon.cancel(run)
    daemon.wait_run(run)
    after = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert after.active_runs == before.active_runs
    assert after.running_processes == before.running_processes


def test_the_configuration_is_told_with_its_sources(daemon: Daemon) -> None:
    answer = daemon.system.GetConfig(system_pb2.GetConfigRequest(), timeout=20)
    found = {each.key: (json.loads(each.value_json), each.source) for each in answer.values}
    assert found["state_dir"] == (str(daemon.state_dir), system_pb2.CONFIG_SOURCE_FLAG)
    assert found["log.format"] == ("json", system_pb2.CONFIG_SOURCE_ENVIRONMENT)
    assert found["log.level"] == ("info", system_pb2.CONFIG_SOURCE_DEFAULT)
