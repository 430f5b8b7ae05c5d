import { type InfiniteData, type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Schemas } from "./client";
import { connection, onConnection, setConnection } from "./connection";
import type { Run } from "./queries";

/** As WatchRunsResponse and WatchEventsResponse in `proto/`. */
export interface RunChange {
  run?: Run;
  sequence: number;
  /** Such as `attempt_ended`. */
  change: string | null;
}

interface EventChange {
  event?: Schemas["Event"];
}

/** What one tab receives and passes on to the others. */
type Message =
  | { kind: "run"; change: RunChange; position: string }
  | { kind: "event"; change: EventChange; position: string }
  | { kind: "reopened" };

const CHANNEL = "toban.stream";
/** Lists are asked for again at most this often, however much happens. */
const REFRESH = 2_500;
const FIRST_REFRESH = 250;

const runListeners = new Set<(change: RunChange) => void>();

/** Calls the listener with every change of a run that the caller may see. */
export function onRunChange(listener: (change: RunChange) => void): () => void {
  runListeners.add(listener);
  return () => runListeners.delete(listener);
}

/** Keeps what is in view up to date, for as long as the console is open. */
export function useStream(): void {
  const queries = useQueryClient();
  useEffect(() => {
    const refresher = new Refresher(queries);
    const close = openStream((message) => receive(message, queries, refresher));
    const unsubscribe = onConnection(() => {
      if (connection() === "connected") void queries.invalidateQueries();
    });
    return () => {
      close();
      unsubscribe();
      refresher.stop();
    };
  }, [queries]);
}

function receive(message: Message, queries: QueryClient, refresher: Refresher): void {
  if (message.kind === "reopened") {
    refresher.add("runs", "run", "workflows", "events");
  } else if (message.kind === "event") {
    refresher.add("events");
  } else {
    const { run, change } = message.change;
    for (const listener of runListeners) listener(message.change);
    if (run) patchRun(queries, run);
    // An event shows the states of the runs that it started.
    if (change !== "progress_reported") refresher.add("runs", "workflows", "events", "dead_letters");
  }
}

/** Puts the new state of a run into the lists that show it, without asking the gateway. */
function patchRun(queries: QueryClient, run: Run): void {
  type Pages = InfiniteData<Schemas["ListRunsResponse"]>;
  queries.setQueriesData<Pages>({ queryKey: ["runs", "list"] }, (old) => {
    if (!old?.pages.some((page) => page.runs.some((each) => each.id === run.id))) return old;
    const pages = old.pages.map((page) => ({
      ...page,
      runs: page.runs.map((each) => (each.id === run.id ? run : each)),
    }));
    return { ...old, pages };
  });
}

/** Collects what has changed, and asks for it again: soon at first, then not too often. */
class Refresher {
  #queries: QueryClient;
  #stale = new Set<string>();
  #timer: number | undefined;
  #last = 0;

  constructor(queries: QueryClient) {
    this.#queries = queries;
  }

  add(...names: string[]): void {
    for (const name of names) this.#stale.add(name);
    if (this.#timer !== undefined) return;
    const wait = Math.max(FIRST_REFRESH, this.#last + REFRESH - Date.now());
    this.#timer = window.setTimeout(() => this.#refresh(), wait);
  }

  stop(): void {
    window.clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #refresh(): void {
    this.#timer = undefined;
    this.#last = Date.now();
    for (const name of this.#stale) void this.#queries.invalidateQueries({ queryKey: [name] });
    this.#stale.clear();
  }
}

/**
 * A browser opens six connections to one host: with a stream for each tab, the seventh tab would hang. So one tab has the
 * stream and passes its events on; when it closes, another one takes over at the position of the last event.
 */
function openStream(onMessage: (message: Message) => void): () => void {
  const channel = new BroadcastChannel(CHANNEL);
  const stop = new AbortController();
  let position = "";
  const take = (message: Message) => {
    if (message.kind !== "reopened") position = message.position;
    onMessage(message);
  };
  channel.onmessage = (event) => take(event.data as Message);
  const lead = () =>
    readStream(
      () => position,
      (message) => {
        take(message);
        channel.postMessage(message);
      },
      stop.signal,
    );
  if (navigator.locks) navigator.locks.request(CHANNEL, { signal: stop.signal }, lead).catch(() => {});
  else void lead();
  return () => {
    stop.abort();
    channel.close();
  };
}

/** Reads the stream until it is stopped. The browser itself comes back after an interruption, with the last position. */
function readStream(position: () => string, onMessage: (message: Message) => void, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    let source: EventSource;
    let opened = false;
    let timer: number | undefined;
    const open = () => {
      const after = position();
      source = new EventSource(after ? `/api/stream?position=${encodeURIComponent(after)}` : "/api/stream");
      source.onopen = () => {
        if (opened) onMessage({ kind: "reopened" });
        opened = true;
      };
      source.addEventListener("run", (event) =>
        onMessage({ kind: "run", change: JSON.parse(event.data), position: event.lastEventId }),
      );
      source.addEventListener("event", (event) =>
        onMessage({ kind: "event", change: JSON.parse(event.data), position: event.lastEventId }),
      );
      source.addEventListener("error", (event) => {
        if (event instanceof MessageEvent) noteProblem(event);
        if (source.readyState !== EventSource.CLOSED) return;
        // The browser gives up after an answer that is no stream.
        timer = window.setTimeout(open, 2_000);
      });
    };
    open();
    stop.addEventListener("abort", () => {
      window.clearTimeout(timer);
      source.close();
      resolve();
    });
  });
}

function noteProblem(event: MessageEvent<string>): void {
  const { reason } = JSON.parse(event.data) as { reason?: string };
  if (reason === "DAEMON_UNREACHABLE") setConnection("daemon-away");
}
