import { yaml } from "@codemirror/lang-yaml";
import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { messages, useMessages } from "~/i18n/messages";
import { plainLook, shadowOf } from "./codeHost";
import "./code.css";

const texts = messages({
  en: { same: "The texts are the same.", unchanged: "$ unchanged lines" },
  ja: { same: "違いはありません。", unchanged: "変更のない$行" },
});
const NARROW = 700;

interface Props {
  before: string;
  after: string;
  beforeName: string;
  afterName: string;
}

/** Two texts side by side; on a narrow screen one, with what was removed. */
export function YamlDiff({ before, after, beforeName, afterName }: Props) {
  const t = useMessages(texts);
  const host = useRef<HTMLDivElement>(null);
  const unchanged = t("unchanged");
  useEffect(() => {
    const root = host.current && shadowOf(host.current);
    if (!root || before === after) return;
    const shown = (name: string) => [
      lineNumbers(),
      yaml(),
      plainLook,
      EditorView.lineWrapping,
      EditorView.editable.of(false),
      EditorState.readOnly.of(true),
      EditorState.phrases.of({ "$ unchanged lines": unchanged }),
      EditorView.contentAttributes.of({ "aria-label": name, tabindex: "0" }),
    ];
    const collapseUnchanged = { margin: 3, minSize: 6 };
    if (window.innerWidth < NARROW) {
      const merged = unifiedMergeView({ original: before, mergeControls: false, collapseUnchanged });
      const view = new EditorView({ root, parent: root, doc: after, extensions: [...shown(afterName), merged] });
      return () => view.destroy();
    }
    const view = new MergeView({
      root,
      parent: root as unknown as Element,
      a: { doc: before, extensions: shown(beforeName) },
      b: { doc: after, extensions: shown(afterName) },
      collapseUnchanged,
    });
    return () => view.destroy();
  }, [before, after, beforeName, afterName, unchanged]);
  if (before === after) return <p className="muted">{t("same")}</p>;
  return (
    <div className="diff">
      <div className="diff-names">
        <span>{beforeName}</span>
        <span>{afterName}</span>
      </div>
      <div className="code" ref={host} />
    </div>
  );
}
