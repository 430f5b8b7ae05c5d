import { type RefObject, useCallback, useLayoutEffect, useState } from "react";

/** Browsers draw no element that is much higher: from here on, the scroll bar moves faster than the rows. */
const TALLEST = 8_000_000;
const OVERSCAN = 12;

export interface FixedRows {
  /** Of the element inside of the frame that scrolls. */
  height: number;
  /** Where in it the drawn rows begin. */
  top: number;
  /** The drawn rows are those from `first` to before `end`. */
  first: number;
  end: number;
  /** The rows that can be seen. */
  firstSeen: number;
  lastSeen: number;
  /** Scrolls so that the row is seen; in the middle if it was not. */
  show: (row: number) => void;
  /** Scrolls to the last row. */
  toEnd: () => void;
}

/** Which of a number of rows of one height are drawn. The cost does not depend on their number. */
export function useFixedRows(frame: RefObject<HTMLElement | null>, count: number, rowHeight: number): FixedRows {
  const [scrolled, setScrolled] = useState(0);
  const [view, setView] = useState(600);
  const total = count * rowHeight;
  const height = Math.min(total, TALLEST);
  const present = count > 0;
  useLayoutEffect(() => {
    const element = frame.current;
    if (!element || !present) return;
    const measure = () => setView(element.clientHeight);
    const scroll = () => setScrolled(element.scrollTop);
    const observer = new ResizeObserver(measure);
    measure();
    scroll();
    observer.observe(element);
    element.addEventListener("scroll", scroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", scroll);
    };
  }, [frame, present]);

  const stretch = height > view && total > height ? (total - view) / (height - view) : 1;
  const offset = scrolled * stretch;
  const firstSeen = Math.min(Math.max(0, Math.floor(offset / rowHeight)), Math.max(0, count - 1));
  const lastSeen = Math.min(count - 1, Math.floor((offset + view - 1) / rowHeight));
  const first = Math.max(0, firstSeen - OVERSCAN);
  const end = Math.min(count, lastSeen + 1 + OVERSCAN);

  const show = useCallback(
    (row: number) => {
      const element = frame.current;
      if (!element) return;
      const now = element.scrollTop * stretch;
      if (row * rowHeight >= now && (row + 1) * rowHeight <= now + element.clientHeight) return;
      element.scrollTop = Math.max(0, row * rowHeight - element.clientHeight / 2) / stretch;
    },
    [frame, rowHeight, stretch],
  );
  const toEnd = useCallback(() => {
    if (frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [frame]);
  return { height, top: first * rowHeight - (offset - scrolled), first, end, firstSeen, lastSeen, show, toEnd };
}
