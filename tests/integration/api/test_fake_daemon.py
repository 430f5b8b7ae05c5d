"""The fake daemon of the client tests answers as the real one: the same calls to both, and the answers compared.

The fake may leave fields out. The fields that it sets, and its refusals, must be those of the real daemon.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from doubles.daemon.fake_daemon import FakeDaemon
from helpers.daemon import CALL_WITHIN, running_daemon
from toban.v1 import dead_letter_pb2, event_pb2, hook_pb2, job_pb2, run_pb2, schedule_pb2, system_pb2, workflow_pb2

ABSENT = "absent"
MODULES = (dead_letter_pb2, event_pb2, hook_pb2, job_pb2, run_pb2, schedule_pb2, system_pb2, workflow_pb2)
NUMBERS = {"version", "number", "cancelled", "attempt", "index"}
"""Numbers that both daemons count alike; of the other values only enums and booleans are compared."""
MOVING = {("StartRun", "run.state"), ("RetryRun", "run.state"), ("CancelRun", "run.state")}
"""The daemon may have begun or ended the run before it answers. Steps of the fake never move by themselves."""


@dataclass
class Answer:
    """What is the same for every daemon: the refusal, the fields that are set, and the values of some."""

    rpc: str
    refusal: tuple[str, str] = ("OK", "")
    details: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)


class Api:
    """Calls by the type of the request, and notes every answer."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.answers: list[Answer] = []

    def __call__(self, request: Message) -> Any:
        """The answer, the last one of a stream; None if the call was refused."""
        name = type(request).__name__.removesuffix("Request")
        answer = Answer(name)
        self.answers.append(answer)
        try:
            found = self._call(name, request)
        except grpc.RpcError as error:
            answer.refusal, answer.details = _refusal(error)
            return None
        answer.values = dict(_values(found))
        return found

    def _call(self, name: str, request: Message) -> Any:
        services = (service for module in MODULES for service in module.DESCRIPTOR.services_by_name.values())
        (method,) = (service.methods_by_name[name] for service in services if name in service.methods_by_name)
        kind = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        call = kind(
            f"/{method.containing_service.full_name}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        found: Any = call(request, timeout=CALL_WITHIN)
        return list(found)[-1] if method.server_streaming else found


def _refusal(error: Any) -> tuple[tuple[str, str], set[str]]:
    reason, details = "", set()
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reason = info.reason
            details |= {f"metadata {key}" for key in info.metadata}
        elif detail.Unpack(bad):
            details |= {f"field {each.field}" for each in bad.field_violations}
        else:
            details.add(detail.type_url)
    return (error.code().name, reason), details


def _values(message: Message, path: str = "") -> dict[str, Any]:
    """Every field that is set, by its path; None for a value that is not compared."""
    found: dict[str, Any] = {}
    for each, value in message.ListFields():
        here = f"{path}{each.name}"
        if each.message_type is None:
            compared = each.enum_type is not None or isinstance(value, bool)
            compared = compared or (isinstance(value, int) and each.name in NUMBERS)
            found[here] = (list(value) if each.is_repeated else value) if compared else None
            continue
        found[here] = None
        if each.message_type.file.package != "toban.v1" or each.message_type.GetOptions().map_entry:
            continue
        for inner in value if each.is_repeated else [value]:
            found |= _values(inner, f"{here}.")
    return found


def definition(name: str, run: str = "echo hello") -> workflow_pb2.Definition:
    source = f"name: {name}\ntitle: T\ndescription: d\nsteps:\n  one:\n    run: {run}\n"
    return workflow_pb2.Definition(source=source, base_dir="/")


def job(name: str, run: str = "echo hello") -> workflow_pb2.Definition:
    return workflow_pb2.Definition(source=f"jobs:\n  {name}:\n    title: T\n    run: {run}\n", base_dir="/")


def script(api: Api) -> None:
    """What a client does, in its order. Every call is compared, so that each one counts."""
    _workflows(api)
    _jobs(api)
    _several(api)
    _applied(api)
    _runs(api)
    _events(api)
    _schedules(api)
    _hooks(api)
    _system(api)


def _workflows(api: Api) -> None:
    pb = workflow_pb2
    for name in ("first", "second"):
        api(pb.CreateWorkflowRequest(definition=definition(name), request_id=name))
    api(pb.CreateWorkflowRequest(definition=definition("first"), request_id="first"))
    api(pb.CreateWorkflowRequest(definition=definition("first")))
    api(pb.CreateWorkflowRequest(definition=definition("third", "[BROKEN]")))
    api(pb.GetWorkflowRequest(name="first"))
    api(pb.GetWorkflowRequest(name=ABSENT))
    page = api(pb.ListWorkflowsRequest(page_size=1))
    api(pb.ListWorkflowsRequest(page_size=1, page_token=page.next_page_token))
    api(pb.ListWorkflowSummariesRequest())
    api(pb.GetOverviewRequest())
    for text in ("echo hello", "echo again"):
        api(pb.UpdateWorkflowRequest(workflow=pb.Workflow(name="first", definition=definition("first", text))))
    api(pb.UpdateWorkflowRequest(workflow=pb.Workflow(name=ABSENT, definition=definition(ABSENT))))
    api(pb.ValidateWorkflowRequest(definition=definition("first")))
    api(pb.ValidateWorkflowRequest(definition=definition("first", "[BROKEN]")))
    api(pb.ListWorkflowVersionsRequest(workflow="first"))
    api(pb.GetWorkflowVersionRequest(workflow="first", version=1))
    api(pb.GetWorkflowVersionRequest(workflow="first", version=9))
    api(pb.RestoreWorkflowVersionRequest(workflow="first", version=1))
    api(pb.RestoreWorkflowVersionRequest(workflow="first", version=1))
    api(pb.SetWorkflowEnabledRequest(name="first", enabled=False))
    api(pb.SetWorkflowEnabledRequest(name="first", enabled=True))
    api(pb.PreviewScheduleRequest(workflow=ABSENT))
    api(pb.ExplainScheduleRequest(workflow=ABSENT))
    api(pb.ListFiresRequest(workflow=ABSENT))
    api(pb.DeleteWorkflowRequest(name="second"))
    api(pb.DeleteWorkflowRequest(name="second"))


def _jobs(api: Api) -> None:
    pb = job_pb2
    api(pb.CreateJobRequest(definition=job("build")))
    api(pb.CreateJobRequest(definition=job("build")))
    api(pb.CreateJobRequest(definition=job("first")))
    api(pb.CreateJobRequest(definition=job("third", "[BROKEN]")))
    api(pb.GetJobRequest(name="build"))
    api(pb.GetJobRequest(name=ABSENT))
    api(pb.ListJobsRequest())
    for text in ("echo hello", "echo again"):
        api(pb.UpdateJobRequest(job=pb.Job(name="build", definition=job("build", text))))
    api(pb.SetJobEnabledRequest(name="build", enabled=False))
    api(pb.DeleteJobRequest(name="build"))
    api(pb.DeleteJobRequest(name="build"))


def _applied(api: Api) -> None:
    def apply(*definitions: workflow_pb2.Definition, **more: Any) -> None:
        texts = [
            workflow_pb2.DefinitionText(definition=each, file=f"{number}.yaml")
            for number, each in enumerate(definitions)
        ]
        api(workflow_pb2.ApplyDefinitionsRequest(texts=texts, **more))

    apply(definition("applied"), job("tool"), validate_only=True)
    apply(definition("applied"), job("tool"))
    apply(definition("applied"), job("tool", "echo again"), validate_only=True)
    apply(definition("applied"), job("tool", "echo again"))
    apply(definition("applied"), definition("third", "[BROKEN]"))
    apply(definition("applied"), definition("third", "[BROKEN]"), validate_only=True)


def _several(api: Api) -> None:
    pb = workflow_pb2

    def texts(*definitions: pb.Definition) -> list[pb.DefinitionText]:
        return [pb.DefinitionText(file=f"{n}.yaml", definition=each) for n, each in enumerate(definitions)]

    both = texts(definition("several"), job("shared"))
    api(pb.ApplyDefinitionsRequest(texts=both, validate_only=True))
    api(pb.ApplyDefinitionsRequest(texts=both))
    api(pb.ApplyDefinitionsRequest(texts=texts(definition("several"), job("shared", "echo again"))))
    broken = texts(definition("several"), definition("third", "[BROKEN]"))
    api(pb.ApplyDefinitionsRequest(texts=broken, validate_only=True))
    api(pb.ApplyDefinitionsRequest(texts=broken))
    api(pb.GetWorkflowRequest(name="third"))


def _runs(api: Api) -> None:
    pb = run_pb2
    api(workflow_pb2.CreateWorkflowRequest(definition=definition("waits", "sleep 600")))
    run = api(pb.StartRunRequest(workflow="waits", triggered_by=pb.TRIGGER_MANUAL)).run
    api(pb.StartRunRequest(workflow="waits"))
    api(pb.StartRunRequest(workflow=ABSENT))
    api(pb.PlanRunRequest(workflow=ABSENT))
    api(pb.GetRunRequest(id=run.id))
    api(pb.GetRunRequest(id=ABSENT))
    api(pb.GetCurrentRunRequest(workflow="waits"))
    api(pb.GetCurrentRunRequest(workflow="first"))
    api(pb.GetCurrentRunRequest(workflow=ABSENT))
    api(pb.ListRunsRequest(workflow="waits"))
    api(pb.PauseRunRequest(id=run.id))
    api(pb.ResumeRunRequest(id=run.id))
    approved = pb.APPROVAL_DECISION_APPROVED
    api(pb.DecideApprovalRequest(run_id=run.id, step="one", decision=approved))
    api(pb.DeleteRunRequest(id=run.id))
    api(pb.RetryRunRequest(id=run.id))
    api(workflow_pb2.DeleteWorkflowRequest(name="waits"))
    api(pb.CancelRunRequest(id=run.id))
    api(pb.WatchRunRequest(id=run.id))
    api(pb.CancelRunRequest(id=run.id))
    api(pb.PauseRunRequest(id=run.id))
    api(pb.StreamLogsRequest(run_id=run.id))
    api(pb.StreamLogsRequest(run_id=ABSENT))
    api(pb.ReadLogRequest(run_id=ABSENT, step="one"))
    api(pb.ReadLogRequest(process_execution_id=ABSENT))
    api(pb.SearchLogsRequest(run_id=run.id, text="nowhere"))
    api(pb.SearchLogsRequest(run_id=ABSENT, text="nowhere"))
    api(pb.SearchLogsRequest(process_execution_id=ABSENT, text="nowhere"))
    api(pb.ListProcessExecutionsRequest(run_id=ABSENT))
    api(pb.GetProcessExecutionRequest(id=ABSENT))
    api(pb.ListArtifactsRequest(run_id=run.id))
    api(pb.DownloadArtifactRequest(run_id=run.id, step="one", name=ABSENT))
    again = api(pb.RetryRunRequest(id=run.id)).run
    api(pb.CancelRunRequest(id=again.id))
    api(pb.WatchRunRequest(id=again.id))
    api(pb.PinRunRequest(id=run.id, note="kept"))
    api(pb.PinRunRequest(id=ABSENT))
    api(pb.UnpinRunRequest(id=ABSENT))
    api(pb.DeleteRunRequest(id=run.id))
    api(pb.UnpinRunRequest(id=run.id))
    api(pb.DeleteRunRequest(id=run.id))
    api(pb.DeleteRunRequest(id=run.id))
    api(dead_letter_pb2.ListDeadLettersRequest())
    api(dead_letter_pb2.GetDeadLetterRequest(id=ABSENT))
    api(dead_letter_pb2.RequeueDeadLetterRequest(id=ABSENT))
    api(dead_letter_pb2.DiscardDeadLetterRequest(id=ABSENT))


def _events(api: Api) -> None:
    pb = event_pb2
    event = api(pb.EmitEventRequest(type="ORDER", payload_json="{}", dedupe_key="k")).event
    api(pb.EmitEventRequest(type="ORDER", payload_json="{}", dedupe_key="k"))
    api(pb.GetEventRequest(id=event.id))
    api(pb.GetEventRequest(id=ABSENT))
    api(pb.ListEventsRequest(types=["ORDER"]))


def _schedules(api: Api) -> None:
    pb = schedule_pb2
    rule = pb.ScheduleRule(words="tomorrow at 9am")
    reminder = pb.SCHEDULE_ACTION_REMINDER
    made = api(pb.CreateScheduleRequest(subject="s", rule=rule, action=reminder, dedupe_key="k")).schedule
    api(pb.CreateScheduleRequest(subject="s", rule=rule, action=reminder, dedupe_key="k"))
    api(pb.CreateScheduleRequest(subject="s", rule=rule))
    api(pb.CreateScheduleRequest(subject="s", rule=pb.ScheduleRule(words="NONSENSE"), action=reminder))
    api(pb.GetScheduleRequest(id=made.id))
    api(pb.GetScheduleRequest(id=ABSENT))
    api(pb.ListSchedulesRequest(subject="s"))
    api(pb.CancelScheduleRequest(id=made.id))
    api(pb.CancelScheduleRequest(id=ABSENT))
    api(pb.CancelBySubjectRequest(subject="s"))
    api(pb.InterpretTimeRequest(words="NONSENSE"))


def _hooks(api: Api) -> None:
    pb = hook_pb2
    for name in ("a", "b"):
        api(pb.CreateHookRequest(name=name, event_type="HOOKED", form=pb.HOOK_FORM_HMAC, params={"x": "body.x"}))
    api(pb.CreateHookRequest(name="a", event_type="HOOKED"))
    api(pb.GetHookRequest(name="a"))
    api(pb.GetHookRequest(name=ABSENT))
    page = api(pb.ListHooksRequest(page_size=1))
    api(pb.ListHooksRequest(page_size=1, page_token=page.next_page_token))
    api(pb.DeliverHookRequest(name=ABSENT, body=b"{}"))
    api(pb.DeleteHookRequest(name="a"))
    api(pb.DeleteHookRequest(name="a"))


def _system(api: Api) -> None:
    pb = system_pb2
    api(pb.GetInfoRequest())
    for request in (pb.DrainRequest(), pb.DrainRequest(), pb.ResumeRequest(), pb.ResumeRequest()):
        api(request)


def _answers(address: str) -> list[Answer]:
    with grpc.insecure_channel(address) as channel:
        api = Api(channel)
        script(api)
    return api.answers


def test_the_fake_daemon_answers_as_the_real_one(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        real = _answers(daemon.socket)
    with tempfile.TemporaryDirectory(prefix="tb-") as directory:
        fake_daemon = FakeDaemon(Path(directory) / "toban.sock")
        fake_daemon.start()
        try:
            fake = _answers(fake_daemon.address)
        finally:
            fake_daemon.close()
    assert [each.rpc for each in fake] == [each.rpc for each in real]
    wrong = [text for number, pair in enumerate(zip(fake, real, strict=True)) for text in _differences(number, *pair)]
    assert not wrong, "\n".join(wrong)


def _differences(number: int, fake: Answer, real: Answer) -> list[str]:
    name = f"{number} {fake.rpc}"
    found = []
    if fake.refusal != real.refusal:
        found.append(f"{name}: the fake answers {fake.refusal}, the daemon {real.refusal}")
    if invented := fake.details - real.details:
        found.append(f"{name}: the daemon has no details {invented}, but {real.details}")
    for path, value in fake.values.items():
        if path not in real.values:
            found.append(f"{name}: the daemon does not set {path}")
        elif real.values[path] != value and path != "run.steps.state" and (fake.rpc, path) not in MOVING:
            found.append(f"{name}: {path} is {value} in the fake, {real.values[path]} in the daemon")
    return found
