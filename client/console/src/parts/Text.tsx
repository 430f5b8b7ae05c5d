/** A message in which `words between backticks` are code. */
export function Text({ children }: { children: string }) {
  return children.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}
