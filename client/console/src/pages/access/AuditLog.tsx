import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { verifyAudit } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { type AuditFilter, auditQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words, wordKey } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { accessMessages } from "./messages";

type Entry = Schemas["AuditEntry"];

export function AuditLog({ filter }: { filter: AuditFilter }) {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const navigate = useNavigate({ from: "/access" });
  const { actor, method, target, outcome } = filter;
  const query = useInfiniteQuery(auditQuery({ actor, method, target, outcome }));
  const change = (changed: AuditFilter) =>
    void navigate({ search: (old) => ({ ...old, ...changed, view: "audit" as const }), replace: true });

  async function verify() {
    try {
      const { entries, broken } = await verifyAudit();
      if (broken) toast(t("broken", { n: String(broken.sequence), reason: broken.reason }), true);
      else toast(t("verified", { n: entries }));
    } catch (error) {
      toast((error as Error).message, true);
    }
  }

  return (
    <section className="card">
      <div className="card-head filters">
        {(["actor", "method", "target"] as const).map((name) => (
          <SearchField
            key={name}
            label={t(name)}
            value={filter[name] ?? ""}
            onChange={(text) => change({ [name]: text || undefined })}
          />
        ))}
        <div className="field">
          <label htmlFor="audit-outcome">{t("outcome")}</label>
          <select
            id="audit-outcome"
            className="select"
            value={outcome ?? ""}
            onChange={(event) => change({ outcome: (event.target.value || undefined) as AuditFilter["outcome"] })}
          >
            <option value="">{w("all")}</option>
            <option value="done">{w("done")}</option>
            <option value="refused">{w("refused")}</option>
          </select>
        </div>
        <button type="button" className="button" onClick={() => void verify()}>
          {t("verify")}
        </button>
      </div>
      <QueryView query={query}>
        {(pages) => {
          const entries = pages.pages.flatMap((page) => page.entries);
          if (entries.length === 0) return <EmptyState title={t("no_entries")} />;
          return <Table entries={entries} hasMore={query.hasNextPage} onMore={() => void query.fetchNextPage()} />;
        }}
      </QueryView>
    </section>
  );
}

function Table({ entries, ...paging }: { entries: Entry[]; hasMore: boolean; onMore: () => void }) {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const columns: Column<Entry>[] = [
    {
      key: "method",
      header: t("method"),
      cell: (entry) => <span className="main">{entry.method.replace("Service/", " ")}</span>,
    },
    { key: "when", header: w("when"), className: "fit", cell: (entry) => <Time at={entry.recorded_at} /> },
    {
      key: "actor",
      header: t("actor"),
      cell: (entry) => {
        const role = wordKey("role_", entry.role);
        return (
          <>
            {entry.actor} {entry.role && role ? <span className="sub">{w(role)}</span> : null}
          </>
        );
      },
    },
    { key: "target", header: t("target"), labelled: true, cell: (entry) => <code>{entry.target}</code> },
    {
      key: "outcome",
      header: t("outcome"),
      className: "fit",
      cell: (entry) => <StateBadge state={entry.outcome} title={entry.reason || undefined} />,
    },
    {
      key: "source",
      header: t("source"),
      labelled: true,
      cell: (entry) => <span className="sub">{entry.source}</span>,
    },
    {
      key: "detail",
      header: t("detail"),
      cell: (entry) =>
        entry.detail ? (
          <details>
            <summary>{t("show")}</summary>
            <pre className="log-text" tabIndex={0}>
              {entry.detail}
            </pre>
          </details>
        ) : null,
    },
  ];
  return (
    <DataTable
      label={t("audit")}
      columns={columns}
      rows={entries}
      rowKey={(entry) => String(entry.sequence)}
      {...paging}
    />
  );
}
