import { useLocation, useNavigate, useSearch } from "@tanstack/react-router";
import type { RunTab } from "./search";

/** Selects a step, or opens a tab; the rest of the address stays. */
export function useSelection() {
  const navigate = useNavigate({ from: "/runs/$runId" });
  const search = useSearch({ from: "/runs/$runId" });
  const hash = useLocation({ select: (location) => location.hash });
  return {
    tab: search.tab ?? (/^L\d+$/.test(hash) ? ("log" as const) : ("graph" as const)),
    step: search.step,
    line: /^L\d+$/.test(hash) ? Number(hash.slice(1)) : undefined,
    select: (step: string | undefined) =>
      void navigate({ search: (old) => ({ ...old, step }), replace: true, resetScroll: false }),
    open: (tab: RunTab, step?: string) =>
      void navigate({ search: (old) => ({ ...old, tab, step: step ?? old.step }), resetScroll: false }),
    toLine: (line: number | undefined) =>
      void navigate({
        search: (old) => ({ ...old, tab: "log" as const }),
        hash: line ? `L${line}` : "",
        replace: true,
        resetScroll: false,
        hashScrollIntoView: false,
      }),
  };
}
