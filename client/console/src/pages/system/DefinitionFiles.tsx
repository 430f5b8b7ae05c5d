import { useQueryClient } from "@tanstack/react-query";
import { reloadDefinitions } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { StateBadge } from "~/parts/StateBadge";
import { toast } from "~/parts/toasts";
import { systemMessages } from "./messages";

type DefinitionFile = Schemas["DefinitionFile"];

export function DefinitionFiles({ files }: { files: DefinitionFile[] }) {
  const t = useMessages(systemMessages);
  const w = useMessages(words);
  const queries = useQueryClient();
  const mayReload = useMay("admin");
  const columns: Column<DefinitionFile>[] = [
    { key: "path", header: t("path"), cell: (file) => <code className="main">{file.path}</code> },
    { key: "state", header: w("state"), className: "fit", cell: (file) => <StateBadge state={file.state} /> },
    { key: "defines", header: t("defines"), labelled: true, cell: (file) => file.definitions.join(", ") },
    {
      key: "problems",
      header: t("problems"),
      cell: (file) =>
        file.problems.map((problem) => (
          <div key={problem} className={file.state === "broken" ? "run-error" : undefined}>
            {problem}
          </div>
        )),
    },
  ];

  async function reload() {
    try {
      const { change_count: n } = await reloadDefinitions();
      toast(t("reloaded", { n }));
      await queries.invalidateQueries();
    } catch (error) {
      toast((error as Error).message, true);
    }
  }

  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("files")}</h2>
        {mayReload && files.length > 0 ? (
          <button type="button" className="button small" onClick={() => void reload()}>
            {t("reload")}
          </button>
        ) : null}
      </div>
      {files.length > 0 ? (
        <DataTable label={t("files")} columns={columns} rows={files} rowKey={(file) => file.path} />
      ) : (
        <p className="quiet-line">{t("no_files")}</p>
      )}
    </section>
  );
}
