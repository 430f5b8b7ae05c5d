import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const STORED = "toban.theme";
const listeners = new Set<() => void>();

export function theme(): Theme {
  const stored = localStorage.getItem(STORED);
  return stored === "light" || stored === "dark" ? stored : "system";
}

/** The colours follow `color-scheme`, see tokens.css. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = theme();
}

export function setTheme(chosen: Theme): void {
  if (chosen === "system") localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, chosen);
  applyTheme();
  for (const listener of listeners) listener();
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, theme);
}
