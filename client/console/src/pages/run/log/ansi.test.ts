import { describe, expect, it } from "vitest";
import { pieces } from "./ansi";

const ESC = "\u001b";
const text = (line: string) =>
  pieces(line)
    .map((piece) => piece.text)
    .join("");
const styles = (line: string) => pieces(line).map((piece) => piece.style);

describe("pieces of a line", () => {
  it("have the colours and styles that were asked for", () => {
    expect(pieces(`${ESC}[1;31mbad${ESC}[22m less${ESC}[0m none`)).toEqual([
      { text: "bad", style: "fg-1 bold" },
      { text: " less", style: "fg-1" },
      { text: " none", style: "" },
    ]);
    expect(styles(`${ESC}[97;44mx${ESC}[39my${ESC}[49mz`)).toEqual(["fg-15 bg-4", "bg-4", ""]);
    expect(styles(`${ESC}[4mx${ESC}[mnone`)).toEqual(["underline", ""]);
  });

  it("have the nearest of sixteen colours for 256 and for all", () => {
    expect(styles(`${ESC}[38;5;9mx`)).toEqual(["fg-9"]);
    expect(styles(`${ESC}[38;5;196mx`)).toEqual(["fg-9"]);
    expect(styles(`${ESC}[48;5;232mx`)).toEqual(["bg-0"]);
    expect(styles(`${ESC}[38;2;0;128;0mx`)).toEqual(["fg-2"]);
    expect(styles(`${ESC}[38;2;250;250;250;1mx`)).toEqual(["fg-15 bold"]);
  });

  it("have none of the other sequences, whole or cut off", () => {
    expect(text(`a${ESC}[2J${ESC}[10;10Hb${ESC}]0;title\u0007c${ESC}]8;;http://x${ESC}\\d${ESC}(Be${ESC}`)).toBe(
      "abcde",
    );
    expect(text(`a${ESC}[31`)).toBe("a");
    expect(text(`a${ESC}]0;never ends`)).toBe("a");
  });

  it("show control characters", () => {
    expect(text("a\u0000b\u0007c\td\u007f")).toBe("a␀b␇c\td␡");
  });
});
