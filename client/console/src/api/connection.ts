import { useSyncExternalStore } from "react";

export type Connection = "connected" | "daemon-away" | "gateway-away";

let current: Connection = "connected";
const listeners = new Set<() => void>();

export function connection(): Connection {
  return current;
}

/** Every answer says whether gateway and daemon are there: see client.ts. */
export function setConnection(found: Connection): void {
  if (found === current) return;
  current = found;
  for (const listener of listeners) listener();
}

export function onConnection(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useConnection(): Connection {
  return useSyncExternalStore(onConnection, connection);
}
