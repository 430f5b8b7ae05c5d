import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { EmptyState } from "~/parts/EmptyState";
import { runMessages } from "./messages";
import type { WholeRun } from "./runQueries";

/** A parameter as people read it: text as it is, all else as JSON. */
export function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

export function ParamsTab({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const params = Object.entries((run.params ?? {}) as Record<string, unknown>);
  if (params.length === 0) return <EmptyState title={t("no_params")}>{t("no_params_text")}</EmptyState>;
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">{t("param")}</th>
          <th scope="col">{t("value")}</th>
        </tr>
      </thead>
      <tbody>
        {params.map(([name, value]) => (
          <tr key={name} className="data">
            <th scope="row">
              <code>{name}</code>
            </th>
            <td>
              {value === "" ? (
                <span className="muted">{w("none")}</span>
              ) : (
                <pre className="value">{valueText(value)}</pre>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
