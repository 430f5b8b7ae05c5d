import type { Run } from "~/api/queries";
import { messages, useMessages } from "~/i18n/messages";
import { Progress } from "./Progress";

const texts = messages({
  en: { steps: "{current} of {total} steps", label: "Progress" },
  ja: { steps: "{total}ステップ中{current}", label: "進捗" },
});

/** How far an active run is. */
export function RunProgress({ run }: { run: Run }) {
  const t = useMessages(texts);
  if (run.finished_at || !run.steps_total) return null;
  const steps = t("steps", { current: run.steps_ended, total: run.steps_total });
  const counted = run.progress_total ? `${run.progress_current}/${run.progress_total}` : "";
  return (
    <Progress
      current={run.steps_ended}
      total={run.steps_total}
      label={t("label")}
      text={[steps, counted, run.progress_message].filter(Boolean).join(" · ")}
    />
  );
}
