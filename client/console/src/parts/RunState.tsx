import type { Run } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { StateBadge } from "./StateBadge";

type Shown = Pick<Run, "state" | "waiting_for" | "paused_at" | "cancel_requested_at" | "finished_at">;

/** The state of a run as people think of it: one that waits for a person says so. */
export function RunStateBadge({ run }: { run: Shown }) {
  const t = useMessages(words);
  const waiting = wordKey("wait_", run.waiting_for);
  return <StateBadge state={shownState(run)} title={waiting && !run.finished_at ? t(waiting) : undefined} />;
}

function shownState(run: Shown): string {
  if (run.finished_at) return run.state ?? "unknown";
  if (run.cancel_requested_at) return "cancelling";
  if (run.paused_at) return "paused";
  if (run.waiting_for === "approval") return "approval";
  if (run.state === "running" && run.waiting_for && run.waiting_for !== "processes") return "waiting";
  return run.state ?? "unknown";
}
