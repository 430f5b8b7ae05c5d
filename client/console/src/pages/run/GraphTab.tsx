import { useMemo } from "react";
import { type Language, useLanguage, useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { useNow } from "~/parts/clock";
import type { GraphNode } from "~/parts/graph/layout";
import { StepGraph } from "~/parts/graph/StepGraph";
import { durationText } from "~/parts/timeText";
import { runMessages } from "./messages";
import type { Step, WholeRun } from "./runQueries";
import { useSelection } from "./selection";
import { stepState } from "./steps";

/** With more steps only their states are live, and not how long they take. */
const MOST_LIVE = 200;
/** Above that, edges from each last step to the finally steps would hide the others. */
const MOST_LAST = 40;
const NARROW = "(max-width: 700px)";

/** The steps and how they stand. The instances of a `for_each` step are one node, with how many of them ended. */
export function GraphTab({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const language = useLanguage();
  const { step, select } = useSelection();
  const live = !run.finished_at && run.steps.length < MOST_LIVE;
  const now = useNow(live ? 1000 : 3_600_000);
  const narrow = window.matchMedia(NARROW).matches;
  const nodes = useMemo(() => {
    const own = run.steps.filter((each) => !each.parent);
    const ended = endedInstances(run.steps);
    const after = dependencies(own);
    return own.map((each): GraphNode => {
      const state = stepState(each);
      const key = wordKey("", state);
      const notes = [key ? w(key) : state, tookText(each, live ? now : undefined, language)];
      if (each.instances > 0) notes.push(`${ended.get(each.id) ?? 0}/${each.instances}`);
      return {
        id: each.id,
        title: each.title || each.id,
        state,
        note: notes.filter(Boolean).join(" · "),
        dependsOn: after.get(each.id) ?? [],
      };
    });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the texts change with the language
  }, [run.steps, language, now, live]);
  const chosen = run.steps.find((each) => each.id === step);
  return (
    <div className={`run-graph size-${narrow ? "tall" : sizeOf(nodes)}`}>
      <StepGraph
        label={t("graph_label")}
        nodes={nodes}
        direction={narrow ? "DOWN" : "RIGHT"}
        selected={chosen?.parent || chosen?.id}
        onSelect={(id) => select(id === step ? undefined : id)}
      />
    </div>
  );
}

function endedInstances(steps: readonly Step[]): Map<string, number> {
  const ended = new Map<string, number>();
  for (const each of steps) {
    if (each.parent && each.finished_at) ended.set(each.parent, (ended.get(each.parent) ?? 0) + 1);
  }
  return ended;
}

/** What each step comes after: finally steps come after all that nothing else follows. */
function dependencies(steps: readonly Step[]): Map<string, readonly string[]> {
  const followed = new Set(steps.flatMap((each) => each.depends_on));
  const last = steps.filter((each) => !each.is_finally && !followed.has(each.id)).slice(0, MOST_LAST);
  const ids = last.map((each) => each.id);
  const isFinally = new Set(steps.filter((each) => each.is_finally).map((each) => each.id));
  return new Map(
    steps.map((each) => {
      const first = each.is_finally && !each.depends_on.some((id) => isFinally.has(id));
      return [each.id, first ? [...new Set([...each.depends_on, ...ids])] : each.depends_on];
    }),
  );
}

function tookText(step: Step, now: number | undefined, language: Language): string {
  if (!step.started_at || step.state === "skipped") return "";
  if (!step.finished_at && step.progress_total > 0) {
    return `${Math.floor((100 * step.progress_current) / step.progress_total)}%`;
  }
  const end = step.finished_at ? Date.parse(step.finished_at) : now;
  return end === undefined ? "" : durationText((end - Date.parse(step.started_at)) / 1000, language);
}

/** How high the graph is drawn: by the most steps side by side. */
function sizeOf(nodes: readonly GraphNode[]): "low" | "middle" | "tall" {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const depths = new Map<string, number>();
  const depth = (id: string): number => {
    const known = depths.get(id);
    if (known !== undefined) return known;
    depths.set(id, 0);
    const before = (byId.get(id)?.dependsOn ?? []).filter((each) => byId.has(each));
    const found = before.length === 0 ? 0 : 1 + Math.max(...before.map(depth));
    depths.set(id, found);
    return found;
  };
  const widths = new Map<number, number>();
  for (const node of nodes) widths.set(depth(node.id), (widths.get(depth(node.id)) ?? 0) + 1);
  const widest = Math.max(1, ...widths.values());
  return widest < 3 ? "low" : widest < 5 ? "middle" : "tall";
}
