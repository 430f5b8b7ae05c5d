import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useState } from "react";
import { startRun } from "~/api/actions";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { QueryView } from "~/parts/QueryView";
import { toast } from "~/parts/toasts";
import { workflowMessages } from "./messages";
import { firstText, type ParamTexts, ParamTextError, paramValues } from "./params";
import { type Param, parsedDefinition } from "./parsedDefinition";
import { workflowQuery } from "./workflowApi";
import "./workflow.css";

/** Asks for the parameters that the definition has, starts a run, and opens it. */
export function RunDialog({ workflow, onClose }: { workflow: string; onClose: () => void }) {
  const t = useMessages(workflowMessages);
  const navigate = useNavigate();
  const query = useQuery(workflowQuery(workflow));
  const [texts, setTexts] = useState<ParamTexts>({});
  const params = parsedDefinition(query.data?.definition?.parsed_json).params ?? [];
  const name = query.data?.title || workflow;
  return (
    <ConfirmDialog
      title={t("params_title", { name })}
      action={t("run")}
      onConfirm={async () => {
        const run = await startRun(workflow, values(params, texts, t("params_no_json")));
        toast(t("started", { name, number: String(run.number) }));
        void navigate({ to: "/runs/$runId", params: { runId: run.id } });
      }}
      onClose={onClose}
    >
      <QueryView query={query}>
        {() =>
          params.length === 0 ? (
            <p className="muted">{t("params_none")}</p>
          ) : (
            params.map((each) => (
              <ParamField
                key={each.name}
                param={each}
                text={texts[each.name] ?? firstText(each)}
                onChange={(text) => setTexts((old) => ({ ...old, [each.name]: text }))}
              />
            ))
          )
        }
      </QueryView>
    </ConfirmDialog>
  );
}

function values(params: readonly Param[], texts: ParamTexts, wrong: string): Record<string, unknown> {
  try {
    return paramValues(params, texts);
  } catch (error) {
    if (error instanceof ParamTextError) throw new Error(wrong.replace("{name}", error.param), { cause: error });
    throw error;
  }
}

interface FieldProps {
  param: Param;
  text: string;
  onChange: (text: string) => void;
}

function ParamField({ param, text, onChange }: FieldProps) {
  const t = useMessages(workflowMessages);
  const id = useId();
  const hints = [
    param.description,
    param.secret ? t("params_secret") : undefined,
    param.type === "list" || param.type === "mapping" ? t("params_json") : undefined,
  ].filter(Boolean);
  return (
    <div className="field">
      <label htmlFor={id}>
        {param.name} <span className="muted">{param.required ? t("params_required") : param.type}</span>
      </label>
      <ParamInput id={id} param={param} text={text} onChange={onChange} />
      {hints.map((each) => (
        <p className="hint" key={each}>
          {each}
        </p>
      ))}
    </div>
  );
}

function ParamInput({ id, param, text, onChange }: FieldProps & { id: string }) {
  const t = useMessages(workflowMessages);
  const common = { id, required: Boolean(param.required), value: text, autoComplete: "off" };
  const choices = param.type === "boolean" ? [true, false] : (param.choices ?? []);
  if (choices.length) {
    return (
      <select {...common} className="select" onChange={(event) => onChange(event.target.value)}>
        {param.has_default ? null : <option value="">{param.required ? "" : t("params_default")}</option>}
        {choices.map((each) => (
          <option key={String(each)} value={typeof each === "string" ? each : JSON.stringify(each)}>
            {String(each)}
          </option>
        ))}
      </select>
    );
  }
  if (param.type === "list" || param.type === "mapping") {
    return (
      <textarea {...common} className="textarea mono" rows={3} onChange={(event) => onChange(event.target.value)} />
    );
  }
  const number = param.type === "integer" || param.type === "number";
  return (
    <input
      {...common}
      className="input"
      type={param.secret ? "password" : "text"}
      autoComplete={param.secret ? "new-password" : "off"}
      inputMode={number ? "decimal" : undefined}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
