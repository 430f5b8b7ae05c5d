import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { revokeToken } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { tokensQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words, wordKey } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { Limits } from "./Limits";
import { accessMessages } from "./messages";
import { NewTokenDialog } from "./NewTokenDialog";

type Token = Schemas["Token"];

export function Tokens() {
  const t = useMessages(accessMessages);
  const queries = useQueryClient();
  const query = useInfiniteQuery(tokensQuery);
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Token>();
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("tokens")}</h2>
        <button type="button" className="button primary" onClick={() => setCreating(true)}>
          {t("new_token")}
        </button>
      </div>
      <QueryView query={query}>
        {(pages) => {
          const tokens = pages.pages.flatMap((page) => page.tokens);
          if (tokens.length === 0) return <EmptyState title={t("no_tokens")}>{t("no_tokens_text")}</EmptyState>;
          return (
            <Table
              tokens={tokens}
              onRevoke={setRevoking}
              hasMore={query.hasNextPage}
              onMore={() => void query.fetchNextPage()}
            />
          );
        }}
      </QueryView>
      {creating ? <NewTokenDialog onClose={() => setCreating(false)} /> : null}
      {revoking ? (
        <ConfirmDialog
          title={t("revoke_title", { name: revoking.name })}
          action={t("revoke")}
          name={revoking.name}
          danger
          onConfirm={async () => {
            await revokeToken(revoking.id);
            toast(t("revoked", { name: revoking.name }));
            await queries.invalidateQueries({ queryKey: ["tokens"] });
          }}
          onClose={() => setRevoking(undefined)}
        >
          <p>{t("revoke_token_text")}</p>
        </ConfirmDialog>
      ) : null}
    </section>
  );
}

interface TableProps {
  tokens: Token[];
  onRevoke: (token: Token) => void;
  hasMore: boolean;
  onMore: () => void;
}

function Table({ tokens, onRevoke, ...paging }: TableProps) {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const columns: Column<Token>[] = [
    {
      key: "name",
      header: t("name"),
      cell: (token) => (
        <>
          <span className="main">{token.name}</span> <code className="sub">{token.id}</code>
        </>
      ),
    },
    { key: "role", header: t("role"), labelled: true, cell: (token) => w(wordKey("role_", token.role) ?? "unknown") },
    { key: "limits", header: t("limits"), labelled: true, cell: (token) => <Limits narrowing={token.narrowing} /> },
    {
      key: "created",
      header: t("created"),
      labelled: true,
      cell: (token) => (
        <>
          <Time at={token.created_at} relative /> <span className="sub">{token.created_by}</span>
        </>
      ),
    },
    {
      key: "used",
      header: t("used"),
      labelled: true,
      className: "fit",
      cell: (token) => (token.last_used_at ? <Time at={token.last_used_at} relative /> : t("unused")),
    },
    {
      key: "expires",
      header: t("expires"),
      labelled: true,
      className: "fit",
      cell: (token) => (token.expires_at ? <Time at={token.expires_at} /> : t("never")),
    },
    {
      key: "revoke",
      header: "",
      className: "fit end",
      cell: (token) => (
        <button
          type="button"
          className="button small"
          aria-label={t("revoke_name", { name: token.name })}
          onClick={() => onRevoke(token)}
        >
          {t("revoke")}
        </button>
      ),
    },
  ];
  return <DataTable label={t("tokens")} columns={columns} rows={tokens} rowKey={(token) => token.id} {...paging} />;
}
