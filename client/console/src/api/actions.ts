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

export function retryRun(id: string, fromSteps: string[] = []): Promise<Run> {
  return data(
    api.POST("/api/workflow_runs/{id}/retry", {
      params: { path: { id }, ...key() },
      body: { from_steps: fromSteps },
    }),
  );
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
