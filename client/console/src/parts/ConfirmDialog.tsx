import { type ReactNode, useId, useState } from "react";
import { messages, useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { Dialog } from "./Dialog";
import { ErrorNotice } from "./ErrorNotice";

const texts = messages({
  en: { type: "Type “{name}” to confirm." },
  ja: { type: "確認のため「{name}」と入力してください。" },
});

interface Props {
  title: string;
  children?: ReactNode;
  /** What the button says, such as “Cancel run”. */
  action: string;
  /** For what cannot be undone: the name that has to be typed. */
  name?: string;
  danger?: boolean;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
  /** In place of `onClose` if nothing was confirmed. */
  onCancel?: () => void;
}

export function ConfirmDialog({
  title,
  children,
  action,
  name,
  danger = false,
  onConfirm,
  onClose,
  onCancel = onClose,
}: Props) {
  const t = useMessages(texts);
  const w = useMessages(words);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const field = useId();

  async function confirm() {
    setBusy(true);
    setError(undefined);
    try {
      await onConfirm();
      onClose();
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  }

  return (
    <Dialog title={title} onClose={onCancel}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void confirm();
        }}
      >
        {children}
        {name ? (
          <div className="field">
            <label htmlFor={field}>{t("type", { name })}</label>
            <input
              id={field}
              className="input"
              autoComplete="off"
              value={typed}
              onChange={(event) => setTyped(event.target.value)}
            />
          </div>
        ) : null}
        {error ? <ErrorNotice error={error} /> : null}
        <div className="dialog-foot">
          <button type="button" className="button" onClick={onCancel}>
            {w("close")}
          </button>
          <button
            type="submit"
            className={danger ? "button danger" : "button primary"}
            disabled={busy || (name !== undefined && typed !== name)}
          >
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
