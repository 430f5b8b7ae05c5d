import { defaultHighlightStyle, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

/**
 * The root for an editor inside of an element. The content security policy allows no style elements, which the editor
 * makes in a document; in a shadow root it uses style sheets that scripts may make.
 */
export function shadowOf(host: HTMLElement): ShadowRoot {
  return host.shadowRoot ?? host.attachShadow({ mode: "open" });
}

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--ok)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--odd)" },
  { tag: tags.comment, color: "var(--text-muted)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.bracket], color: "var(--text-muted)" },
  { tag: [tags.meta, tags.labelName, tags.typeName], color: "var(--wait)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13.5px" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": {
    backgroundColor: "var(--sunken)",
    color: "var(--text-muted)",
    borderRight: "1px solid var(--border)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 8%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, ::selection": {
    backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent) !important",
  },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--border-strong)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent-fill)", color: "#fff" },
  ".cm-completionInfo": { maxWidth: "24rem", padding: "0.4rem 0.6rem" },
  ".cm-diagnostic": { color: "var(--text)", padding: "0.3rem 0.5rem" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--bad-fill)" },
  ".cm-diagnostic-warning": { borderLeft: "4px solid var(--wait-fill)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad-fill)",
    textUnderlineOffset: "3px",
  },
  ".cm-lintRange-warning": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--wait-fill)",
    textUnderlineOffset: "3px",
  },
  ".cm-lint-marker": { width: "0.7em", height: "0.7em", borderRadius: "50%", marginTop: "0.45em", content: '""' },
  ".cm-lint-marker-error": { backgroundColor: "var(--bad-fill)" },
  ".cm-lint-marker-warning": { backgroundColor: "var(--wait-fill)" },
  ".cm-changedText": { background: "color-mix(in srgb, var(--ok-fill) 30%, transparent) !important" },
  "&.cm-merge-a .cm-changedText, .cm-deletedChunk .cm-deletedText": {
    background: "color-mix(in srgb, var(--bad-fill) 30%, transparent) !important",
  },
  ".cm-changedLine": { backgroundColor: "var(--ok-soft) !important" },
  "&.cm-merge-a .cm-changedLine, .cm-deletedChunk": { backgroundColor: "var(--bad-soft) !important" },
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: '"⋯" !important' },
  ".cm-collapsedLines": { background: "var(--sunken)", color: "var(--text-muted)", padding: "0.15rem 0.6rem" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--text)" },
});

/** Without colours of syntax, which the marks of a comparison would make hard to read. */
export const plainLook = look;
export const codeLook = [
  look,
  syntaxHighlighting(colours),
  syntaxHighlighting(defaultHighlightStyle, { fallback: true }),
];
