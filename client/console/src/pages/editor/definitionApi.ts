import { queryOptions } from "@tanstack/react-query";
import { api, data, requestId } from "~/api/client";
import type { Workflow } from "~/pages/workflow/workflowApi";
import type { Schema } from "~/parts/code/schemaWords";

export const definitionSchemaQuery = queryOptions({
  queryKey: ["definition-schema"],
  queryFn: async () => (await data(api.GET("/api/definition_schema"))) as unknown as Schema,
  staleTime: Infinity,
});

/** What the daemon says about a text, without storing it. */
export function problemsQuery(source: string, baseDir: string) {
  return queryOptions({
    queryKey: ["definition-problems", source, baseDir],
    queryFn: async ({ signal }) => {
      const body = { definition: { source, base_dir: baseDir } };
      return (await data(api.POST("/api/validate", { body, signal }))).problems;
    },
    gcTime: 10_000,
    staleTime: Infinity,
    retry: false,
  });
}

export function createWorkflow(source: string): Promise<Workflow> {
  const header = { "Idempotency-Key": requestId() };
  return data(api.POST("/api/workflows", { params: { header }, body: { definition: { source } } }));
}

/** Replaces the definition, if it is still the one with this etag. */
export function updateWorkflow(name: string, source: string, old: Workflow, force: boolean): Promise<Workflow> {
  const header = { "Idempotency-Key": requestId(), "If-Match": `"${old.etag}"` };
  const definition = { source, base_dir: old.definition?.base_dir ?? "" };
  return data(api.PUT("/api/workflows/{name}", { params: { path: { name }, header }, body: { definition, force } }));
}
