import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { discardDeadLetter, requeueDeadLetter } from "~/api/actions";
import { type DeadLetter, deadLettersQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { deadLettersMessages } from "./messages";

interface Chosen {
  letter: DeadLetter;
  requeue: boolean;
}

export function DeadLettersPage() {
  const t = useMessages(deadLettersMessages);
  const { all } = useSearch({ from: "/dead_letters" });
  const navigate = useNavigate({ from: "/dead_letters" });
  const query = useInfiniteQuery(deadLettersQuery(all ? [] : ["open"]));
  const [chosen, setChosen] = useState<Chosen>();
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <section className="card">
        <div className="card-head filters">
          <div className="field">
            <label htmlFor="letters-shown">{t("show")}</label>
            <select
              id="letters-shown"
              className="select"
              value={all ? "all" : "open"}
              onChange={(event) => void navigate({ search: event.target.value === "all" ? { all: true } : {} })}
            >
              <option value="open">{t("only_open")}</option>
              <option value="all">{t("all")}</option>
            </select>
          </div>
        </div>
        <QueryView query={query}>
          {(pages) => {
            const letters = pages.pages.flatMap((page) => page.dead_letters);
            if (letters.length === 0) return <EmptyState title={t("empty_title")}>{t("empty")}</EmptyState>;
            return (
              <Table
                letters={letters}
                onChoose={setChosen}
                hasMore={query.hasNextPage}
                onMore={() => void query.fetchNextPage()}
              />
            );
          }}
        </QueryView>
      </section>
      {chosen ? <ChosenDialog {...chosen} onClose={() => setChosen(undefined)} /> : null}
    </div>
  );
}

interface TableProps {
  letters: DeadLetter[];
  onChoose: (chosen: Chosen) => void;
  hasMore: boolean;
  onMore: () => void;
}

function Table({ letters, onChoose, hasMore, onMore }: TableProps) {
  const t = useMessages(deadLettersMessages);
  const w = useMessages(words);
  const mayAct = useMay("operator");
  const columns: Column<DeadLetter>[] = [
    {
      key: "step",
      header: w("step"),
      cell: (letter) => (
        <Link to="/runs/$runId" params={{ runId: letter.run_id }} className="main">
          {nameOf(letter)}
        </Link>
      ),
    },
    { key: "state", header: w("state"), className: "fit", cell: (letter) => <StateBadge state={letter.state} /> },
    { key: "error", header: t("error"), cell: (letter) => <span className="clamp">{letter.error_message}</span> },
    {
      key: "attempts",
      header: t("attempts"),
      labelled: true,
      className: "fit end",
      cell: (letter) => <span className="number">{letter.attempts}</span>,
    },
    { key: "when", header: w("when"), className: "fit", cell: (letter) => <Time at={letter.created_at} relative /> },
    {
      key: "action",
      header: "",
      className: "fit end",
      cell: (letter) =>
        letter.state === "open" && mayAct ? (
          <span className="row nowrap">
            {([true, false] as const).map((requeue) => (
              <button
                key={String(requeue)}
                type="button"
                className="button small"
                aria-label={t(requeue ? "requeue_name" : "discard_name", { name: nameOf(letter) })}
                onClick={() => onChoose({ letter, requeue })}
              >
                {t(requeue ? "requeue" : "discard")}
              </button>
            ))}
          </span>
        ) : letter.requeued_as ? (
          <Link to="/runs/$runId" params={{ runId: letter.requeued_as }}>
            {t("repeated")}
          </Link>
        ) : null,
    },
  ];
  return (
    <DataTable
      label={t("title")}
      columns={columns}
      rows={letters}
      rowKey={(letter) => letter.id}
      hasMore={hasMore}
      onMore={onMore}
    />
  );
}

function nameOf(letter: DeadLetter): string {
  return `${letter.workflow_title || letter.workflow} › ${letter.step_title || letter.step}`;
}

function ChosenDialog({ letter, requeue, onClose }: Chosen & { onClose: () => void }) {
  const t = useMessages(deadLettersMessages);
  const queries = useQueryClient();
  const name = nameOf(letter);
  return (
    <ConfirmDialog
      title={t(requeue ? "requeue_title" : "discard_title", { name })}
      action={t(requeue ? "requeue" : "discard")}
      danger={!requeue}
      onConfirm={async () => {
        if (requeue) {
          const { run } = await requeueDeadLetter(letter.id);
          toast(t("requeued", { name, number: String(run?.number) }));
        } else {
          await discardDeadLetter(letter.id);
          toast(t("discarded", { name }));
        }
        await queries.invalidateQueries({ queryKey: ["dead_letters"] });
      }}
      onClose={onClose}
    >
      <p>{t(requeue ? "requeue_text" : "discard_text")}</p>
    </ConfirmDialog>
  );
}
