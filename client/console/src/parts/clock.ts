import { useSyncExternalStore } from "react";

let now = Date.now();
let timer: number | undefined;
const listeners = new Set<() => void>();

function tick(): void {
  now = Date.now();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (timer === undefined) {
    tick();
    timer = window.setInterval(tick, 1000);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      window.clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time in milliseconds, rounded down to `step`: the component is drawn again only when that changes. */
export function useNow(step = 1000): number {
  return useSyncExternalStore(subscribe, () => Math.floor((listeners.size ? now : Date.now()) / step) * step);
}
