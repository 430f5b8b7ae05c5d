import { pieces } from "./ansi";

interface Props {
  text: string;
  /** Marks these places: what was looked for. */
  found?: RegExp | undefined;
}

/** A line with the colours that it asked for. It is text, whatever it contains. */
export function AnsiText({ text, found }: Props) {
  return (
    <bdi className="ansi">
      {pieces(text).map((piece, index) => (
        <span key={index} className={piece.style || undefined}>
          {found ? marked(piece.text, found) : piece.text}
        </span>
      ))}
    </bdi>
  );
}

const MOST_MARKS = 100;

function marked(text: string, found: RegExp) {
  const parts: React.ReactNode[] = [];
  let end = 0;
  for (const match of text.matchAll(new RegExp(found, "gi"))) {
    parts.push(text.slice(end, match.index), <mark key={match.index}>{match[0]}</mark>);
    end = match.index + match[0].length;
    if (parts.length > MOST_MARKS) break;
  }
  return [...parts, text.slice(end)];
}
