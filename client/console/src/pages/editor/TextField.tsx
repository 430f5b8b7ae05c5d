import { useEffect, useId, useRef, useState } from "react";
import type { CodeProblem } from "~/parts/code/YamlEditor";
import { useMessages } from "~/i18n/messages";
import { editorMessages } from "./messages";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  problems?: readonly CodeProblem[] | undefined;
  hint?: string | undefined;
  lines?: number | undefined;
  mono?: boolean | undefined;
  readOnly?: boolean | undefined;
  /** The value is more than this field can show. */
  complex?: boolean | undefined;
  list?: string | undefined;
}

const PAUSE = 250;

/**
 * A field whose value goes into the text a moment after the last key, and when the field is left: half a word would be
 * written in quotes that the whole one does not need.
 */
export function TextField({ label, value, onChange, problems, hint, lines, mono, readOnly, complex, list }: Props) {
  const t = useMessages(editorMessages);
  const id = useId();
  const field = useTyped(value, onChange);
  const wrong = Boolean(problems?.some((each) => !each.warning));
  const common = {
    id,
    className: `${lines ? "textarea" : "input"}${mono ? " mono" : ""}`,
    value: field.shown,
    readOnly: Boolean(readOnly || complex),
    "aria-invalid": wrong || undefined,
    "aria-describedby": `${id}-about`,
    spellCheck: mono ? false : undefined,
    onChange: (event: { target: { value: string } }) => field.type(event.target.value),
    onBlur: field.flush,
  };
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {lines ? (
        <textarea {...common} rows={Math.min(16, Math.max(lines, field.shown.split("\n").length))} />
      ) : (
        <input {...common} list={list} autoComplete="off" />
      )}
      <div id={`${id}-about`}>
        <Problems problems={problems} />
        {complex ? <p className="hint">{t("complex")}</p> : hint ? <p className="hint">{hint}</p> : null}
      </div>
    </div>
  );
}

export function Problems({ problems }: { problems: readonly CodeProblem[] | undefined }) {
  if (!problems?.length) return null;
  return (
    <ul>
      {problems.map((each) => (
        <li key={each.message} className={each.warning ? "hint" : "problem"}>
          {each.message}
        </li>
      ))}
    </ul>
  );
}

function useTyped(value: string, onChange: (value: string) => void) {
  const [typed, setTyped] = useState<string>();
  const timer = useRef<number>(undefined);
  const latest = useRef({ value, onChange, typed });
  useEffect(() => {
    latest.current = { value, onChange, typed };
  });
  const flush = () => {
    window.clearTimeout(timer.current);
    const { typed: now, value: old, onChange: change } = latest.current;
    setTyped(undefined);
    if (now === undefined) return;
    // A block of lines keeps the line break at its end.
    const wanted = now.trimEnd() + (old.endsWith("\n") && now.trimEnd() ? "\n" : "");
    if (wanted !== old) change(wanted);
  };
  const flushed = useRef(flush);
  useEffect(() => {
    flushed.current = flush;
  });
  // What was typed last is not lost with the field.
  useEffect(() => () => flushed.current(), []);
  const type = (now: string) => {
    setTyped(now);
    latest.current.typed = now;
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const wanted = now.trimEnd() + (latest.current.value.endsWith("\n") && now.trimEnd() ? "\n" : "");
      if (wanted !== latest.current.value) latest.current.onChange(wanted);
    }, PAUSE);
  };
  return { shown: typed ?? value.replace(/\n$/, ""), type, flush };
}
