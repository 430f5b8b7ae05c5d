import { useSyncExternalStore } from "react";

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

const SHOWN_FOR = 6000;
let toasts: readonly Toast[] = [];
let next = 1;
const listeners = new Set<() => void>();

function change(changed: readonly Toast[]): void {
  toasts = changed;
  for (const listener of listeners) listener();
}

/** Says what was done, or that it failed, in a corner; what failed stays until it is closed. */
export function toast(text: string, bad = false): void {
  const id = next++;
  change([...toasts, { id, text, bad }]);
  if (!bad) window.setTimeout(() => dismiss(id), SHOWN_FOR);
}

export function dismiss(id: number): void {
  change(toasts.filter((each) => each.id !== id));
}

export function useToasts(): readonly Toast[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
}
