import type { Language } from "~/i18n/messages";

const cache = new Map<string, Intl.DateTimeFormat>();

function format(language: Language, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${language} ${JSON.stringify(options)}`;
  let found = cache.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat(language === "ja" ? "ja-JP" : "en-GB", options);
    cache.set(key, found);
  }
  return found;
}

export const VIEWER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Date and time to the second, with the name of the zone. */
export function fullTime(at: Date, language: Language, zone: string): string {
  const text = format(language, {
    year: "numeric",
    month: "short",
    day: "numeric",
    weekday: "short",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
    timeZone: zone,
  }).format(at);
  return `${text} ${zone}`;
}

/** As short as it can be: the time today, the date of this year, else with the year. */
export function shortTime(at: Date, language: Language, now: number): string {
  const today = new Date(now);
  const time: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (at.toDateString() === today.toDateString()) {
    return format(language, { ...time, second: "2-digit" }).format(at);
  }
  const date: Intl.DateTimeFormatOptions = { month: "short", day: "numeric" };
  if (at.getFullYear() !== today.getFullYear()) date.year = "numeric";
  return format(language, { ...date, ...time }).format(at);
}

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

export function relativeTime(at: Date, language: Language, now: number): string {
  const seconds = (at.getTime() - now) / 1000;
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? ["second", 1];
  return new Intl.RelativeTimeFormat(language, { numeric: "auto" }).format(Math.trunc(seconds / size), unit);
}

const PARTS: Record<Language, [string, string, string, string, string]> = {
  en: ["d", "h", "min", "s", "ms"],
  ja: ["日", "時間", "分", "秒", "ミリ秒"],
};

/** A duration in its two largest units, such as `2 h 5 min`; below ten seconds with a tenth, below one in milliseconds. */
export function durationText(seconds: number, language: Language): string {
  const [d, h, m, s, ms] = PARTS[language];
  const gap = language === "ja" ? "" : " ";
  if (seconds < 1) return `${String(Math.floor(Math.max(0, seconds) * 1000))}${gap}${ms}`;
  if (seconds < 10) return `${(Math.floor(seconds * 10) / 10).toFixed(1)}${gap}${s}`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole}${gap}${s}`;
  if (whole < 3600) return joined(Math.floor(whole / 60), m, whole % 60, s, gap);
  if (whole < 86_400) return joined(Math.floor(whole / 3600), h, Math.floor((whole % 3600) / 60), m, gap);
  return joined(Math.floor(whole / 86_400), d, Math.floor((whole % 86_400) / 3600), h, gap);
}

function joined(first: number, unit: string, second: number, smaller: string, gap: string): string {
  return second === 0 ? `${first}${gap}${unit}` : `${first}${gap}${unit}${gap}${second}${gap}${smaller}`;
}

const SIZES = ["B", "KB", "MB", "GB", "TB"];

export function bytesText(bytes: number, language: Language): string {
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < SIZES.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size.toLocaleString(language, { maximumFractionDigits: size < 10 && unit > 0 ? 1 : 0 })} ${SIZES[unit]}`;
}
