import { useEffect, useState, useSyncExternalStore } from "react";
import { setConnection } from "~/api/connection";
import { LineStore } from "./LineStore";
import { type LogChoice, lineOf, logAddress } from "./logLines";

const AGAIN = 2_000;

/** The log of a run, which grows while the run goes on. */
export function useLog(runId: string, { step, attempt, stream }: LogChoice): LineStore {
  const [store, setStore] = useState(() => new LineStore());
  useEffect(() => {
    const opened = new LineStore();
    setStore(opened);
    return readLog(runId, { step, attempt, stream }, opened);
  }, [runId, step, attempt, stream]);
  useSyncExternalStore(store.subscribe, store.version);
  return store;
}

/**
 * Reads until the log is over. A hidden tab gives its connection back, as a browser has six for a gateway, and goes on
 * with the next line when it is seen again.
 */
function readLog(runId: string, choice: LogChoice, store: LineStore): () => void {
  let source: EventSource | undefined;
  let timer: number | undefined;
  let position = "";
  const close = () => {
    window.clearTimeout(timer);
    source?.close();
    source = undefined;
  };
  const open = () => {
    close();
    const opened = new EventSource(logAddress(runId, "logs", choice, position ? { position } : {}));
    source = opened;
    opened.onmessage = (event: MessageEvent<string>) => {
      if (event.lastEventId) position = event.lastEventId;
      const line = lineOf(event.data);
      if (line) store.add(line);
    };
    opened.addEventListener("complete", () => {
      close();
      store.finish({ kind: "complete" });
    });
    opened.addEventListener("error", (event) => {
      if (event instanceof MessageEvent) {
        if (!endedBy(event as MessageEvent<string>, store)) return;
        close();
      } else if (opened.readyState === EventSource.CLOSED) {
        // An answer that is no stream: the daemon is away, or refuses.
        void whyNot(runId, choice, store).then((over) => {
          if (!over && source === opened) timer = window.setTimeout(open, AGAIN);
        });
      }
    });
  };
  const onVisible = () => {
    if (store.end) return;
    if (document.hidden) close();
    else if (!source) open();
  };
  document.addEventListener("visibilitychange", onVisible);
  if (!document.hidden) open();
  return () => {
    document.removeEventListener("visibilitychange", onVisible);
    close();
  };
}

/** Whether the event says why the stream ended for good. */
function endedBy(event: MessageEvent<string>, store: LineStore): boolean {
  const { reason = "", detail = "" } = JSON.parse(event.data) as { reason?: string; detail?: string };
  if (reason === "DAEMON_UNREACHABLE") {
    setConnection("daemon-away");
    return false;
  }
  store.finish({ kind: "problem", reason, message: detail });
  return true;
}

async function whyNot(runId: string, choice: LogChoice, store: LineStore): Promise<boolean> {
  try {
    const response = await fetch(logAddress(runId, "logs", choice, { tail: "1", follow: "false" }));
    if (response.ok || response.status >= 500) return false;
    const { reason = "", detail = "" } = (await response.json()) as { reason?: string; detail?: string };
    store.finish({ kind: "problem", reason, message: detail });
    return true;
  } catch {
    return false;
  }
}
