import { useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { StateIcon } from "./StateIcon";
import { toneOf } from "./tone";

interface Props {
  /** A word of an enum of the API, such as `succeeded`. */
  state: string | number | null | undefined;
  title?: string;
}

export function StateBadge({ state, title }: Props) {
  const t = useMessages(words);
  const word = String(state ?? "unknown");
  const key = wordKey("", word);
  return (
    <span className={`badge tone-${toneOf(word)}`} title={title}>
      <StateIcon state={word} />
      {key ? t(key) : word}
    </span>
  );
}
