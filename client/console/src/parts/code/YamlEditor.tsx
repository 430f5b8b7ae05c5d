import {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  type Completion,
  type CompletionContext,
  type CompletionResult,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, indentOnInput, indentUnit } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import type { FieldProblem } from "~/api/problem";
import { codeLook, shadowOf } from "./codeHost";
import { placeAt } from "./schemaPath";
import { type Schema, wordsAt } from "./schemaWords";
import "./code.css";

export interface CodeProblem extends FieldProblem {
  warning?: boolean;
}

interface Props {
  label: string;
  text: string;
  onChange: (text: string) => void;
  problems: readonly CodeProblem[];
  schema: Schema | undefined;
  readOnly?: boolean;
}

/** A text of YAML with completion, and problems at their lines. */
export function YamlEditor({ label, text, onChange, problems, schema, readOnly = false }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const latest = useRef({ onChange, schema, text });
  useEffect(() => {
    latest.current = { onChange, schema, text };
  });

  useEffect(() => {
    const root = host.current && shadowOf(host.current);
    if (!root) return;
    const changes = EditorView.updateListener.of((update) => {
      const changed = update.state.doc.toString();
      if (update.docChanged && changed !== latest.current.text) latest.current.onChange(changed);
    });
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: latest.current.text,
        extensions: [
          ...basics(label),
          autocompletion({ icons: false, override: [(context) => complete(context, latest.current.schema)] }),
          changes,
          EditorState.readOnly.of(readOnly),
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = undefined;
    };
  }, [label, readOnly]);

  useEffect(() => {
    const state = view.current?.state;
    if (state && state.doc.toString() !== text)
      view.current?.dispatch({ changes: difference(state.doc.toString(), text) });
  }, [text]);

  useEffect(() => {
    const state = view.current?.state;
    if (state) view.current?.dispatch(setDiagnostics(state, diagnostics(state, problems)));
  }, [problems, text]);

  return <div className="code" ref={host} />;
}

function basics(label: string) {
  return [
    lineNumbers(),
    history(),
    indentOnInput(),
    indentUnit.of("  "),
    bracketMatching(),
    closeBrackets(),
    highlightActiveLine(),
    lintGutter(),
    EditorView.lineWrapping,
    yaml(),
    ...codeLook,
    EditorView.domEventHandlers({ beforeinput: insertLines }),
    EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
    // Tab moves on, as on the rest of the page.
    keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
  ];
}

/**
 * Text in place of several lines, or of several lines: the browser would give them style attributes, which the content
 * security policy refuses.
 */
function insertLines(event: InputEvent, view: EditorView): boolean {
  if (event.inputType !== "insertText" || event.isComposing) return false;
  const text = event.data ?? event.dataTransfer?.getData("text/plain");
  const { from, to } = view.state.selection.main;
  const lines = view.state.doc.lineAt(from).number !== view.state.doc.lineAt(to).number;
  if (text === undefined || view.state.readOnly || !(lines || text.includes("\n"))) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

/** The one change between two texts, so that the cursor and the history stay. */
function difference(old: string, now: string): { from: number; to: number; insert: string } {
  let from = 0;
  while (from < old.length && from < now.length && old[from] === now[from]) from += 1;
  let tail = 0;
  while (tail < old.length - from && tail < now.length - from && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  return { from, to: old.length - tail, insert: now.slice(from, now.length - tail) };
}

function diagnostics(state: EditorState, problems: readonly CodeProblem[]): Diagnostic[] {
  return problems.map((each) => {
    const line = state.doc.line(Math.min(Math.max(each.line || 1, 1), state.doc.lines));
    const from = Math.min(line.from + Math.max((each.column || 1) - 1, 0), line.to);
    const message = each.path ? `${each.path}: ${each.message}` : each.message;
    return { from, to: line.to, severity: each.warning ? "warning" : "error", message };
  });
}

function complete(context: CompletionContext, schema: Schema | undefined): CompletionResult | null {
  if (!schema) return null;
  const { doc } = context.state;
  const line = doc.lineAt(context.pos);
  const place = placeAt(doc.toString().split("\n"), line.number - 1, context.pos - line.from);
  if (!place || (!context.explicit && place.word === "" && place.key === undefined)) return null;
  const options = wordsAt(schema, place).map((each): Completion => {
    const option = { label: each.text, apply: each.isKey ? `${each.text}: ` : each.text };
    return { ...option, type: each.isKey ? "property" : "constant", ...(each.about ? { info: each.about } : {}) };
  });
  return options.length ? { from: line.from + place.from, options, validFor: /^[\w-]*$/ } : null;
}
