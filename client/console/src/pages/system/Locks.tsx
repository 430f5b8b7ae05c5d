import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import type { Schemas } from "~/api/client";
import { locksQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { type Column, DataTable } from "~/parts/DataTable";
import { QueryView } from "~/parts/QueryView";
import { systemMessages } from "./messages";

type Lock = Schemas["Lock"];

export function Locks() {
  const t = useMessages(systemMessages);
  const query = useQuery(locksQuery);
  const columns: Column<Lock>[] = [
    { key: "name", header: t("lock"), cell: (lock) => <code className="main">{lock.name}</code> },
    {
      key: "size",
      header: t("size"),
      labelled: true,
      className: "fit end",
      cell: (lock) => <span className="number">{lock.size}</span>,
    },
    {
      key: "holders",
      header: t("holders"),
      labelled: true,
      cell: (lock) => (lock.holders.length > 0 ? <Users users={lock.holders} /> : t("free")),
    },
    { key: "waiting", header: t("waiting"), labelled: true, cell: (lock) => <Users users={lock.waiting} /> },
  ];
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("locks")}</h2>
      </div>
      <QueryView query={query}>
        {(locks) =>
          locks.length > 0 ? (
            <DataTable label={t("locks")} columns={columns} rows={locks} rowKey={(lock) => lock.name} />
          ) : (
            <p className="quiet-line">{t("no_locks")}</p>
          )
        }
      </QueryView>
    </section>
  );
}

function Users({ users }: { users: Schemas["LockUser"][] }) {
  return users.map((user, index) => (
    <Fragment key={`${user.run_id} ${user.step}`}>
      {index > 0 ? ", " : null}
      <Link to="/runs/$runId" params={{ runId: user.run_id }}>
        {user.workflow} #{user.run_number}
        {user.step ? ` › ${user.step}` : ""}
      </Link>
    </Fragment>
  ));
}
