"""The bootstrap message: what the daemon hands a shim."""

from __future__ import annotations

from typing import Any

from toband.ports import Launch, SecretMaterial
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch.secret_directories import SecretDirectories


def message_of(launch: Launch, files: RunFiles, secret_directories: SecretDirectories) -> dict[str, Any]:
    """The parts that all systems share, without the timeout, which may depend on when a shim is free. Raises OSError.

    Values of secrets are in `secrets` alone: nothing of that goes into the attempt file.
    """
    attempt = launch.attempt
    message = {
        "attempt": attempt.id,
        "token": attempt.token,
        "dir": files.attempts(attempt.run_id),
        "file": files.log_name(attempt),
        "second": files.claim(attempt),
        "output": files.output(attempt),
        "result": files.result(attempt),
        "argv": list(launch.argv),
        "command": launch.command,
        "title": launch.title,
        "env": dict(launch.env),
        "env_files": _env_files(launch),
        "cwd": launch.workspace,
        "stdin": launch.stdin,
        "timeout_kind": launch.timeout_cause,
        "idle_timeout": launch.idle_timeout,
        "grace": launch.kill_grace,
        "log_limit": launch.log_limit,
        "logs_full": files.logs_full,
    }
    if launch.secrets is not None:
        directory = secret_directories.directory_for(attempt) if launch.secrets.files else ""
        message["secrets"] = _secrets(launch.secrets, directory)
    return message


def _secrets(material: SecretMaterial, directory: str) -> dict[str, Any]:
    return {
        "env": dict(material.env),
        "stdin": material.stdin,
        "files": dict(material.files),
        "directory": directory,
        "masked": list(material.masked),
    }


def _env_files(launch: Launch) -> dict[str, Any] | None:
    if not launch.env_files:
        return None
    return {
        "files": [list(each) for each in launch.env_files],
        "replaced": sorted(launch.env_replaced),
        "allowed": None if launch.env_allowed is None else list(launch.env_allowed),
        "denied": list(launch.env_denied),
    }
