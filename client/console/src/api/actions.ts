import { api, data, requestId, type Schemas } from "./client";
import type { Run } from "./queries";

const key = () => ({ header: { "Idempotency-Key": requestId() } });

export function startRun(workflow: string, params: Record<string, unknown> = {}): Promise<Run> {
  return data(
    api.POST("/api/workflows/{workflow}/run", {
      params: { path: { workflow }, ...key() },
      body: { params: params as Record<string, never>, triggered_by: "manual" },
    }),
  );
}

export function cancelRun(id: string): Promise<Run> {
  return data(api.POST("/api/workflow_runs/{id}/cancel", { params: { path: { id } }, body: {} }));
}

/** Which steps are repeated: without any choice those that did not succeed. */
export interface RetryHow {
  from_steps?: string[];
  everything?: boolean;
  newest_version?: boolean;
  skip?: string[];
  skip_note?: string;
}

export function retryRun(id: string, how: RetryHow = {}): Promise<Run> {
  return data(api.POST("/api/workflow_runs/{id}/retry", { params: { path: { id }, ...key() }, body: how }));
}

export function pauseRun(id: string): Promise<Run> {
  return data(api.POST("/api/workflow_runs/{id}/pause", { params: { path: { id } } }));
}

export function resumeRun(id: string): Promise<Run> {
  return data(api.POST("/api/workflow_runs/{id}/resume", { params: { path: { id } } }));
}

export function decideApproval(runId: string, step: string, approve: boolean, note: string): Promise<Run> {
  return data(
    api.POST("/api/workflow_runs/{run_id}/approve", {
      params: { path: { run_id: runId } },
      body: { step, decision: approve ? "approved" : "rejected", note },
    }),
  );
}

export function requeueDeadLetter(id: string): Promise<Schemas["RequeueDeadLetterResponse"]> {
  return data(api.POST("/api/dead_letters/{id}/requeue", { params: { path: { id }, ...key() } }));
}

export function discardDeadLetter(id: string): Promise<Schemas["DeadLetter"]> {
  return data(api.POST("/api/dead_letters/{id}/discard", { params: { path: { id } } }));
}

export function emitEvent(type: string, payload: string): Promise<Schemas["Event"]> {
  return data(api.POST("/api/events", { params: key(), body: { type, payload_json: payload } }));
}

export function createSchedule(schedule: {
  subject: string;
  words: string;
  timezone: string;
  action: NonNullable<Schemas["Schedule"]["action"]> | "";
  workflow: string;
}): Promise<Schemas["Schedule"]> {
  const { subject, words, timezone, action, workflow } = schedule;
  return data(
    api.POST("/api/schedules", {
      params: key(),
      body: { subject, rule: { words }, timezone, workflow, ...(action ? { action } : {}) },
    }),
  );
}

export function cancelSchedule(id: string): Promise<Schemas["Schedule"]> {
  return data(api.DELETE("/api/schedules/{id}", { params: { path: { id } } }));
}

export function runJob(name: string): Promise<Run> {
  return data(
    api.POST("/api/jobs/{name}/run", { params: { path: { name }, ...key() }, body: { triggered_by: "manual" } }),
  );
}

export async function setDraining(draining: boolean): Promise<void> {
  await (draining ? api.POST("/api/system/drain") : api.POST("/api/system/resume"));
}

export function runDoctor(repair: boolean): Promise<Schemas["DoctorResponse"]> {
  return data(api.POST("/api/system/doctor", { body: { repair } }));
}

export function reloadDefinitions(): Promise<Schemas["ReloadResponse"]> {
  return data(api.POST("/api/system/reload"));
}

export function reloadConfig(): Promise<Schemas["ReloadConfigResponse"]> {
  return data(api.POST("/api/system/config/reload"));
}

export function collectGarbage(dryRun: boolean): Promise<Schemas["CollectGarbageResponse"]> {
  return data(api.POST("/api/system/gc", { body: { dry_run: dryRun } }));
}

export function createToken(
  name: string,
  role: NonNullable<Schemas["Token"]["role"]>,
  workflows: string[],
  expiresAt: string,
): Promise<Schemas["CreateTokenResponse"]> {
  return data(
    api.POST("/api/access/tokens", {
      body: {
        name,
        role,
        ...(workflows.length > 0 ? { narrowing: { workflows } } : {}),
        ...(expiresAt ? { expires_at: expiresAt } : {}),
      },
    }),
  );
}

export function revokeToken(token: string): Promise<Schemas["Token"]> {
  return data(api.DELETE("/api/access/tokens/{token}", { params: { path: { token } } }));
}

export function revokeSession(id: string): Promise<Schemas["Session"]> {
  return data(api.DELETE("/api/access/sessions/{id}", { params: { path: { id } } }));
}

export function verifyAudit(): Promise<Schemas["VerifyAuditResponse"]> {
  return data(api.POST("/api/audit/verify", { body: {} }));
}
