/** What is written at a place of a YAML text, by its indentation: the text may be unfinished. */
export interface PlaceInYaml {
  /** Keys from the root to the mapping; `[]` is an item of a list. */
  path: string[];
  /** The key of the line, if the place is behind its colon. */
  key: string | undefined;
  /** The word that is being written, and where it begins in the line. */
  word: string;
  from: number;
  /** Keys that the mapping has already. */
  taken: Set<string>;
}

interface Line {
  indent: number;
  dashes: number;
  column: number;
  key: string | undefined;
  blank: boolean;
}

function readLine(text: string): Line {
  const found = /^( *)((?:- +)*)(?:(["']?)([^\s#"':][^:#"']*)\3:(?=\s|$))?/.exec(text);
  const indent = found?.[1]?.length ?? 0;
  const dashes = found?.[2]?.length ?? 0;
  return { indent, dashes, column: indent + dashes, key: found?.[4], blank: /^\s*(#|$)/.test(text) };
}

/** The place at a column of a line; undefined where nothing is completed, such as in a comment. */
export function placeAt(lines: readonly string[], at: number, column: number): PlaceInYaml | undefined {
  const before = (lines[at] ?? "").slice(0, column);
  if (/(^|\s)#/.test(before)) return undefined;
  const here = readLine(before);
  const written = before.slice(here.column);
  const value = here.key === undefined ? undefined : /^[^:]*:\s+(["']?[\w.-]*)$/.exec(written);
  if (here.key !== undefined && !value) return undefined;
  if (here.key === undefined && !/^[\w-]*$/.test(written)) return undefined;
  const word = value?.[1] ?? written;
  return {
    path: pathTo(lines, at, here),
    key: value ? here.key : undefined,
    word,
    from: column - word.length,
    taken: siblings(lines, at, here),
  };
}

function pathTo(lines: readonly string[], at: number, here: Line): string[] {
  const path: string[] = [];
  // Keys and dashes of outer levels stand before these columns; an item may stand at the column of its list's key.
  let keys = here.column;
  let dashes = here.column;
  const enter = (line: Line) => {
    path.unshift("[]");
    keys = line.indent + 0.5;
    dashes = line.indent;
  };
  if (here.dashes) enter(here);
  for (let above = at - 1; above >= 0 && keys > 0; above -= 1) {
    const text = lines[above] ?? "";
    if (text.startsWith("---")) break;
    const line = readLine(text);
    if (line.blank) continue;
    const isParent = line.key !== undefined && line.column < keys;
    if (isParent) {
      path.unshift(line.key ?? "");
      keys = line.column;
      dashes = line.column;
    }
    if (line.dashes && line.indent < dashes && (isParent || line.column >= keys)) enter(line);
  }
  return path;
}

function siblings(lines: readonly string[], at: number, here: Line): Set<string> {
  const found = new Set<string>();
  const look = (from: number, step: 1 | -1) => {
    for (let each = from; each >= 0 && each < lines.length; each += step) {
      const line = readLine(lines[each] ?? "");
      if (line.blank) continue;
      if (step === 1 && (line.column < here.column || (line.dashes && line.indent < here.column))) return;
      if (line.column === here.column && line.key) found.add(line.key);
      if (step === -1 && (line.column < here.column || (line.dashes && line.indent < here.column))) return;
    }
  };
  if (!here.dashes) look(at - 1, -1);
  look(at + 1, 1);
  return found;
}
