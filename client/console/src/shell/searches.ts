import type { AuditFilter } from "~/api/queries";
import type { AccessView } from "~/pages/access/AccessPage";
import type { ScheduleView } from "~/pages/schedules/SchedulesPage";

/** What the address of a page may say behind the `?`. What is not understood is left out. */
export function texts<Name extends string>(
  given: Record<string, unknown>,
  names: readonly Name[],
): Partial<Record<Name, string>> {
  const found: Partial<Record<Name, string>> = {};
  for (const name of names) {
    const value = given[name];
    if (typeof value === "string" && value) found[name] = value;
    if (typeof value === "number") found[name] = String(value);
  }
  return found;
}

export interface SchedulesSearch {
  view?: ScheduleView;
  subject?: string;
  ended?: true;
  workflow?: string;
}

export function schedulesSearch(given: Record<string, unknown>): SchedulesSearch {
  return {
    ...texts(given, ["subject", "workflow"]),
    ...(given.view === "subjects" || given.view === "ledger" ? { view: given.view } : {}),
    ...(given.ended === true ? { ended: true } : {}),
  };
}

export interface AccessSearch extends AuditFilter {
  view?: AccessView;
}

export function accessSearch(given: Record<string, unknown>): AccessSearch {
  const { view, outcome } = given;
  return {
    ...texts(given, ["actor", "method", "target"]),
    ...(view === "tokens" || view === "sessions" || view === "audit" ? { view } : {}),
    ...(outcome === "done" || outcome === "refused" ? { outcome } : {}),
  };
}
