import type { LogLine, LogStream } from "./logLines";

const STREAMS: readonly LogStream[] = ["stdout", "stderr", "system"];
/** Milliseconds: a page that is busy for longer feels slow. */
const SLICE = 12;

export type LogEnd = { kind: "complete" } | { kind: "problem"; message: string; reason: string };

/**
 * The lines that have arrived, column by column: a million of them are a few large arrays, and not a million objects.
 * Listeners hear of changes at most once per frame.
 */
export class LineStore {
  #texts: string[] = [];
  #times: string[] = [];
  #streams: number[] = [];
  #steps: number[] = [];
  #attempts: number[] = [];
  #levels: number[] = [];
  #words = new Map<string, number>();
  #names: string[] = [];
  #listeners = new Set<() => void>();
  #frame: number | undefined;
  #version = 0;
  end: LogEnd | undefined;

  get count(): number {
    return this.#texts.length;
  }

  add(line: LogLine): void {
    this.#texts.push(line.text);
    this.#times.push(line.at);
    this.#streams.push(STREAMS.indexOf(line.stream));
    this.#steps.push(this.#word(line.step));
    this.#attempts.push(line.attempt);
    this.#levels.push(this.#word(line.level));
    this.#changed();
  }

  finish(end: LogEnd): void {
    this.end = end;
    this.#changed();
  }

  line(index: number): LogLine {
    return {
      text: this.#texts[index] ?? "",
      at: this.#times[index] ?? "",
      stream: STREAMS[this.#streams[index] ?? 0] ?? "stdout",
      step: this.#names[this.#steps[index] ?? 0] ?? "",
      attempt: this.#attempts[index] ?? 1,
      level: this.#names[this.#levels[index] ?? 0] ?? "",
    };
  }

  /** The texts of whole lines. */
  texts(first: number, last: number): string {
    return this.#texts.slice(first, last + 1).join("\n");
  }

  /** The lines from `first` on that match, and the line up to which it looked: for a few milliseconds at most. */
  find(wanted: RegExp, first: number): { found: number[]; end: number } {
    const found: number[] = [];
    const until = performance.now() + SLICE;
    let index = first;
    for (; index < this.count; index++) {
      if (wanted.test(this.#texts[index] ?? "")) found.push(index);
      if (index % 256 === 255 && performance.now() > until) break;
    }
    return { found, end: Math.min(index + 1, this.count) };
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly version = (): number => this.#version;

  #word(text: string): number {
    const known = this.#words.get(text);
    if (known !== undefined) return known;
    this.#words.set(text, this.#names.length);
    return this.#names.push(text) - 1;
  }

  #changed(): void {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined;
      this.#version += 1;
      for (const listener of this.#listeners) listener();
    });
  }
}
