import { useState } from "react";
import { runDoctor } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { Loading } from "~/parts/Loading";
import { StateBadge } from "~/parts/StateBadge";
import { systemMessages } from "./messages";

type Finding = Schemas["Finding"];

export function Doctor() {
  const t = useMessages(systemMessages);
  const [findings, setFindings] = useState<Finding[]>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [repairing, setRepairing] = useState(false);

  async function check(repair: boolean) {
    setBusy(true);
    setError(undefined);
    try {
      setFindings((await runDoctor(repair)).findings);
    } catch (caught) {
      setError(caught);
    }
    setBusy(false);
  }

  const columns: Column<Finding>[] = [
    { key: "check", header: t("check"), cell: (each) => <span className="main">{each.check}</span> },
    { key: "status", header: t("result"), className: "fit", cell: (each) => <StateBadge state={each.status} /> },
    {
      key: "detail",
      header: "",
      cell: (each) => (
        <>
          {each.detail}
          {each.hint ? <div className="sub">{each.hint}</div> : null}
        </>
      ),
    },
  ];
  return (
    <section className="card">
      <div className="card-head">
        <div>
          <h2>{t("doctor")}</h2>
          <p className="muted">{t("doctor_text")}</p>
        </div>
        <div className="row">
          <button type="button" className="button small" disabled={busy} onClick={() => void check(false)}>
            {t("run_doctor")}
          </button>
          <button type="button" className="button small" disabled={busy} onClick={() => setRepairing(true)}>
            {t("repair")}
          </button>
        </div>
      </div>
      {error ? <ErrorNotice error={error} /> : null}
      {busy ? <Loading /> : null}
      {findings && !busy ? (
        <DataTable label={t("doctor")} columns={columns} rows={findings} rowKey={(each) => each.check + each.detail} />
      ) : null}
      {repairing ? (
        <ConfirmDialog
          title={t("repair_title")}
          action={t("repair")}
          onConfirm={() => check(true)}
          onClose={() => setRepairing(false)}
        />
      ) : null}
    </section>
  );
}
