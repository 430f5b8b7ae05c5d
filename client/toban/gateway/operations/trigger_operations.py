"""Events, hooks, and schedules of subjects."""

from __future__ import annotations

from typing import Final

from toban.gateway.operation import Operation

EVENTS: Final = (
    Operation(
        id="listEvents",
        method="GET",
        path="/events",
        rpc="EventService/ListEvents",
        summary="Lists events, newest first.",
    ),
    Operation(
        id="emitEvent",
        method="POST",
        path="/events",
        rpc="EventService/EmitEvent",
        summary="Stores an event, which starts the workflows that listen to it.",
        result="event",
        status=201,
        left_out=("origin",),
        needed=("type",),
    ),
    Operation(
        id="resolveEvent",
        method="POST",
        path="/events/resolve",
        rpc="EventService/ResolveEvent",
        summary="Shows which workflows an event would start, and why the others not. Emits nothing.",
    ),
    Operation(
        id="getEvent",
        method="GET",
        path="/events/{id}",
        rpc="EventService/GetEvent",
        summary="Returns one event with its runs.",
        result="event",
    ),
)

HOOKS: Final = (
    Operation(
        id="listHooks",
        method="GET",
        path="/hooks",
        rpc="HookService/ListHooks",
        summary="Lists hooks by name, without their secrets.",
    ),
    Operation(
        id="createHook",
        method="POST",
        path="/hooks",
        rpc="HookService/CreateHook",
        summary="Creates a hook; the answer has the secret that the daemon made for the only time.",
        result="hook",
        status=201,
        needed=("name",),
    ),
    Operation(
        id="getHook",
        method="GET",
        path="/hooks/{name}",
        rpc="HookService/GetHook",
        summary="Returns a hook, without its secret.",
        result="hook",
    ),
    Operation(
        id="deleteHook",
        method="DELETE",
        path="/hooks/{name}",
        rpc="HookService/DeleteHook",
        summary="Deletes a hook: deliveries to it are refused.",
        status=204,
    ),
)

SCHEDULES: Final = (
    Operation(
        id="listSchedules",
        method="GET",
        path="/schedules",
        rpc="ScheduleService/ListSchedules",
        summary="Lists schedules of subjects, by their next due time.",
    ),
    Operation(
        id="createSchedule",
        method="POST",
        path="/schedules",
        rpc="ScheduleService/CreateSchedule",
        summary="Schedules a reminder or a workflow for a subject.",
        result="schedule",
        status=201,
        needed=("subject", "rule"),
    ),
    Operation(
        id="interpretTime",
        method="POST",
        path="/schedules/interpret",
        rpc="ScheduleService/InterpretTime",
        summary="Shows how a time in words is understood. Stores nothing.",
        needed=("words",),
    ),
    Operation(
        id="cancelSchedulesOfSubject",
        method="POST",
        path="/schedules/cancel",
        rpc="ScheduleService/CancelBySubject",
        summary="Cancels every schedule of a subject.",
        needed=("subject",),
    ),
    Operation(
        id="getSchedule",
        method="GET",
        path="/schedules/{id}",
        rpc="ScheduleService/GetSchedule",
        summary="Returns one schedule with its next due times.",
        result="schedule",
    ),
    Operation(
        id="cancelSchedule",
        method="DELETE",
        path="/schedules/{id}",
        rpc="ScheduleService/CancelSchedule",
        summary="Cancels a schedule; the answer has it as it is then.",
        result="schedule",
    ),
)
