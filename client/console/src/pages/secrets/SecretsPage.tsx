import { useInfiniteQuery } from "@tanstack/react-query";
import { type Secret, secretsQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { secretsMessages } from "./messages";

export function SecretsPage() {
  const t = useMessages(secretsMessages);
  const query = useInfiniteQuery(secretsQuery);
  const columns: Column<Secret>[] = [
    {
      key: "name",
      header: t("name"),
      cell: (secret) => (
        <span className="row">
          <code className="main">{secret.name}</code>
          {secret.unreadable ? (
            <span className="badge tone-bad" title={secret.unreadable}>
              {t("unreadable")}
            </span>
          ) : null}
        </span>
      ),
    },
    {
      key: "workflows",
      header: t("workflows"),
      labelled: true,
      cell: (secret) => (secret.workflows.length > 0 ? secret.workflows.join(", ") : t("nobody")),
    },
    { key: "kept", header: t("kept"), labelled: true, cell: (secret) => secret.provider || t("daemon") },
    {
      key: "version",
      header: t("version"),
      labelled: true,
      className: "fit end",
      cell: (secret) => <span className="number">{secret.version}</span>,
    },
    {
      key: "changed",
      header: t("changed"),
      labelled: true,
      className: "fit",
      cell: (secret) => (
        <>
          <Time at={secret.updated_at} relative /> <span className="sub">{secret.updated_by}</span>
        </>
      ),
    },
    {
      key: "used",
      header: t("used"),
      labelled: true,
      className: "fit",
      cell: (secret) =>
        secret.last_used_at ? (
          <>
            <Time at={secret.last_used_at} relative /> <span className="sub">{secret.last_used_by}</span>
          </>
        ) : (
          <span className="muted">{t("never")}</span>
        ),
    },
  ];
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <section className="card">
        <QueryView query={query}>
          {(pages) => {
            const secrets = pages.pages.flatMap((page) => page.secrets);
            if (secrets.length === 0) {
              return (
                <EmptyState title={t("empty_title")} command="toban secrets set NAME --workflows 'nightly-*'">
                  {t("empty")}
                </EmptyState>
              );
            }
            return (
              <DataTable
                label={t("title")}
                columns={columns}
                rows={secrets}
                rowKey={(secret) => secret.name}
                hasMore={query.hasNextPage}
                onMore={() => void query.fetchNextPage()}
              />
            );
          }}
        </QueryView>
      </section>
    </div>
  );
}
