import type { ReactNode } from "react";
import { Text } from "./Text";

interface Props {
  title: string;
  /** What belongs here, and how it comes here. */
  children?: ReactNode;
  /** A command to try, as typed in a terminal. */
  command?: string;
  action?: ReactNode;
}

/** Says why there is nothing, and what to do. */
export function EmptyState({ title, children, command, action }: Props) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children ? <p>{typeof children === "string" ? <Text>{children}</Text> : children}</p> : null}
      {command ? (
        <pre tabIndex={0}>
          <code>{command}</code>
        </pre>
      ) : null}
      {action}
    </div>
  );
}
