"""Every command of the first level: its summary, and the module of `commands/` that has it.

A module defines either a Group `app` or a function with the name of the command. Short forms lead to commands of the
second level. Loaded for each call of `toban`, so this imports nothing of weight.
"""

from __future__ import annotations

import sys
from typing import Final

from toban.cli.syntax.program import ProgramEntry

_SERVICE: Final = (
    ProgramEntry("service", "Install and manage the daemon as a service of Windows.", "service_of_windows")
    if sys.platform == "win32"
    else ProgramEntry("service", "Install and manage the daemon as a service of systemd.", "service")
)
SECTIONS: Final = {
    "Definitions": (
        ProgramEntry("init", "Write a first workflow, with comments.", "init"),
        ProgramEntry("apply", "Create or update the workflows and jobs in files.", "apply"),
        ProgramEntry("validate", "Check definitions offline and show every problem.", "validate"),
        ProgramEntry("workflows", "Show and manage stored workflows.", "workflows"),
        ProgramEntry("jobs", "Show, run and manage stored jobs.", "jobs"),
        ProgramEntry("import", "Write workflow files from the jobs of another scheduler.", "import_"),
    ),
    "Overview": (
        ProgramEntry("status", "Show the daemon, every workflow, and what failed lately.", "status"),
        ProgramEntry("top", "Show the live use of CPU and memory, by steps and the daemon.", "top"),
    ),
    "Runs": (
        ProgramEntry("run", "Start a run of a workflow.", "run"),
        ProgramEntry("runs", "Show and control runs.", "runs"),
        ProgramEntry("logs", "Show the output of a run.", "logs"),
        ProgramEntry("processes", "Show the processes that were started for runs.", "processes"),
        ProgramEntry("dead-letters", "Handle steps whose retries are exhausted.", "dead_letters"),
    ),
    "Schedules and events": (
        ProgramEntry("backfill", "Start a run for each due time of the past, oldest first.", "backfill"),
        ProgramEntry("why", "Explain why a workflow did or did not run.", "why"),
        ProgramEntry("schedule", "Schedule a reminder or a workflow for a subject.", "schedule"),
        ProgramEntry("schedules", "Show and cancel schedules of subjects.", "schedules"),
        ProgramEntry("emit", "Emit an event, and show the runs that it started.", "emit"),
        ProgramEntry("events", "Show events and the runs that they start.", "events"),
        ProgramEntry("hooks", "Let deliveries of other systems start workflows.", "hooks"),
    ),
    "Daemon": (
        ProgramEntry("dev", "Run a daemon in the foreground, to try things out.", "dev"),
        ProgramEntry("web", "Serve the console and the HTTP API of a daemon.", "web"),
        _SERVICE,
        ProgramEntry("locks", "Show which runs and steps hold locks and wait for them.", "locks"),
        ProgramEntry("system", "Inspect and maintain the daemon.", "system"),
        ProgramEntry("backup", "Write a backup of the daemon's whole state.", "backup"),
        ProgramEntry("restore", "Make a state directory from a backup.", "restore"),
    ),
    "Access": (
        ProgramEntry("whoami", "Show who you are to the daemon, and what you may do.", "whoami"),
        ProgramEntry("access", "Show who may reach the daemon; make certificates.", "access"),
        ProgramEntry("tokens", "Create, list and revoke tokens.", "tokens"),
        ProgramEntry("sessions", "Create, list and revoke short-lived tokens of your own.", "sessions"),
        ProgramEntry("secrets", "Store secrets, and grant them to workflows.", "secrets"),
        ProgramEntry("audit", "Show, verify and export the audit log.", "audit"),
    ),
    "Short forms": (
        ProgramEntry("ps", "List active runs with their steps.", words=("runs", "list", "--active")),
        ProgramEntry("show", "Show a run.", words=("runs", "show")),
        ProgramEntry("watch", "Watch a run until it ends.", words=("runs", "watch")),
        ProgramEntry("cancel", "Cancel a run.", words=("runs", "cancel")),
        ProgramEntry("retry", "Retry a run.", words=("runs", "retry")),
        ProgramEntry("approve", "Approve a step that waits for approval.", words=("runs", "approve")),
        ProgramEntry("next", "Show the next due times of a workflow.", words=("workflows", "next")),
    ),
    "This program": (
        ProgramEntry("context", "Name daemons, and choose the one to use.", "context"),
        ProgramEntry("completion", "Print the completion script for a shell.", "completion"),
        ProgramEntry("man", "Print a manual page, for `man -l -`, or write all of them.", "man"),
        ProgramEntry("schema", "Print the JSON Schema of what -o json writes.", "json_schema"),
        ProgramEntry("version", "Show the version of this client.", "version"),
    ),
}
# What people type who know other programs. After a noun the last word counts: `runs stop` means `runs cancel`.
MEANT: Final = {
    "abort": "cancel",
    "config": "system config",
    "create": "apply",
    "delete": "runs delete",
    "describe": "show",
    "doctor": "system doctor",
    "get": "show",
    "health": "system info",
    "history": "runs list",
    "info": "system info",
    "kill": "cancel",
    "lint": "validate",
    "list": "runs list",
    "login": "context add",
    "ls": "runs list",
    "pause": "runs pause",
    "remove": "runs delete",
    "rerun": "retry",
    "resume": "runs resume",
    "rm": "runs delete",
    "start": "run",
    "stop": "cancel",
    "tail": "logs",
    "timers": "next",
    "trigger": "run",
}
