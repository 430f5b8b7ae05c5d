"""The daemon: its health, configuration and locks, access to it, and the names of its secrets."""

from __future__ import annotations

from typing import Final

from toban.gateway.operation import Operation

SYSTEM: Final = (
    Operation(
        id="getSystem",
        method="GET",
        path="/system",
        rpc="SystemService/GetInfo",
        summary="Returns the version, the health, and the numbers of what runs and waits.",
    ),
    Operation(
        id="getConfig",
        method="GET",
        path="/system/config",
        rpc="SystemService/GetConfig",
        summary="Returns the configuration, with the source of each value; secrets are hidden.",
    ),
    Operation(
        id="reloadConfig",
        method="POST",
        path="/system/config/reload",
        rpc="SystemService/ReloadConfig",
        summary="Reads the configuration again, and applies what needs no restart.",
    ),
    Operation(
        id="runDoctor",
        method="POST",
        path="/system/doctor",
        rpc="SystemService/Doctor",
        summary="Checks the daemon and its machine.",
        within=120.0,
    ),
    Operation(
        id="drainSystem",
        method="POST",
        path="/system/drain",
        rpc="SystemService/Drain",
        summary="Keeps schedules and events from starting runs.",
    ),
    Operation(
        id="resumeSystem",
        method="POST",
        path="/system/resume",
        rpc="SystemService/Resume",
        summary="Ends a drain.",
    ),
    Operation(
        id="reloadDefinitions",
        method="POST",
        path="/system/reload",
        rpc="SystemService/Reload",
        summary="Reads the definition files again.",
        within=120.0,
    ),
    Operation(
        id="collectGarbage",
        method="POST",
        path="/system/gc",
        rpc="SystemService/CollectGarbage",
        summary="Removes what retention no longer keeps.",
        within=120.0,
    ),
    Operation(
        id="listLocks",
        method="GET",
        path="/system/locks",
        rpc="SystemService/ListLocks",
        summary="Lists locks, with the runs and steps that hold them and wait for them.",
    ),
)

ACCESS: Final = (
    Operation(
        id="getAccess",
        method="GET",
        path="/access",
        rpc="AccessService/GetAccess",
        summary="Returns the addresses of the daemon with their roles, and whether steps are separated from it.",
    ),
    Operation(
        id="listTokens",
        method="GET",
        path="/access/tokens",
        rpc="AccessService/ListTokens",
        summary="Lists tokens, oldest first, without their texts.",
    ),
    Operation(
        id="createToken",
        method="POST",
        path="/access/tokens",
        rpc="AccessService/CreateToken",
        summary="Creates a token; the answer has its text for the only time.",
        status=201,
        needed=("name", "role"),
    ),
    Operation(
        id="revokeToken",
        method="DELETE",
        path="/access/tokens/{token}",
        rpc="AccessService/RevokeToken",
        summary="Ends a token, given by name or id, at once; the answer has it as it is then.",
        result="token",
    ),
    Operation(
        id="listSessions",
        method="GET",
        path="/access/sessions",
        rpc="AccessService/ListSessions",
        summary="Lists the valid sessions of the caller; those of all callers for an admin.",
    ),
    Operation(
        id="revokeSession",
        method="DELETE",
        path="/access/sessions/{id}",
        rpc="AccessService/RevokeSession",
        summary="Ends a session at once; the answer has it as it was.",
        result="session",
    ),
    Operation(
        id="listAudit",
        method="GET",
        path="/audit",
        rpc="AccessService/ListAuditEntries",
        summary="Lists entries of the audit log, newest first.",
    ),
    Operation(
        id="verifyAudit",
        method="POST",
        path="/audit/verify",
        rpc="AccessService/VerifyAudit",
        summary="Computes the hashes of the audit log again.",
        within=120.0,
    ),
    Operation(
        id="listSecrets",
        method="GET",
        path="/secrets",
        rpc="SecretService/ListSecrets",
        summary="Lists secrets by name, without their values.",
    ),
)
