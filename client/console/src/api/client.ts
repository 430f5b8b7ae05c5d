import createClient from "openapi-fetch";
import { setConnection } from "./connection";
import { Problem, problemOf } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

const sessionOver = new Set<() => void>();

/** Calls the listener when an answer says that nobody is logged in any more. */
export function onSessionOver(listener: () => void): () => void {
  sessionOver.add(listener);
  return () => sessionOver.delete(listener);
}

/** Sends a request; throws a Problem for every answer that is an error, and if there is none. */
async function send(request: Request): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(request);
  } catch (error) {
    if (request.signal.aborted) throw error;
    setConnection("gateway-away");
    throw new Problem(0);
  }
  if (response.ok) {
    setConnection("connected");
    return response;
  }
  const problem = await problemOf(response);
  setConnection(problem.reason === "DAEMON_UNREACHABLE" ? "daemon-away" : "connected");
  if (response.status === 401) for (const listener of sessionOver) listener();
  throw problem;
}

/** The header tells the gateway that this page made the request, and no page of another site. */
export const api = createClient<paths>({ fetch: send, headers: { "Toban-Request": "console" } });

/** The body of an answer. */
export async function data<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

/** An idempotency key: a request that is sent again because its answer was lost acts once. */
export function requestId(): string {
  return crypto.randomUUID();
}
