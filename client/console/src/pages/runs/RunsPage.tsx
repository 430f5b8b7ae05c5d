import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { cancelRun, retryRun } from "~/api/actions";
import { type Run, type RunState, runsQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { toast } from "~/parts/toasts";
import { runsMessages } from "./messages";
import { RunTable } from "./RunTable";
import { RUN_STATES, type RunsSearch } from "./search";

export function RunsPage() {
  const t = useMessages(runsMessages);
  const search = useSearch({ from: "/runs" });
  const query = useInfiniteQuery(runsQuery(search));
  const [cancelling, setCancelling] = useState<Run>();
  const mayRun = useMay("operator");
  const filtered = Object.values(search).some((value) => value !== undefined);
  const nameOf = (run: Run) => `${run.workflow_title || run.workflow} #${run.number}`;

  async function retry(run: Run) {
    try {
      const started = await retryRun(run.id);
      toast(t("retried", { name: nameOf(run), number: String(started.number) }));
    } catch (error) {
      toast((error as Error).message, true);
    }
  }

  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <section className="card">
        <Filters search={search} filtered={filtered} />
        <QueryView query={query}>
          {(pages) => {
            const runs = pages.pages.flatMap((page) => page.runs);
            if (runs.length === 0 && !query.hasNextPage) {
              return filtered ? (
                <EmptyState title={t("none_title")}>{t("none")}</EmptyState>
              ) : (
                <EmptyState title={t("empty_title")} command="toban run WORKFLOW --follow">
                  {t("empty")}
                </EmptyState>
              );
            }
            return (
              <RunTable
                label={t("title")}
                runs={runs}
                hasMore={query.hasNextPage}
                loadingMore={query.isFetchingNextPage}
                onMore={() => void query.fetchNextPage()}
                {...(mayRun ? { onCancel: setCancelling, onRetry: (run: Run) => void retry(run) } : {})}
              />
            );
          }}
        </QueryView>
      </section>
      {cancelling ? (
        <ConfirmDialog
          title={t("cancel_title", { name: nameOf(cancelling) })}
          action={t("cancel_action")}
          danger
          onConfirm={async () => {
            await cancelRun(cancelling.id);
            toast(t("cancelled", { name: nameOf(cancelling) }));
          }}
          onClose={() => setCancelling(undefined)}
        >
          <p>{t("cancel_text")}</p>
        </ConfirmDialog>
      ) : null}
    </div>
  );
}

function Filters({ search, filtered }: { search: RunsSearch; filtered: boolean }) {
  const t = useMessages(runsMessages);
  const w = useMessages(words);
  const navigate = useNavigate({ from: "/runs" });
  const change = (changed: Partial<RunsSearch>) =>
    void navigate({ search: (old: RunsSearch) => ({ ...old, ...changed }), replace: true });
  const day = (text: string) => (text ? new Date(`${text}T00:00`).toISOString() : undefined);
  return (
    <div className="card-head filters">
      <SearchField
        label={t("find")}
        value={search.text ?? ""}
        onChange={(text) => change({ text: text || undefined })}
      />
      <div className="field">
        <label htmlFor="runs-state">{t("state")}</label>
        <select
          id="runs-state"
          className="select"
          value={search.states?.join(",") ?? ""}
          onChange={(event) =>
            change({ states: event.target.value ? (event.target.value.split(",") as RunState[]) : undefined })
          }
        >
          <option value="">{w("all")}</option>
          {RUN_STATES.map((state) => (
            <option key={state} value={state}>
              {w(state)}
            </option>
          ))}
          <option value="failed,timed_out">{`${w("failed")} / ${w("timed_out")}`}</option>
        </select>
      </div>
      <div className="field">
        <label htmlFor="runs-from">{t("from")}</label>
        <input
          id="runs-from"
          type="date"
          className="input"
          value={localDay(search.created_after)}
          onChange={(event) => change({ created_after: day(event.target.value) })}
        />
      </div>
      {search.workflow ? (
        <span className="chip">
          {t("workflow")}: {search.workflow}
        </span>
      ) : null}
      {filtered ? (
        <button type="button" className="button quiet" onClick={() => void navigate({ search: {}, replace: true })}>
          {t("clear")}
        </button>
      ) : null}
    </div>
  );
}

/** The day of a time in the viewer's zone, as a field of the type `date` has it. */
function localDay(time: string | undefined): string {
  return time ? new Date(time).toLocaleDateString("sv-SE") : "";
}
