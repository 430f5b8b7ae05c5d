import { useId } from "react";
import { useMessages } from "~/i18n/messages";
import { dependenciesOf, type StepForm } from "./document/form";
import { withDependsOn, withStepField } from "./document/steps";
import { editorMessages } from "./messages";
import type { StepProps } from "./StepCard";
import { Problems } from "./TextField";

/** The steps that a step waits for. */
export function WaitsFor({ form, at, text, problems, onChange, readOnly }: StepProps) {
  const t = useMessages(editorMessages);
  const id = useId();
  const step = form.steps[at] as StepForm;
  const chosen = dependenciesOf(form)[at] ?? [];
  const own = step.hasDependsOn || form.stepsKind !== "list";
  const free = form.steps
    .map((each, place) => ({ each, place }))
    .filter(({ each, place }) => {
      return place !== at && !(each.id && step.dependsOn.includes(each.id));
    });
  const add = (place: number) => {
    const other = form.steps[place];
    if (!other) return;
    // A step whose id the daemon makes of its name gets one that can be written here.
    const other_id = other.id || `step-${place + 1}`;
    const named = other.id ? text : withStepField(text, place, "id", other_id);
    onChange(withDependsOn(named, at, [...step.dependsOn, other_id]));
  };
  const nothing = own ? t("waits_nothing") : at === 0 ? t("waits_nothing") : t("waits_previous");
  return (
    <div className="field">
      <label htmlFor={id}>{t("waits_for")}</label>
      <div className="row">
        {own && chosen.length ? (
          chosen.map((each) => (
            <span className="chip" key={each}>
              {each}
              {readOnly ? null : (
                <button
                  type="button"
                  className="chip-close"
                  aria-label={t("waits_remove", { name: each })}
                  onClick={() =>
                    onChange(
                      withDependsOn(
                        text,
                        at,
                        step.dependsOn.filter((one) => one !== each),
                      ),
                    )
                  }
                >
                  ×
                </button>
              )}
            </span>
          ))
        ) : (
          <span className="muted">{nothing}</span>
        )}
        <select
          id={id}
          className="select waits"
          value=""
          disabled={readOnly || free.length === 0}
          onChange={(event) => add(Number(event.target.value))}
        >
          <option value="">{t("waits_add")}</option>
          {free.map(({ each, place }) => (
            <option key={place} value={place}>
              {each.title || each.name || each.id}
            </option>
          ))}
        </select>
        {step.hasDependsOn && form.stepsKind === "list" && !readOnly ? (
          <button
            type="button"
            className="button small quiet"
            onClick={() => onChange(withDependsOn(text, at, undefined))}
          >
            {t("waits_reset")}
          </button>
        ) : null}
      </div>
      <Problems problems={problems?.get("depends_on")} />
    </div>
  );
}
