import { useLanguage, useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { bytesText, durationText } from "~/parts/timeText";
import { runMessages } from "./messages";
import type { Process } from "./runQueries";

const WIDTH = 120;
const HEIGHT = 26;

/** What the attempts used: processor time, memory and processes, with their course while they ran. */
export function ResourcesTab({ processes }: { processes: readonly Process[] }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const language = useLanguage();
  const measured = processes.filter((each) => each.resources);
  if (measured.length === 0) return <EmptyState title={t("no_resources")}>{t("no_resources_text")}</EmptyState>;
  const columns: Column<Process>[] = [
    { key: "step", header: w("step"), cell: (each) => <AttemptName process={each} /> },
    {
      key: "cpu",
      header: t("cpu"),
      className: "fit end",
      labelled: true,
      cell: ({ resources }) => (
        <span className="number">
          {durationText((resources?.user_time ?? 0) + (resources?.system_time ?? 0), language)}
        </span>
      ),
    },
    {
      key: "memory",
      header: t("memory"),
      className: "fit end",
      labelled: true,
      cell: ({ resources }) => (
        <span className="number">{memoryOf(resources) > 0 ? bytesText(memoryOf(resources), language) : "–"}</span>
      ),
    },
    {
      key: "processes",
      header: t("processes"),
      className: "fit end",
      labelled: true,
      cell: ({ resources }) => <span className="number">{resources?.peak_processes || "–"}</span>,
    },
    {
      key: "cpu-course",
      header: t("cpu_course"),
      className: "fit",
      cell: ({ resources }) => (
        <Course label={t("cpu_course")} values={(resources?.samples ?? []).map((sample) => sample.cpu)} />
      ),
    },
    {
      key: "memory-course",
      header: t("memory_course"),
      className: "fit",
      cell: ({ resources }) => (
        <Course label={t("memory_course")} values={(resources?.samples ?? []).map((sample) => sample.rss_bytes)} />
      ),
    },
  ];
  return <DataTable label={t("tab_resources")} columns={columns} rows={measured} rowKey={(each) => each.id} />;
}

function memoryOf(used: Process["resources"]): number {
  return Math.max(used?.peak_rss_bytes ?? 0, used?.max_rss_bytes ?? 0);
}

function AttemptName({ process }: { process: Process }) {
  const t = useMessages(runMessages);
  return (
    <span>
      {process.step_title ? `${process.step_title} (${process.step})` : process.step}{" "}
      <span className="sub">{process.check ? t("check") : `#${process.attempt}`}</span>
    </span>
  );
}

function Course({ label, values }: { label: string; values: number[] }) {
  if (values.length < 2) return null;
  const top = Math.max(...values) || 1;
  const points = values.map(
    (value, index) => `${(WIDTH * index) / (values.length - 1)},${HEIGHT - 1 - ((HEIGHT - 2) * value) / top}`,
  );
  return (
    <svg className="course" width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
      <polyline points={points.join(" ")} fill="none" stroke="currentColor" strokeWidth="1.5" />
    </svg>
  );
}
