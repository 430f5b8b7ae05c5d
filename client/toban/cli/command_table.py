"""Every command of the first level: its summary, and the module of `commands/` that has it.

A module defines either a Group `app` or a function with the name of the command. Short forms lead to commands of the
second level. Loaded for each call of `toban`, so this imports nothing of weight.
"""

from __future__ import annotations

from typing import Final

from toban.cli.syntax.program import Entry

SECTIONS: Final = {
    "Definitions": (
        Entry("init", "Write a first workflow, with comments.", "init"),
        Entry("apply", "Create or update the workflows and jobs in files.", "apply"),
        Entry("validate", "Check definitions offline and show every problem.", "validate"),
        Entry("workflows", "Show and manage stored workflows.", "workflows"),
        Entry("jobs", "Show, run and manage stored jobs.", "jobs"),
        Entry("import", "Write workflow files from the jobs of another scheduler.", "import_"),
    ),
    "Overview": (
        Entry("status", "Show the daemon, every workflow, and what failed lately.", "status"),
        Entry("top", "Show running steps by their use of CPU and memory.", "top"),
    ),
    "Runs": (
        Entry("run", "Start a run of a workflow.", "run"),
        Entry("runs", "Show and control runs.", "runs"),
        Entry("logs", "Show the output of a run.", "logs"),
        Entry("processes", "Show the processes that were started for runs.", "processes"),
        Entry("dead-letters", "Handle steps whose retries are exhausted.", "dead_letters"),
    ),
    "Schedules and events": (
        Entry("backfill", "Start a run for each due time of the past, oldest first.", "backfill"),
        Entry("why", "Explain why a workflow did or did not run.", "why"),
        Entry("schedule", "Schedule a reminder or a workflow for a subject.", "schedule"),
        Entry("schedules", "Show and cancel schedules of subjects.", "schedules"),
        Entry("emit", "Emit an event, and show the runs that it started.", "emit"),
        Entry("events", "Show events and the runs that they start.", "events"),
    ),
    "Daemon": (
        Entry("dev", "Run a daemon in the foreground, to try things out.", "dev"),
        Entry("locks", "Show which runs and steps hold locks and wait for them.", "locks"),
        Entry("system", "Inspect and maintain the daemon.", "system"),
    ),
    "Short forms": (
        Entry("ps", "List active runs with their steps.", words=("runs", "list", "--active")),
        Entry("show", "Show a run.", words=("runs", "show")),
        Entry("watch", "Watch a run until it ends.", words=("runs", "watch")),
        Entry("cancel", "Cancel a run.", words=("runs", "cancel")),
        Entry("retry", "Retry a run.", words=("runs", "retry")),
        Entry("approve", "Approve a step that waits for approval.", words=("runs", "approve")),
        Entry("next", "Show the next due times of a workflow.", words=("workflows", "next")),
    ),
    "This program": (
        Entry("context", "Name daemons, and choose the one to use.", "context"),
        Entry("completion", "Print the completion script for a shell.", "completion"),
        Entry("man", "Print a manual page, for `man -l -`, or write all of them.", "man"),
        Entry("schema", "Print the JSON Schema of what -o json writes.", "schema"),
        Entry("version", "Show the version of this client.", "version"),
    ),
}
