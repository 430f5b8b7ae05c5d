import { type ReactNode, useEffect } from "react";

interface Props {
  title: string;
  /** One sentence: what the page is about. */
  intro?: ReactNode;
  /** Buttons. */
  children?: ReactNode;
}

export function PageHead({ title, intro, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Toban`;
  }, [title]);
  return (
    <div className="page-head">
      <div>
        <h1>{title}</h1>
        {intro ? <p className="intro">{intro}</p> : null}
      </div>
      {children ? <div className="row">{children}</div> : null}
    </div>
  );
}
