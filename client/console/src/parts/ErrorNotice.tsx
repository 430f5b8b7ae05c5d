import { Problem } from "~/api/problem";
import { messages, useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { Text } from "./Text";

const texts = messages({
  en: {
    offline: "The gateway does not answer. Is `toban web` still running?",
    unexpected: "The console failed: {message}",
  },
  ja: {
    offline: "ゲートウェイが応答しません。`toban web` は動いていますか。",
    unexpected: "コンソールでエラーが発生しました: {message}",
  },
});

interface Props {
  error: unknown;
  onRetry?: () => void;
}

export function ErrorNotice({ error, onRetry }: Props) {
  const t = useMessages(texts);
  const w = useMessages(words);
  const problem = error instanceof Problem ? error : undefined;
  return (
    <div className="notice bad stack" role="alert">
      {problem ? (
        <>
          <p>{problem.status === 0 ? <Text>{t("offline")}</Text> : problem.message}</p>
          {problem.problems.length > 0 ? (
            <ul>
              {problem.problems.map((each) => (
                <li key={`${each.line}:${each.column}:${each.path}:${each.message}`}>
                  {each.line ? <code>{`${each.line}:${each.column ?? 1} `}</code> : null}
                  {each.path ? <code>{`${each.path}: `}</code> : null}
                  {each.message}
                </li>
              ))}
            </ul>
          ) : null}
        </>
      ) : (
        <p>{t("unexpected", { message: error instanceof Error ? error.message : String(error) })}</p>
      )}
      {onRetry ? (
        <div>
          <button type="button" className="button small" onClick={onRetry}>
            {w("retry")}
          </button>
        </div>
      ) : null}
    </div>
  );
}
