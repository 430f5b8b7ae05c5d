import { useEffect, useMemo, useState } from "react";
import type { LineStore } from "./LineStore";

export const MOST_FOUND = 10_000;

export interface Found {
  wanted: RegExp | undefined;
  /** The lines, from 0. */
  lines: readonly number[];
}

/** The lines with a text, in any case: looked for in slices, and in lines that arrive later as well. */
export function useFind(store: LineStore, text: string): Found {
  const [lines, setLines] = useState<readonly number[]>([]);
  const wanted = useMemo(() => (text ? pattern(text) : undefined), [text]);
  useEffect(() => {
    setLines([]);
    if (!wanted) return;
    let all: readonly number[] = [];
    let next = 0;
    let timer: number | undefined;
    const look = () => {
      timer = undefined;
      const { found, end } = store.find(wanted, next);
      next = end;
      if (found.length > 0) setLines((all = [...all, ...found].slice(0, MOST_FOUND)));
      schedule();
    };
    const schedule = () => {
      if (next < store.count && all.length < MOST_FOUND) timer ??= window.setTimeout(look);
    };
    const unsubscribe = store.subscribe(schedule);
    schedule();
    return () => {
      unsubscribe();
      window.clearTimeout(timer);
    };
  }, [store, wanted]);
  return { wanted, lines };
}

function pattern(text: string): RegExp {
  return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
}
