import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import { runJob } from "~/api/actions";
import { jobQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { jobsMessages } from "./messages";

export function JobPage() {
  const t = useMessages(jobsMessages);
  const { name } = useParams({ from: "/jobs/$name" });
  const navigate = useNavigate();
  const query = useQuery(jobQuery(name));
  const mayRun = useMay("operator");
  const [starting, setStarting] = useState(false);
  const title = query.data?.title || name;
  return (
    <div className="page">
      <PageHead title={title} intro={query.data?.description}>
        <Link to="/runs" search={{ workflow: name }} className="button">
          {t("history")}
        </Link>
        {mayRun ? (
          <button type="button" className="button primary" onClick={() => setStarting(true)}>
            {t("run")}
          </button>
        ) : null}
      </PageHead>
      <QueryView query={query}>
        {(job) => (
          <>
            <section className="card padded">
              <dl className="facts">
                <dt>ID</dt>
                <dd className="mono">{job.name}</dd>
                <dt>{t("version")}</dt>
                <dd className="number">{job.version}</dd>
                <dt>{t("updated")}</dt>
                <dd>
                  <Time at={job.updated_at} />
                </dd>
                <dt>{t("owner")}</dt>
                <dd className={job.owner_path ? "mono" : undefined}>{job.owner_path || t("api")}</dd>
                {job.schedules.length > 0 ? (
                  <>
                    <dt>{t("schedules")}</dt>
                    <dd>{job.schedules.join(", ")}</dd>
                  </>
                ) : null}
                {job.event_types.length > 0 ? (
                  <>
                    <dt>{t("events")}</dt>
                    <dd className="mono">{job.event_types.join(", ")}</dd>
                  </>
                ) : null}
                <dt>{t("used_by")}</dt>
                <dd>
                  {job.used_by.length === 0 ? t("unused") : null}
                  {job.used_by.map((each, index) => (
                    <Fragment key={each}>
                      {index > 0 ? ", " : null}
                      <Link to="/workflows/$workflowId" params={{ workflowId: each }}>
                        {each}
                      </Link>
                    </Fragment>
                  ))}
                </dd>
              </dl>
            </section>
            <section className="card padded stack">
              <h2>{t("definition")}</h2>
              <pre className="log-text" tabIndex={0}>
                {job.definition?.source}
              </pre>
            </section>
          </>
        )}
      </QueryView>
      {starting ? (
        <ConfirmDialog
          title={t("run_title", { name: title })}
          action={t("run")}
          onConfirm={async () => {
            const run = await runJob(name);
            toast(t("started", { name: title, number: String(run.number) }));
            void navigate({ to: "/runs/$runId", params: { runId: run.id } });
          }}
          onClose={() => setStarting(false)}
        />
      ) : null}
    </div>
  );
}
