interface Props {
  current: number;
  total: number;
  /** What the numbers are about, for screen readers. */
  label: string;
  text?: string | undefined;
}

export function Progress({ current, total, label, text }: Props) {
  const share = total > 0 ? Math.min(1, current / total) : 0;
  return (
    <div className="progress">
      <div
        className="progress-track"
        role="progressbar"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={total || 1}
        aria-valuenow={Math.min(current, total || 1)}
      >
        <span style={{ width: `${share * 100}%` }} />
      </div>
      {text ? <span className="sub muted">{text}</span> : null}
    </div>
  );
}
