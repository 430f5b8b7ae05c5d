import { Link, useSearch } from "@tanstack/react-router";
import { useMessages } from "~/i18n/messages";
import { PageHead } from "~/parts/PageHead";
import { FireLedger } from "./FireLedger";
import { schedulesMessages } from "./messages";
import { SubjectSchedules } from "./SubjectSchedules";
import { Upcoming } from "./Upcoming";

const VIEWS = ["upcoming", "subjects", "ledger"] as const;
export type ScheduleView = (typeof VIEWS)[number];

export function SchedulesPage() {
  const t = useMessages(schedulesMessages);
  const search = useSearch({ from: "/schedules" });
  const view = search.view ?? "upcoming";
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <nav className="tabs" aria-label={t("title")}>
        {VIEWS.map((each) => (
          <Link
            key={each}
            to="/schedules"
            search={each === "upcoming" ? {} : { view: each }}
            activeOptions={{ exact: true }}
            aria-current={each === view ? "page" : undefined}
          >
            {t(each)}
          </Link>
        ))}
      </nav>
      {view === "upcoming" ? <Upcoming /> : null}
      {view === "subjects" ? <SubjectSchedules subject={search.subject} ended={search.ended} /> : null}
      {view === "ledger" ? <FireLedger workflow={search.workflow ?? ""} /> : null}
    </div>
  );
}
