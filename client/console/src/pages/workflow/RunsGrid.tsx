import { Link } from "@tanstack/react-router";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { EmptyState } from "~/parts/EmptyState";
import { StateIcon } from "~/parts/StateIcon";
import { toneOf } from "~/parts/tone";
import { workflowMessages } from "./messages";
import type { GridRun } from "./workflowApi";

/** Runs as columns and steps as rows: which step fails, and since when, is seen at once. */
export function RunsGrid({ steps, runs }: { steps: readonly string[]; runs: readonly GridRun[] }) {
  const t = useMessages(workflowMessages);
  const w = useMessages(words);
  if (runs.length === 0) return <EmptyState title={t("grid_empty")}>{t("grid_empty_text")}</EmptyState>;
  const stateText = (state: string | null) => {
    const key = wordKey("", state);
    return key ? w(key) : String(state);
  };
  const cells = runs.map((run) => new Map(run.steps.map((each) => [each.index, each])));
  return (
    <div className="runs-grid-frame" tabIndex={0} role="region" aria-label={t("grid")}>
      <table className="runs-grid">
        <thead>
          <tr>
            <th scope="col">{w("step")}</th>
            {runs.map((run) => {
              const name = t("grid_run", { number: String(run.number), state: stateText(run.state) });
              return (
                <th scope="col" key={run.run_id}>
                  <Link
                    to="/runs/$runId"
                    params={{ runId: run.run_id }}
                    className={`grid-head tone-${toneOf(run.state ?? "")}`}
                    title={name}
                  >
                    <StateIcon state={run.state ?? "unknown"} />
                    <span className="number">{run.number}</span>
                    <span className="visually-hidden">{stateText(run.state)}</span>
                  </Link>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {steps.map((step, index) => (
            <tr key={step}>
              <th scope="row" title={step}>
                {step}
              </th>
              {runs.map((run, column) => {
                const cell = cells[column]?.get(index);
                if (!cell) return <td key={run.run_id} />;
                const values = { step, number: String(run.number), state: stateText(cell.state) };
                return (
                  <td key={run.run_id}>
                    <span className={`grid-cell tone-${toneOf(cell.state ?? "")}`} title={t("grid_step", values)}>
                      <StateIcon state={cell.state ?? "unknown"} />
                      <span className="visually-hidden">{values.state}</span>
                    </span>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
