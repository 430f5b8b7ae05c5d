import { queryOptions } from "@tanstack/react-query";
import { problemOf } from "~/api/problem";

export type LogStream = "stdout" | "stderr" | "system";

export interface LogLine {
  text: string;
  step: string;
  attempt: number;
  at: string;
  stream: LogStream;
  level: string;
}

interface Sent {
  message: string;
  step: string | null;
  level: string;
  attempt?: number;
  at?: string;
  stream?: LogStream;
}

const LAST = 12;

/** A line of an event of the stream; undefined for progress and the cause at the end, which are no part of the log. */
export function lineOf(data: string): LogLine | undefined {
  const { message, step, level, attempt, at, stream } = JSON.parse(data) as Sent;
  if (at === undefined || stream === undefined) return undefined;
  return { text: message, step: step ?? "", attempt: attempt ?? 1, at, stream, level };
}

export interface LogChoice {
  step?: string | undefined;
  attempt?: number | undefined;
  stream?: LogStream | undefined;
}

export function logAddress(runId: string, what: "logs" | "logs/raw", choice: LogChoice, more = {}): string {
  const query = new URLSearchParams(more);
  if (choice.step) query.set("step", choice.step);
  if (choice.attempt) query.set("attempt", String(choice.attempt));
  if (choice.stream) query.set("streams", choice.stream);
  const text = query.toString();
  return `/api/workflow_runs/${encodeURIComponent(runId)}/${what}${text ? `?${text}` : ""}`;
}

/** The last lines of an attempt. */
export function lastLinesQuery(runId: string, step: string, attempt: number) {
  return queryOptions({
    queryKey: ["run", runId, "last lines", step, attempt],
    queryFn: async () => {
      const choice = { step, attempt };
      const response = await fetch(logAddress(runId, "logs", choice, { tail: String(LAST), follow: "false" }));
      if (!response.ok) throw await problemOf(response);
      return lastLines(await response.text());
    },
  });
}

function lastLines(events: string): LogLine[] {
  const found: LogLine[] = [];
  for (const event of events.split("\n\n")) {
    const fields = event.split("\n");
    if (fields.some((field) => field.startsWith("event:"))) continue;
    const data = fields.find((field) => field.startsWith("data: "));
    const line = data ? lineOf(data.slice(6)) : undefined;
    if (line) found.push(line);
  }
  return found.slice(-LAST);
}
