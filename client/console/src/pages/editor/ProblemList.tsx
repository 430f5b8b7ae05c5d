import { useMessages } from "~/i18n/messages";
import type { CodeProblem } from "~/parts/code/YamlEditor";
import { editorMessages } from "./messages";

/** How many problems there are, and all of them when it is opened. */
export function ProblemList({ checking, problems }: { checking: boolean; problems: readonly CodeProblem[] }) {
  const t = useMessages(editorMessages);
  const errors = problems.filter((each) => !each.warning).length;
  const warnings = problems.length - errors;
  const parts = [errors ? t("problems", { n: errors }) : "", warnings ? t("warnings", { n: warnings }) : ""];
  const text = parts.filter(Boolean).join(" · ") || t("valid");
  const tone = errors ? "bad" : warnings ? "wait" : "ok";
  return (
    <div className="editor-problems" role="status">
      {problems.length === 0 ? (
        <span className={`badge tone-${tone}`}>{checking ? t("checking") : text}</span>
      ) : (
        <details>
          <summary>
            <span className={`badge tone-${tone}`}>{text}</span>
          </summary>
          <ul aria-label={t("problem_list")}>
            {problems.map((each) => (
              <li key={`${each.line}:${each.column}:${each.path}:${each.message}`}>
                {each.line ? <span className="muted">{t("line", { line: each.line })} </span> : null}
                {each.path ? <code>{each.path}: </code> : null}
                {each.message}
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}
