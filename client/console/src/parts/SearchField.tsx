import { useEffect, useId, useRef, useState } from "react";

interface Props {
  label: string;
  value: string;
  onChange: (text: string) => void;
}

const PAUSE = 200;

/** A field that reports what was typed after a short pause. */
export function SearchField({ label, value, onChange }: Props) {
  const id = useId();
  const [typed, setTyped] = useState(value);
  const timer = useRef<number>(undefined);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const type = (text: string) => {
    setTyped(text);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onChange(text), PAUSE);
  };
  return (
    <div className="field grow">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="search"
        className="input"
        autoComplete="off"
        value={typed}
        onChange={(event) => type(event.target.value)}
      />
    </div>
  );
}
