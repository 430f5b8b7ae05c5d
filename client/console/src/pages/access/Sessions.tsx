import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { revokeSession } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { sessionsQuery } from "~/api/queries";
import { sessionQuery } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words, wordKey } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { accessMessages } from "./messages";

type Listed = Schemas["Session"];

export function Sessions() {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const queries = useQueryClient();
  const query = useInfiniteQuery(sessionsQuery);
  const own = useQuery(sessionQuery).data?.identity?.session_id;
  const [revoking, setRevoking] = useState<Listed>();
  const columns: Column<Listed>[] = [
    {
      key: "label",
      header: t("label"),
      cell: (each) => (
        <span className="row">
          <span className="main clamp">{each.label || each.id}</span>
          {each.id === own ? <span className="chip">{t("this_one")}</span> : null}
        </span>
      ),
    },
    { key: "owner", header: t("owner"), labelled: true, cell: (each) => each.owner },
    {
      key: "role",
      header: t("role"),
      labelled: true,
      cell: (each) => w(wordKey("role_", each.role) ?? "unknown"),
    },
    {
      key: "created",
      header: t("created"),
      labelled: true,
      className: "fit",
      cell: (each) => <Time at={each.created_at} relative />,
    },
    {
      key: "used",
      header: t("used"),
      labelled: true,
      className: "fit",
      cell: (each) => <Time at={each.last_used_at} relative />,
    },
    {
      key: "expires",
      header: t("expires"),
      labelled: true,
      className: "fit",
      cell: (each) => <Time at={each.expires_at} relative />,
    },
    {
      key: "revoke",
      header: "",
      className: "fit end",
      cell: (each) => (
        <button
          type="button"
          className="button small"
          aria-label={t("revoke_name", { name: each.label || each.id })}
          onClick={() => setRevoking(each)}
        >
          {t("revoke")}
        </button>
      ),
    },
  ];
  return (
    <section className="card">
      <QueryView query={query}>
        {(pages) => (
          <DataTable
            label={t("sessions")}
            columns={columns}
            rows={pages.pages.flatMap((page) => page.sessions)}
            rowKey={(each) => each.id}
            hasMore={query.hasNextPage}
            onMore={() => void query.fetchNextPage()}
          />
        )}
      </QueryView>
      {revoking ? (
        <ConfirmDialog
          title={t("revoke_title", { name: revoking.label || revoking.id })}
          action={t("revoke")}
          danger
          onConfirm={async () => {
            await revokeSession(revoking.id);
            toast(t("revoked", { name: revoking.label || revoking.id }));
            await queries.invalidateQueries({ queryKey: ["sessions"] });
          }}
          onClose={() => setRevoking(undefined)}
        >
          <p>{t("revoke_session_text")}</p>
        </ConfirmDialog>
      ) : null}
    </section>
  );
}
