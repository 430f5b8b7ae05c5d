import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { Duration } from "~/parts/Duration";
import { PageHead } from "~/parts/PageHead";
import { RunStateBadge } from "~/parts/RunState";
import { Time } from "~/parts/Time";
import { runMessages } from "./messages";
import { RunActions } from "./RunActions";
import type { WholeRun } from "./runQueries";

/** Which run this is, how it stands, and what can be done with it. */
export function RunHead({ run }: { run: WholeRun }) {
  const w = useMessages(words);
  const waiting = run.finished_at ? undefined : wordKey("wait_", run.waiting_for);
  return (
    <div className="stack tight">
      <PageHead title={`${run.workflow_title || run.workflow} #${run.number}`}>
        <RunStateBadge run={run} />
        {waiting && run.waiting_for !== "approval" ? <span className="muted">{w(waiting)}</span> : null}
        <RunActions run={run} />
      </PageHead>
      <Facts run={run} />
    </div>
  );
}

function Facts({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const trigger = wordKey("trigger_", run.triggered_by);
  return (
    <dl className="run-facts">
      <Fact name={w("workflow")}>
        <Link to="/workflows/$workflowId" params={{ workflowId: run.workflow }}>
          {run.workflow}
        </Link>{" "}
        <span className="muted">{t("version", { version: String(run.version) })}</span>
      </Fact>
      <Fact name={w("trigger")}>
        {trigger ? w(trigger) : null}
        {run.triggered_by !== "schedule" && run.caller ? (
          <span className="muted"> {t("by", { caller: run.caller })}</span>
        ) : null}
        {run.event_type ? <span className="muted"> {run.event_type}</span> : null}
      </Fact>
      <Fact name={run.started_at ? w("startedAt") : w("created")}>
        <Time at={run.started_at ?? run.created_at} />
      </Fact>
      <Fact name={w("duration")}>
        <Duration from={run.started_at} to={run.finished_at} />
      </Fact>
      {run.scope && run.scope !== "full" ? <Fact name={t("scope")}>{run.scope}</Fact> : null}
      {run.retry_of ? (
        <Fact name={t("retry_of")}>
          <RunIdLink id={run.retry_of} text={t("earlier_run")} />
        </Fact>
      ) : null}
      {run.parent_run ? (
        <Fact name={t("parent")}>
          <RunIdLink id={run.parent_run} text={run.parent_step || t("parent")} />
        </Fact>
      ) : null}
      {Object.entries(run.labels).map(([key, value]) => (
        <Fact key={key} name={key}>
          {value || w("yes")}
        </Fact>
      ))}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function RunIdLink({ id, text }: { id: string; text: string }) {
  return (
    <Link to="/runs/$runId" params={{ runId: id }}>
      {text}
    </Link>
  );
}
