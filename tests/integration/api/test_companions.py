"""The services that every gRPC server has: health and reflection; and SystemService."""

from __future__ import annotations

import json

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from helpers.daemon import Daemon
from toban.v1 import system_pb2

SERVICES = [
    f"toban.v1.{name}Service" for name in ("DeadLetter", "Event", "Job", "Run", "Schedule", "System", "Workflow")
]


def test_every_service_says_that_it_serves(daemon: Daemon) -> None:
    stub = health_pb2_grpc.HealthStub(daemon.channel)
    for name in ("", *SERVICES):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


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
