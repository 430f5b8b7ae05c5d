import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useBlocker, useNavigate } from "@tanstack/react-router";
import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { Problem } from "~/api/problem";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { type CodeProblem, YamlEditor } from "~/parts/code/YamlEditor";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { PageHead } from "~/parts/PageHead";
import { toast } from "~/parts/toasts";
import { ConflictDialog } from "./ConflictDialog";
import { readWorkflow, type Workflow } from "~/pages/workflow/workflowApi";
import { createWorkflow, definitionSchemaQuery, updateWorkflow } from "./definitionApi";
import { DefinitionForm } from "./DefinitionForm";
import { DefinitionGraph } from "./DefinitionGraph";
import { readForm } from "./document/form";
import { editorMessages } from "./messages";
import { fieldProblems } from "./problems";
import { ProblemList } from "./ProblemList";
import { useProblems } from "./useProblems";
import "./editor.css";

type View = "form" | "graph" | "yaml";
const VIEWS: readonly View[] = ["form", "graph", "yaml"];

interface Props {
  initial: string;
  stored?: Workflow;
}

/** One text, edited in three views. */
export function Editor({ initial, stored }: Props) {
  const t = useMessages(editorMessages);
  const [text, setText] = useState(initial);
  const [base, setBase] = useState(stored);
  const [view, setView] = useState<View>("form");
  const [selected, setSelected] = useState<number>();
  const mayEdit = useMay("editor");
  const save = useSave(text, base);
  const changed = text !== (base ? (base.definition?.source ?? "") : initial) && !save.done;
  const checked = useProblems(text, base?.definition?.base_dir ?? "");
  const problems: readonly CodeProblem[] = save.refused?.text === text ? save.refused.problems : checked.problems;
  const read = useDeferredValue(text);
  const form = useMemo(() => readForm(read), [read]);
  const fields = useMemo(() => fieldProblems(form, problems), [form, problems]);
  const schema = useQuery(definitionSchemaQuery).data;
  const title = base ? t("edit_title", { name: base.title || base.name }) : t("new_title");
  const choose = (at: number) => {
    setSelected(at);
    setView("form");
  };

  return (
    <div className="page editor" onKeyDown={mayEdit ? save.onKey : undefined}>
      <PageHead title={title}>
        <ProblemList checking={checked.checking} problems={problems} />
        {base ? (
          <Link to="/workflows/$workflowId" params={{ workflowId: base.name }} className="button">
            {t("cancel")}
          </Link>
        ) : (
          <Link to="/workflows" className="button">
            {t("cancel")}
          </Link>
        )}
        {mayEdit ? (
          <button type="button" className="button primary" disabled={save.busy} onClick={() => void save.save()}>
            {save.busy ? t("saving") : t("save")}
          </button>
        ) : null}
      </PageHead>
      {mayEdit ? null : <p className="notice">{t("may_not")}</p>}
      {save.error ? <ErrorNotice error={save.error} /> : null}
      <div className="tabs editor-tabs" role="tablist" aria-label={t("views")}>
        {VIEWS.map((each) => (
          <button
            key={each}
            type="button"
            role="tab"
            id={`tab-${each}`}
            aria-selected={view === each}
            aria-controls={`panel-${each}`}
            onClick={() => setView(each)}
          >
            {t(each)}
          </button>
        ))}
      </div>
      <div className={`editor-views show-${view}`}>
        <section className="editor-form" id="panel-form" aria-label={t("form")}>
          <DefinitionForm
            form={form}
            text={text}
            problems={fields}
            onChange={setText}
            selected={selected}
            readOnly={!mayEdit}
          />
        </section>
        <div className="editor-side">
          <section className="editor-graph" id="panel-graph">
            <DefinitionGraph form={form} selected={selected} onSelect={choose} />
          </section>
          <section className="editor-yaml" id="panel-yaml" aria-label={t("yaml")}>
            <YamlEditor
              label={t("yaml")}
              text={text}
              onChange={setText}
              problems={problems}
              schema={schema}
              readOnly={!mayEdit}
            />
          </section>
        </div>
      </div>
      <LeaveGuard changed={changed && mayEdit} />
      {save.conflict ? (
        <ConflictDialog
          stored={save.conflict}
          mine={text}
          onOverwrite={() => save.save({ over: save.conflict })}
          onReload={(workflow) => {
            setBase(workflow);
            setText(workflow.definition?.source ?? "");
            save.clear();
          }}
          onClose={save.clear}
        />
      ) : null}
      {save.owned ? (
        <ConfirmDialog
          title={t("owned_title", { name: base?.name ?? "" })}
          action={t("owned_save")}
          onConfirm={() => save.save({ force: true })}
          onClose={save.clear}
        >
          <p>{t("owned_text", { detail: save.owned })}</p>
        </ConfirmDialog>
      ) : null}
    </div>
  );
}

