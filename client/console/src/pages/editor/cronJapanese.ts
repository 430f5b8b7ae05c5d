const DAYS = "日月火水木金土";
const NAMES = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MACROS: Record<string, string> = {
  "@hourly": "毎時0分",
  "@daily": "毎日 00:00",
  "@midnight": "毎日 00:00",
  "@weekly": "毎週日曜日 00:00",
  "@monthly": "毎月1日 00:00",
  "@yearly": "毎年1月1日 00:00",
  "@annually": "毎年1月1日 00:00",
  "@reboot": "マシンの起動時",
};

/** A common crontab expression in Japanese; undefined for one that takes more words. The daemon has the English ones. */
export function cronJapanese(text: string): string | undefined {
  const trimmed = text.trim().toLowerCase();
  if (trimmed in MACROS) return MACROS[trimmed];
  const [minute, hour, day, month, weekday, ...more] = trimmed.split(/\s+/);
  if (more.length || !minute || !hour || !day || !month || !weekday || month !== "*") return undefined;
  const days = daysText(day, weekday);
  if (!days) return undefined;
  const every = /^\*\/(\d+)$/.exec(minute);
  if (every && hour === "*") return days === "毎日" ? `${every[1]}分ごと` : `${days} ${every[1]}分ごと`;
  if (minute === "*" && hour === "*") return days === "毎日" ? "毎分" : `${days} 毎分`;
  if (!/^\d+$/.test(minute)) return undefined;
  const hours = /^\*\/(\d+)$/.exec(hour);
  if (hour === "*") return days === "毎日" ? `毎時${minute}分` : `${days} 毎時${minute}分`;
  if (hours) return `${days === "毎日" ? "" : `${days} `}${hours[1]}時間ごとの${minute}分`;
  if (!/^\d+(,\d+)*$/.test(hour)) return undefined;
  const times = hour.split(",").map((each) => `${each.padStart(2, "0")}:${minute.padStart(2, "0")}`);
  return `${days} ${times.join("、")}`;
}

function daysText(day: string, weekday: string): string | undefined {
  if (day === "*" && weekday === "*") return "毎日";
  if (weekday === "*")
    return day === "l" ? "毎月末日" : /^\d+(,\d+)*$/.test(day) ? `毎月${day.replaceAll(",", "日・")}日` : undefined;
  if (day !== "*") return undefined;
  const range = /^(\w+)-(\w+)$/.exec(weekday);
  if (range) {
    const [from, to] = [dayOf(range[1] ?? ""), dayOf(range[2] ?? "")];
    if (from === undefined || to === undefined) return undefined;
    return from === 1 && to === 5 ? "平日(月〜金)" : `毎週${DAYS[from]}〜${DAYS[to % 7]}曜日`;
  }
  const each = weekday.split(",").map(dayOf);
  return each.every((one) => one !== undefined) ? `毎週${each.map((one) => DAYS[one % 7]).join("・")}曜日` : undefined;
}

function dayOf(text: string): number | undefined {
  if (/^[0-7]$/.test(text)) return Number(text);
  const at = NAMES.indexOf(text);
  return at < 0 ? undefined : at;
}
