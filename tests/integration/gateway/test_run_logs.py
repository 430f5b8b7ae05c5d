"""The log of a run as server-sent events."""

from __future__ import annotations

import base64
from itertools import islice

from helpers.daemon import Daemon
from helpers.gateway import HttpClient, SentEvent

TALKING = """
name: talking
description: Prints lines, progress and half a line.
steps:
  - id: count
    run: |
      for i in 1 2 3; do echo "line $i"; echo "::progress $i/3 term $i"; done
      printf 'no end' >&2
  - id: other
    run: for i in 1 2 3 4; do echo "other $i"; done
"""
FAILING = """
name: failing
description: Raises.
steps:
  - id: raise
    run: |
      python3 -c 'raise ValueError("そう")'
"""
FIELDS = {"run_id", "level", "message", "step", "progress_current", "progress_total", "current_term", "traceback"}


def lines(events: list[SentEvent]) -> list[tuple[str, str]]:
    return sorted((each.data["step"], each.data["message"]) for each in events if each.id)


EXPECTED = sorted(
    [("count", f"line {n}") for n in (1, 2, 3)]
    + [("count", "no end")]
    + [("other", f"other {n}") for n in (1, 2, 3, 4)]
)


def test_a_late_subscriber_gets_everything_and_then_the_end(daemon: Daemon, viewer: HttpClient) -> None:
    daemon.apply(TALKING)
    run = daemon.run("talking")
    events = list(viewer.events(f"/api/workflow_runs/{run.id}/logs"))
    assert lines(events) == EXPECTED
    assert all(set(each.data) >= FIELDS for each in events[:-1])
    levels = {each.data["message"]: each.data["level"] for each in events if each.id}
    assert (levels["line 1"], levels["no end"]) == ("info", "warning")
    reported = [each.data for each in events if each.data.get("progress_current")]
    assert (reported[-1]["progress_total"], reported[-1]["current_term"]) == (3, "term 3")
    assert events[-1] == SentEvent(
        name="complete",
        id="",
        data={
            "run_id": run.id,
            "complete": True,
            "db_status": "completed",
            "state": "succeeded",
            "status_update_failed": False,
        },
    )


def test_a_stream_goes_on_after_the_id_of_any_line(daemon: Daemon, viewer: HttpClient) -> None:
    daemon.apply(TALKING.replace("talking", "resumed"))
    path = f"/api/workflow_runs/{daemon.run('resumed').id}/logs"
    whole = [each for each in viewer.events(path) if each.id]
    assert len({each.id for each in whole}) == len(whole)
    for index, last in enumerate(whole):
        seen, rest = whole[: index + 1], list(viewer.events(path, Last_Event_ID=last.id))
        assert lines(seen + rest) == EXPECTED, index
        assert rest[-1].name == "complete"
    assert lines([*whole[:1], *viewer.events(f"{path}?position={whole[0].id}")]) == EXPECTED


def test_lines_arrive_while_the_run_goes_on(daemon: Daemon, viewer: HttpClient, tmp_path: object) -> None:
    gate = f"{tmp_path}/go"
    daemon.apply(f"""
name: live
description: Waits for a file.
steps:
  - id: wait
    run: |
      echo first
      until [ -e {gate} ]; do sleep 0.02; done
      echo second
""")
    path = f"/api/workflow_runs/{daemon.start_run('live')}/logs"
    events = viewer.events(path)
    (first,) = islice(events, 1)
    assert first.data["message"] == "first"
    events.close()  # type: ignore[attr-defined]
    again = viewer.events(path, Last_Event_ID=first.id)
    with open(gate, "w"):
        pass
    assert [each.data.get("message") for each in again] == ["second", None]


def test_the_end_of_a_failed_run_has_its_cause_and_the_traceback(daemon: Daemon, viewer: HttpClient) -> None:
    daemon.apply(FAILING)
    run = daemon.run("failing")
    *_, cause, end = viewer.events(f"/api/projects/failing/runs/{run.id}/logs")
    assert (cause.data["level"], cause.data["step"]) == ("error", "raise")
    assert cause.data["traceback"].endswith("ValueError: そう")
    assert (end.name, end.data["db_status"]) == ("complete", "failed")


def test_the_bytes_are_downloaded(daemon: Daemon, viewer: HttpClient) -> None:
    daemon.apply(TALKING.replace("talking", "bytes").replace("printf 'no end'", "printf '\\377\\033[1m no end'"))
    run = daemon.run("bytes")
    path = f"/api/workflow_runs/{run.id}/logs/raw"
    assert viewer.get(f"{path}?streams=stderr").body == b"\xff\033[1m no end"
    count = viewer.get(f"{path}?step=count&streams=stdout")
    assert count.body == b"".join(b"line %d\n::progress %d/3 term %d\n" % (n, n, n) for n in (1, 2, 3))
    assert count.headers["content-disposition"] == "attachment; filename*=UTF-8''bytes-1-count.log"
    assert viewer.get(path).body.endswith(b"other 4\n")
    assert viewer.get("/api/workflow_runs/01a1f5d2-267b-705e-91f9-f1404222216a/logs/raw").reason == "RUN_NOT_FOUND"
    assert viewer.get(f"{path}?tail=1").status == 422


def test_filters_and_refusals(daemon: Daemon, viewer: HttpClient) -> None:
    daemon.apply(TALKING.replace("talking", "filtered"))
    path = f"/api/workflow_runs/{daemon.run('filtered').id}/logs"
    assert {each.data["step"] for each in viewer.events(f"{path}?step=other") if each.id} == {"other"}
    assert [each.data["message"] for each in viewer.events(f"{path}?streams=stderr") if each.id] == ["no end"]
    assert viewer.get("/api/workflow_runs/01a1f5d2-267b-705e-91f9-f1404222216a/logs").reason == "RUN_NOT_FOUND"
    for query in ("tail=x", "streams=loud", "nothing=1", "position=%2f"):
        assert viewer.get(f"{path}?{query}").status == 422, query


def test_lines_are_read_by_number_and_found_by_text(daemon: Daemon, viewer: HttpClient) -> None:
    daemon.apply(TALKING.replace("talking", "read"))
    run = daemon.run("read").id
    page = viewer.get(f"/api/workflow_runs/{run}/lines?step=other&first_line=3&lines=1").data
    assert [(each["number"], base64.b64decode(each["data"])) for each in page["lines"]] == [(3, b"other 3")]
    assert (page["total_lines"], page["complete"]) == (4, True)
    process = page["process_execution_id"]
    last = viewer.get(f"/api/process_logs/{process}/lines?first_line=-1").data["lines"]
    assert [base64.b64decode(each["data"]) for each in last] == [b"other 4"]
    found = viewer.get(f"/api/workflow_runs/{run}/search?text=LINE&ignore_case=true").data["matches"]
    assert [(each["step"], each["line"]["number"]) for each in found] == [("count", n) for n in (1, 2, 3)]
    assert len(viewer.get(f"/api/process_logs/{process}/search?text=other").data["matches"]) == 4
    assert viewer.get(f"/api/process_logs/{process}/search").status == 422
