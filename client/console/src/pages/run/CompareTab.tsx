import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useId } from "react";
import { useLanguage, useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { StateBadge } from "~/parts/StateBadge";
import { durationText } from "~/parts/timeText";
import { runMessages } from "./messages";
import { valueText } from "./ParamsTab";
import { siblingsQuery, type Step, type WholeRun, wholeRunQuery } from "./runQueries";

/** This run beside another one of its workflow: what differs is marked. */
export function CompareTab({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const id = useId();
  const search = useSearch({ from: "/runs/$runId" });
  const navigate = useNavigate({ from: "/runs/$runId" });
  const siblings = useQuery(siblingsQuery(run.workflow)).data?.filter((each) => each.id !== run.id);
  const chosen =
    search.with ?? (run.retry_of || siblings?.find((each) => each.number < run.number)?.id || siblings?.[0]?.id);
  if (siblings?.length === 0 && !chosen) return <EmptyState title={t("no_other")}>{t("no_other_text")}</EmptyState>;
  return (
    <div className="padded-body stack">
      <div className="field compare-choice">
        <label htmlFor={id}>{t("compare_with")}</label>
        <select
          id={id}
          className="select"
          value={chosen ?? ""}
          onChange={(event) =>
            void navigate({
              search: (old) => ({ ...old, with: event.target.value }),
              replace: true,
              resetScroll: false,
            })
          }
        >
          {siblings?.map((each) => {
            const key = wordKey("", each.state);
            return (
              <option key={each.id} value={each.id}>
                {`#${each.number} · ${key ? w(key) : each.state}`}
              </option>
            );
          })}
          {chosen && !siblings?.some((each) => each.id === chosen) ? <option value={chosen}>{chosen}</option> : null}
        </select>
      </div>
      {chosen ? <Other run={run} otherId={chosen} /> : null}
    </div>
  );
}

function Other({ run, otherId }: { run: WholeRun; otherId: string }) {
  const query = useQuery(wholeRunQuery(otherId));
  return <QueryView query={query}>{(other) => <Comparison run={run} other={other} />}</QueryView>;
}

function Comparison({ run, other }: { run: WholeRun; other: WholeRun }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const steps = new Map(other.steps.map((step) => [step.id, step]));
  const own = run.steps.filter((step) => !step.parent);
  const gone = other.steps.filter((step) => !step.parent && !run.steps.some((each) => each.id === step.id));
  return (
    <div className="table-frame" role="group" aria-label={t("tab_compare")} tabIndex={0}>
      <table className="table compare">
        <thead>
          <tr>
            <td />
            <th scope="col">{`#${run.number}`}</th>
            <th scope="col">{`#${other.number}`}</th>
            <th scope="col" className="end">
              {t("difference")}
            </th>
          </tr>
        </thead>
        <tbody>
          <Row name={w("state")} own={<StateBadge state={run.state} />} other={<StateBadge state={other.state} />} />
          <Row
            name={t("version_word")}
            own={run.version}
            other={other.version}
            differs={run.version !== other.version}
          />
          <Times name={w("duration")} own={seconds(run)} other={seconds(other)} />
          <Params run={run} other={other} />
          {[...own, ...gone].map((step) => (
            <StepRow
              key={step.id}
              name={step.id}
              own={gone.includes(step) ? undefined : step}
              other={steps.get(step.id)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Params({ run, other }: { run: WholeRun; other: WholeRun }) {
  const own = (run.params ?? {}) as Record<string, unknown>;
  const others = (other.params ?? {}) as Record<string, unknown>;
  return [...new Set([...Object.keys(own), ...Object.keys(others)])]
    .sort()
    .map((name) => (
      <Row
        key={name}
        name={<code>{name}</code>}
        own={name in own ? valueText(own[name]) : "–"}
        other={name in others ? valueText(others[name]) : "–"}
        differs={valueText(own[name]) !== valueText(others[name])}
      />
    ));
}

function Row(props: { name: ReactNode; own: ReactNode; other: ReactNode; differs?: boolean; difference?: ReactNode }) {
  return (
    <tr className={props.differs ? "data differs" : "data"}>
      <th scope="row">{props.name}</th>
      <td>{props.own}</td>
      <td>{props.other}</td>
      <td className="end number">{props.difference ?? (props.differs ? "≠" : "")}</td>
    </tr>
  );
}

function seconds(ended: { started_at?: string; finished_at?: string }): number | undefined {
  if (!ended.started_at || !ended.finished_at) return undefined;
  return (Date.parse(ended.finished_at) - Date.parse(ended.started_at)) / 1000;
}

function Times({ name, own, other }: { name: ReactNode; own: number | undefined; other: number | undefined }) {
  const language = useLanguage();
  const text = (value: number | undefined) => (value === undefined ? "–" : durationText(value, language));
  return <Row name={name} own={text(own)} other={text(other)} difference={<Change own={own} other={other} />} />;
}

function Change({ own, other }: { own: number | undefined; other: number | undefined }) {
  const language = useLanguage();
  if (own === undefined || other === undefined) return null;
  const change = own - other;
  return `${change < 0 ? "−" : "+"}${durationText(Math.abs(change), language)}`;
}

function StepRow({ name, own, other }: { name: string; own: Step | undefined; other: Step | undefined }) {
  return (
    <Row
      name={own?.title || other?.title || name}
      own={own ? <StepCell step={own} /> : "–"}
      other={other ? <StepCell step={other} /> : "–"}
      differs={own?.state !== other?.state}
      difference={own && other ? <Change own={seconds(own)} other={seconds(other)} /> : null}
    />
  );
}

function StepCell({ step }: { step: Step }) {
  const language = useLanguage();
  const took = seconds(step);
  return (
    <span className="row">
      <StateBadge state={step.state} />
      {took !== undefined && step.state !== "skipped" ? (
        <span className="muted number">{durationText(took, language)}</span>
      ) : null}
    </span>
  );
}
