import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { reloadConfig } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { configQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { toast } from "~/parts/toasts";
import { systemMessages } from "./messages";

type ConfigValue = Schemas["ConfigValue"];

export function ConfigTable() {
  const t = useMessages(systemMessages);
  const w = useMessages(words);
  const query = useQuery(configQuery);
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  const wanted = text.trim().toLowerCase();
  const columns: Column<ConfigValue>[] = [
    { key: "key", header: t("key"), cell: (each) => <code className="main">{each.key}</code> },
    { key: "value", header: t("value"), cell: (each) => <code>{each.value_json}</code> },
    {
      key: "source",
      header: t("source"),
      labelled: true,
      cell: (each) => (
        <>
          {each.source ? t(`source_${each.source}`) : null} <span className="sub mono">{each.place}</span>
        </>
      ),
    },
    { key: "live", header: t("live"), labelled: true, className: "fit", cell: (each) => w(each.live ? "yes" : "no") },
  ];

  async function reload() {
    try {
      const done = await reloadConfig();
      if (done.problems.length > 0) toast(done.problems.join("\n"), true);
      else toast(t("config_reloaded", { applied: done.applied.length, restart: done.needs_restart.length }));
      await query.refetch();
    } catch (error) {
      toast((error as Error).message, true);
    }
  }

  return (
    <section className="card">
      <div className="card-head filters">
        <h2>{t("config")}</h2>
        <SearchField label={t("find")} value={text} onChange={setText} />
        <label className="row check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
          {t("all_settings")}
        </label>
        <button type="button" className="button" onClick={() => void reload()}>
          {t("reload_config")}
        </button>
      </div>
      <QueryView query={query}>
        {(values) => (
          <DataTable
            label={t("config")}
            columns={columns}
            rows={values.filter((each) => (wanted ? each.key.includes(wanted) : all || each.source !== "default"))}
            rowKey={(each) => each.key}
          />
        )}
      </QueryView>
    </section>
  );
}
