import { useRef } from "react";
import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { Duration } from "~/parts/Duration";
import { useFixedRows } from "~/parts/fixedRows";
import { StateIcon } from "~/parts/StateIcon";
import { toneOf } from "~/parts/tone";
import { runMessages } from "./messages";
import type { Step, WholeRun } from "./runQueries";
import { useSelection } from "./selection";
import { stepState } from "./steps";

const ROW = 30;
const SHOWN = 8;
/** What needs attention comes first. */
const ORDER = ["failed", "incomplete", "running", "cancelled", "ready", "pending"];

/** The instances of a `for_each` step, failed ones first. */
export function Instances({ run, step }: { run: WholeRun; step: Step }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const { select } = useSelection();
  const frame = useRef<HTMLDivElement>(null);
  const rank = (each: Step) => (ORDER.indexOf(each.state ?? "") + ORDER.length + 1) % (ORDER.length + 1);
  const instances = step.instances
    ? run.steps.filter((each) => each.parent === step.id).sort((a, b) => rank(a) - rank(b))
    : [];
  const rows = useFixedRows(frame, instances.length, ROW);
  if (instances.length === 0) return null;
  return (
    <section>
      <h3>{t("instances", { n: instances.length })}</h3>
      <div
        ref={frame}
        className="instances"
        style={{ height: Math.min(instances.length, SHOWN) * ROW }}
        role="group"
        aria-label={t("instances", { n: instances.length })}
      >
        <div style={{ height: rows.height }} className="rows-space">
          <div style={{ transform: `translateY(${rows.top}px)` }}>
            {instances.slice(rows.first, rows.end).map((each) => {
              const key = wordKey("", stepState(each));
              return (
                <button
                  type="button"
                  key={each.id}
                  className={`instance tone-${toneOf(stepState(each))}`}
                  onClick={() => select(each.id)}
                >
                  <StateIcon state={stepState(each)} />
                  <span className="number">{`[${each.instance ?? ""}]`}</span>
                  <span className="one-line">{each.item_json || (key ? w(key) : "")}</span>
                  {each.started_at ? <Duration from={each.started_at} to={each.finished_at} /> : null}
                </button>
              );
            })}
          </div>
        </div>
      </div>
    </section>
  );
}
