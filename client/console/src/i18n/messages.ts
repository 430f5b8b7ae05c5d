import { useSyncExternalStore } from "react";

export type Language = "en" | "ja";
export const LANGUAGES: Record<Language, string> = { en: "English", ja: "日本語" };

type Values = Record<string, string | number>;

/** The texts of one part of the console, in every language. Both must have the same keys. */
export interface Messages<Key extends string> {
  en: Record<Key, string>;
  ja: Record<Key, string>;
}

export type Translate<Key extends string> = (key: Key, values?: Values) => string;

export function messages<const Key extends string>(texts: Messages<Key>): Messages<Key> {
  return texts;
}

const STORED = "toban.language";
const listeners = new Set<() => void>();
let current: Language = initialLanguage();

function initialLanguage(): Language {
  const stored = localStorage.getItem(STORED);
  if (stored === "en" || stored === "ja") return stored;
  return navigator.languages.some((each) => each.startsWith("ja")) ? "ja" : "en";
}

export function language(): Language {
  return current;
}

export function setLanguage(chosen: Language): void {
  current = chosen;
  localStorage.setItem(STORED, chosen);
  document.documentElement.lang = chosen;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useLanguage(): Language {
  return useSyncExternalStore(subscribe, language);
}

/**
 * Fills in a text. `{name}` is a value; a text with `|` has the form for one before it and the form for other numbers
 * after it, chosen by the value `n`. Numbers are written as the language writes them.
 */
export function fill(text: string, values: Values, chosen: Language): string {
  const forms = text.split("|");
  const form = (forms.length > 1 && values.n !== 1 ? forms[1] : forms[0]) ?? text;
  return form.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? value.toLocaleString(chosen) : value;
  });
}

export function translator<Key extends string>(texts: Messages<Key>, chosen: Language): Translate<Key> {
  return (key, values) => (values ? fill(texts[chosen][key], values, chosen) : texts[chosen][key]);
}

/** The texts in the chosen language; the component is drawn again when the language changes. */
export function useMessages<Key extends string>(texts: Messages<Key>): Translate<Key> {
  return translator(texts, useLanguage());
}
