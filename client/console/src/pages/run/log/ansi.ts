/** A piece of a line in one style; `style` is class names, such as `fg-1 bold`. */
export interface Piece {
  text: string;
  style: string;
}

const ESC = "\u001b";
// A colour or style (kept in the group), another control sequence, an operating system command, another escape.
const SEQUENCE = new RegExp(
  `${ESC}\\[([0-9;:]*)m|${ESC}\\[[0-?]*[ -/]*[@-~]?|${ESC}\\][^\u0007${ESC}]*(?:\u0007|${ESC}\\\\)?|${ESC}[ -/]*[0-~]?`,
  "g",
);
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/g;
const STYLES: Record<number, string> = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS: Record<number, string[]> = {
  22: ["bold", "dim"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  29: ["strike"],
};

/** The pieces of a line as a terminal would colour them. Every other sequence is left out, and moves or clears nothing. */
export function pieces(line: string): Piece[] {
  if (!line.includes(ESC)) return [{ text: visible(line), style: "" }];
  const found: Piece[] = [];
  const style = new Style();
  let end = 0;
  for (const match of line.matchAll(SEQUENCE)) {
    const text = line.slice(end, match.index);
    if (text) found.push({ text: visible(text), style: style.names });
    if (match[1] !== undefined) style.apply(match[1]);
    end = match.index + match[0].length;
  }
  if (end < line.length) found.push({ text: visible(line.slice(end)), style: style.names });
  return found;
}

/** Control characters as their symbols, such as ␀. */
function visible(text: string): string {
  return text.replace(CONTROL, (each) => String.fromCharCode(each === "\u007f" ? 0x2421 : 0x2400 + each.charCodeAt(0)));
}

class Style {
  #on = new Set<string>();
  #colour = "";
  #ground = "";

  get names(): string {
    return [this.#colour, this.#ground, ...this.#on].filter(Boolean).join(" ");
  }

  apply(codes: string): void {
    const numbers = codes.split(/[;:]/).map(Number);
    for (let index = 0; index < numbers.length; index++) {
      const code = numbers[index] ?? 0;
      if (code === 38 || code === 48) {
        const [colour, used] = extended(numbers.slice(index + 1));
        this.#set(code === 48, colour);
        index += used;
      } else {
        this.#apply(code);
      }
    }
  }

  #set(isGround: boolean, colour: number | undefined): void {
    if (isGround) this.#ground = colour === undefined ? "" : `bg-${colour}`;
    else this.#colour = colour === undefined ? "" : `fg-${colour}`;
  }

  #apply(code: number): void {
    if (code === 0) {
      this.#on.clear();
      this.#colour = this.#ground = "";
    } else if (STYLES[code]) this.#on.add(STYLES[code]);
    else if (ENDS[code]) for (const each of ENDS[code]) this.#on.delete(each);
    else if (code === 39 || code === 49) this.#set(code === 49, undefined);
    else if (code >= 30 && code <= 37) this.#set(false, code - 30);
    else if (code >= 40 && code <= 47) this.#set(true, code - 40);
    else if (code >= 90 && code <= 97) this.#set(false, code - 82);
    else if (code >= 100 && code <= 107) this.#set(true, code - 92);
  }
}

/** One of 256 colours, or red, green and blue, as the nearest of sixteen; and how many numbers said so. */
function extended(numbers: number[]): [number | undefined, number] {
  const [kind, first = 0, second = 0, third = 0] = numbers;
  if (kind === 2) return [nearest(first, second, third), 4];
  if (kind !== 5) return [undefined, 0];
  if (first < 16) return [first, 2];
  if (first >= 232) {
    const grey = (first - 232) * 10 + 8;
    return [nearest(grey, grey, grey), 2];
  }
  const level = (part: number) => (part === 0 ? 0 : part * 40 + 55);
  const cube = first - 16;
  return [nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)), 2];
}

function nearest(red: number, green: number, blue: number): number {
  const top = Math.max(red, green, blue);
  if (top - Math.min(red, green, blue) < 32) return top < 64 ? 0 : top < 150 ? 8 : top < 224 ? 7 : 15;
  const part = (value: number) => (value > top * 0.6 ? 1 : 0);
  return part(red) + 2 * part(green) + 4 * part(blue) + (top > 200 ? 8 : 0);
}
