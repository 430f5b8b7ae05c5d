import { Link } from "@tanstack/react-router";
import type { Fire } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { schedulesMessages } from "./messages";

interface Props {
  fires: readonly Fire[];
  hasMore?: boolean;
  onMore?: () => void;
}

/** Lines of the ledger: each due time, and what became of it. */
export function FireTable({ fires, ...paging }: Props) {
  const t = useMessages(schedulesMessages);
  const w = useMessages(words);
  const columns: Column<Fire>[] = [
    { key: "workflow", header: w("workflow"), cell: (fire) => <span className="main">{fire.workflow}</span> },
    { key: "due", header: t("due"), className: "fit", cell: (fire) => <Time at={fire.due_at} /> },
    { key: "outcome", header: t("outcome"), className: "fit", cell: (fire) => <StateBadge state={fire.outcome} /> },
    {
      key: "detail",
      header: t("detail"),
      cell: (fire) => (
        <>
          {fire.reason ? t(`reason_${fire.reason}`) : null}
          {fire.detail ? <span className="sub"> {fire.detail}</span> : null}
        </>
      ),
    },
    {
      key: "run",
      header: w("run"),
      className: "fit",
      cell: (fire) =>
        fire.run_id ? (
          <Link to="/runs/$runId" params={{ runId: fire.run_id }}>
            {w("run")}
          </Link>
        ) : null,
    },
  ];
  return (
    <DataTable
      label={t("ledger")}
      columns={columns}
      rows={fires}
      rowKey={(fire) => `${fire.workflow} ${fire.schedule_id} ${fire.due_at}`}
      {...paging}
    />
  );
}
