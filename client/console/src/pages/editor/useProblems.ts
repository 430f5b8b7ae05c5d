import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { CodeProblem } from "~/parts/code/YamlEditor";
import { problemsQuery } from "./definitionApi";

const PAUSE = 350;
const NONE: readonly CodeProblem[] = [];

/** A value that has not changed for a moment. */
export function useSettled<T>(value: T, pause = PAUSE): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), pause);
    return () => window.clearTimeout(timer);
  }, [value, pause]);
  return settled;
}

/** What the daemon says about the text, a moment after the last change. */
export function useProblems(text: string, baseDir: string) {
  const settled = useSettled(text);
  const query = useQuery({ ...problemsQuery(settled, baseDir), placeholderData: keepPreviousData });
  return { problems: query.data ?? NONE, checking: settled !== text || query.isFetching };
}