interface Saving {
  /** The stored definition to replace, whatever it is by now. */
  over?: Workflow | undefined;
  /** Also one that a file owns. */
  force?: boolean;
}

/** Saves the text, and keeps what the daemon said about it. */
function useSave(text: string, base: Workflow | undefined) {
  const t = useMessages(editorMessages);
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [state, setState] = useState<SaveState>({});
  const busy = useRef(false);
  const latest = useRef<() => Promise<void>>(async () => {});
  const [saved, setSaved] = useState<Workflow>();

  // When the guard knows that nothing is lost.
  useEffect(() => {
    if (saved) void navigate({ to: "/workflows/$workflowId", params: { workflowId: saved.name } });
  }, [saved, navigate]);

  async function save({ over, force = false }: Saving = {}) {
    if (busy.current) return;
    busy.current = true;
    setState({ busy: true });
    try {
      const old = over ?? base;
      const made = old ? await updateWorkflow(old.name, text, old, force) : await createWorkflow(text);
      toast(t("saved", { name: made.title || made.name, version: made.version }));
      void queries.invalidateQueries({ queryKey: ["workflows"] });
      setState({});
      setSaved(made);
    } catch (error) {
      setState(await refusal(error, text, base));
    } finally {
      busy.current = false;
    }
  }

  useEffect(() => {
    latest.current = save;
  });
  const onKey = (event: React.KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
      event.preventDefault();
      // A field that is being typed in gives its value first.
      document.activeElement?.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
      window.setTimeout(() => void latest.current());
    }
  };
  return { ...state, done: saved !== undefined, save, onKey, clear: () => setState({}) };
}

interface SaveState {
  busy?: boolean;
  error?: unknown;
  conflict?: Workflow;
  owned?: string;
  refused?: { text: string; problems: readonly CodeProblem[] };
}

async function refusal(error: unknown, text: string, base: Workflow | undefined): Promise<SaveState> {
  if (!(error instanceof Problem)) return { error };
  if (error.status === 412 && base) {
    try {
      return { conflict: await readWorkflow(base.name) };
    } catch {
      return { error };
    }
  }
  if (error.reason === "OWNED_BY_FILE") return { owned: error.message };
  if (error.problems.length > 0) return { error, refused: { text, problems: error.problems } };
  return { error };
}

/** Asks before changes are lost, within the console and when the tab is closed. */
function LeaveGuard({ changed }: { changed: boolean }) {
  const t = useMessages(editorMessages);
  const blocker = useBlocker({ shouldBlockFn: () => changed, enableBeforeUnload: () => changed, withResolver: true });
  if (blocker.status !== "blocked") return null;
  return (
    <ConfirmDialog
      title={t("leave_title")}
      action={t("leave")}
      danger
      onConfirm={async () => blocker.proceed()}
      onClose={() => {}}
      onCancel={blocker.reset}
    >
      <p>{t("leave_text")}</p>
    </ConfirmDialog>
  );
}
