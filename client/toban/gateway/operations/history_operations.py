"""What ran, summed up for calendars, grids and pictures."""

from __future__ import annotations

from typing import Final

from toban.gateway.operation import Operation

HISTORY: Final = (
    Operation(
        id="countRunsByDay",
        method="GET",
        path="/runs_by_day",
        rpc="HistoryService/CountRunsByDay",
        summary="Counts the runs of each day by state, for a calendar of up to a year.",
    ),
    Operation(
        id="listRunGrid",
        method="GET",
        path="/workflows/{workflow}/grid",
        rpc="HistoryService/ListRunGrid",
        summary="Returns the newest runs with the state of each step: a grid of runs and steps.",
    ),
    Operation(
        id="getEventChain",
        method="GET",
        path="/events/{id}/chain",
        rpc="HistoryService/GetEventChain",
        summary="Returns what an event started: its runs, the events that these emitted, and so on.",
    ),
)
