"""Workflows, runs, events and the like, such as a small company has them: what the pages of the console show."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.daemon import Daemon
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import dead_letter_pb2, event_pb2, run_pb2, schedule_pb2, secret_pb2, secret_pb2_grpc, workflow_pb2

DEFINITIONS = """
id: nightly-batch
name: 夜間バッチ
description: 毎晩データを取得して集計し、レポートを送る
labels: {team: data}
schedule: "0 3 * * *"
timezone: Asia/Tokyo
steps:
  - {id: fetch, name: データ取得, run: "for n in 1 2 3; do echo \\"ページ $n を取得\\"; done"}
  - {id: count, name: 集計, run: "echo '::progress 3/3 集計しました'; echo 合計 1,284 件"}
  - {id: send, name: レポート送付, run: "echo 送付しました"}
---
name: web-deploy
title: Deploy the web site
description: Builds and tests a revision, waits for a person, and puts it online
labels: {team: web, tier: production}
params:
  revision: {type: string, default: main, description: Branch or commit}
steps:
  build: {run: "echo building {{ params.revision }}"}
  test: {run: "echo 214 tests passed", depends_on: [build]}
  lint: {run: "echo no findings", depends_on: [build]}
  release: {job_type: approval, depends_on: [test, lint]}
  publish: {run: "echo online", depends_on: [release]}
---
name: invoice-export
title: Export of invoices
description: Sends the invoices of the day to accounting
labels: {team: finance}
schedule: {every: 1h}
steps:
  collect: {run: "echo 12 invoices"}
  upload:
    depends_on: [collect]
    run: "echo connecting to accounting.example.com; echo 'error: 503 Service Unavailable' >&2; exit 1"
    on_failure: retry
    max_retries: 1
    retry: {delay: 100ms}
---
name: image-resize
title: Resize uploaded images
description: Makes thumbnails of every uploaded image
on: [{event: IMAGE_UPLOADED}]
steps:
  resize:
    for_each: [small, medium, large]
    run: "echo {{ item }}"
  announce: {run: "@PYTHON@ -m toban.cli emit THUMBNAILS_READY", depends_on: [resize]}
---
name: gallery
title: Publish the gallery
description: Puts new thumbnails into the gallery
on: [{event: THUMBNAILS_READY}]
steps:
  publish: {run: "echo published"}
---
name: search-index
title: Index images
description: Makes new images findable
on: [{event: THUMBNAILS_READY}]
steps:
  index: {run: "echo indexed"}
---
name: sync-inventory
title: 在庫の同期
description: 倉庫と店舗の在庫を同期する
labels: {team: store}
steps:
  sync: {run: "echo '::progress 340/900 倉庫Aを同期中'; read -r _ < '@GATE@'"}
  verify: {run: "echo ok", depends_on: [sync]}
---
name: old-report
title: Report of the old shop
description: Not needed since the new shop is online
enabled: false
schedule: "@daily"
steps:
  report: {run: "true"}
---
jobs:
  notify:
    title: Tell the team
    description: Sends a message to the chat of the team
    run: "echo \\"$1\\""
"""


def fill(daemon: Daemon, directory: Path) -> dict[str, str]:
    """Stores all of it. Returns ids by name: `failed`, `succeeded`, `approval` and `running` are runs.

    The running one is held at the gate in the directory.
    """
    gate = Gate(str(directory / "gate"))
    text = DEFINITIONS.replace("@GATE@", gate.path).replace("@PYTHON@", sys.executable)
    texts = [workflow_pb2.DefinitionText(definition=workflow_pb2.Definition(source=text), file="sample.yaml")]
    daemon.workflows.ApplyDefinitions(workflow_pb2.ApplyDefinitionsRequest(texts=texts), timeout=60)

    found = {}
    for _ in range(4):
        found["succeeded"] = daemon.run("nightly-batch").id
    for _ in range(2):
        found["failed"] = daemon.run("invoice-export").id
    found["cancelled"] = daemon.start_run("web-deploy", revision="v1.3")
    _wait_for_approval(daemon, found["cancelled"])
    daemon.cancel(found["cancelled"])
    daemon.wait_run(found["cancelled"])
    found["approval"] = daemon.start_run("web-deploy", revision="v1.4")
    _wait_for_approval(daemon, found["approval"])
    event = daemon.emit("IMAGE_UPLOADED", {"file": "cat.jpg", "bytes": 482113})
    _wait_for_runs(daemon, event.id)
    for each in daemon.events.ListEvents(event_pb2.ListEventsRequest(types=["THUMBNAILS_READY"]), timeout=60).events:
        _wait_for_runs(daemon, each.id)
    found["event"] = event.id
    daemon.emit("NOBODY_LISTENS", {"note": "stored all the same"})
    found["running"] = daemon.start_run("sync-inventory")
    daemon.wait_started(found["running"], "sync")
    _schedules(daemon)
    secrets = secret_pb2_grpc.SecretServiceStub(daemon.channel)
    secrets.SetSecret(
        secret_pb2.SetSecretRequest(name="ACCOUNTING_TOKEN", value="not-a-real-token", workflows=["invoice-*"]),
        timeout=60,
    )
    letters = daemon.dead_letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest(), timeout=60).dead_letters
    found["dead_letter"] = letters[0].id
    return found


def _wait_for_runs(daemon: Daemon, event_id: str) -> None:
    def ended() -> bool:
        return daemon.events.GetEvent(event_pb2.GetEventRequest(id=event_id), timeout=60).all_ended

    wait_until(ended, "the runs of an event do not end")


def _wait_for_approval(daemon: Daemon, run_id: str) -> None:
    wait_until(
        lambda: daemon.get_run(run_id).waiting_for == run_pb2.WAITING_FOR_APPROVAL, "the run does not wait for approval"
    )


def _schedules(daemon: Daemon) -> None:
    for subject, words, action in (
        ("issue-42", "in 3 days at 9am", "REMINDER"),
        ("issue-42", "every monday at 10:00", "CHECK_PROGRESS"),
        ("issue-57", "毎日午後3時", "FOLLOW_UP"),
    ):
        daemon.schedules.CreateSchedule(
            schedule_pb2.CreateScheduleRequest(
                subject=subject,
                rule=schedule_pb2.ScheduleRule(words=words),
                timezone="Asia/Tokyo",
                action=schedule_pb2.ScheduleAction.Value(f"SCHEDULE_ACTION_{action}"),
            ),
            timeout=60,
        )
