import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Schemas } from "~/api/client";
import { useLanguage, useMessages } from "~/i18n/messages";
import { QueryView } from "~/parts/QueryView";
import { workflowMessages } from "./messages";
import { runsByDayQuery } from "./workflowApi";

const FAILED = new Set(["failed", "timed_out"]);
const LEVELS = 4;

interface Day {
  day: string;
  runs: number;
  failed: number;
}

/** A calendar of a year: a column for each week, darker with more runs, red with failed ones. */
export function YearOfRuns({ workflow }: { workflow: string }) {
  const t = useMessages(workflowMessages);
  const query = useQuery(runsByDayQuery(workflow));
  return (
    <section className="card padded stack">
      <div>
        <h2>{t("year")}</h2>
        <p className="muted">{t("year_hint")}</p>
      </div>
      <QueryView query={query}>
        {(found) => <Year first={found.first_day} last={found.last_day} days={found.days} workflow={workflow} />}
      </QueryView>
    </section>
  );
}

interface Props {
  first: string;
  last: string;
  days: readonly Schemas["RunsOfDay"][];
  workflow: string;
}

function Year({ first, last, days, workflow }: Props) {
  const t = useMessages(workflowMessages);
  const language = useLanguage();
  const weeks = useMemo(() => weeksOf(first, last, days), [first, last, days]);
  const all = weeks.flat();
  const most = Math.max(1, ...all.map((each) => each?.runs ?? 0));
  const total = all.reduce((sum, each) => sum + (each?.runs ?? 0), 0);
  const failed = all.reduce((sum, each) => sum + (each?.failed ?? 0), 0);
  const month = new Intl.DateTimeFormat(language, { month: "short", timeZone: "UTC" });
  return (
    <>
      <div className="year-frame" tabIndex={0} role="region" aria-label={t("year")} ref={showEnd}>
        <div className="year">
          {weeks.map((week, at) => {
            const begins = week.find((each) => each?.day.endsWith("-01"));
            return (
              <div className="year-week" key={week.find(Boolean)?.day ?? at}>
                <span className="year-month">{begins ? month.format(new Date(begins.day)) : ""}</span>
                {week.map((day, weekday) =>
                  day ? (
                    <DayCell key={day.day} day={day} most={most} workflow={workflow} />
                  ) : (
                    <span className="year-day none" key={weekday} />
                  ),
                )}
              </div>
            );
          })}
        </div>
      </div>
      <p className="muted row">
        {t("year_total", { n: total, failed })}
        <span className="row year-key" aria-hidden="true">
          {t("less")}
          {[0, 1, 2, 3, 4].map((each) => (
            <span key={each} className={`year-day level-${each}`} />
          ))}
          {t("more")}
        </span>
      </p>
    </>
  );
}

/** The newest days are in view where not all of them fit. */
function showEnd(frame: HTMLElement | null): void {
  if (frame) frame.scrollLeft = frame.scrollWidth;
}

function DayCell({ day, most, workflow }: { day: Day; most: number; workflow: string }) {
  const t = useMessages(workflowMessages);
  const language = useLanguage();
  const date = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeZone: "UTC" }).format(new Date(day.day));
  if (day.runs === 0) return <span className="year-day level-0" title={t("year_none", { day: date })} />;
  const level = Math.ceil((day.runs / most) * LEVELS);
  const text = t("year_day", { day: date, n: day.runs, failed: day.failed });
  const from = new Date(`${day.day}T00:00:00`);
  const to = new Date(from);
  to.setDate(to.getDate() + 1);
  return (
    <Link
      to="/runs"
      search={{ workflow, created_after: from.toISOString(), created_before: to.toISOString() }}
      className={`year-day level-${level}${day.failed ? " bad" : ""}`}
      title={text}
      aria-label={text}
    />
  );
}

/** The days in weeks from Sunday on; undefined before the first and behind the last day. */
function weeksOf(first: string, last: string, days: readonly Schemas["RunsOfDay"][]): (Day | undefined)[][] {
  const found = new Map(days.map((each) => [each.day, each]));
  const weeks: (Day | undefined)[][] = [];
  const end = new Date(last).getTime();
  for (let at = new Date(first); at.getTime() <= end; at.setUTCDate(at.getUTCDate() + 1)) {
    const weekday = at.getUTCDay();
    if (weeks.length === 0 || weekday === 0) weeks.push(Array<Day | undefined>(7).fill(undefined));
    const day = at.toISOString().slice(0, 10);
    const counts = found.get(day)?.counts ?? [];
    const sum = (wanted: (state: string) => boolean) =>
      counts.filter((each) => wanted(each.state ?? "")).reduce((total, each) => total + Number(each.runs), 0);
    const week = weeks.at(-1);
    if (week) week[weekday] = { day, runs: sum(() => true), failed: sum((state) => FAILED.has(state)) };
  }
  return weeks;
}
