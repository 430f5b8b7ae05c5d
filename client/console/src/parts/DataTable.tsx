import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useLayoutEffect, useRef, useState } from "react";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";

export interface Column<Row> {
  key: string;
  header: string;
  cell: (row: Row) => ReactNode;
  /** `end` aligns right, `fit` is as narrow as its text. */
  className?: string;
  /** On a phone the row is a card; this column has its header before the value. */
  labelled?: boolean;
}

interface Props<Row> {
  label: string;
  columns: Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** There is a further page. */
  hasMore?: boolean | undefined;
  loadingMore?: boolean;
  onMore?: () => void;
}

const VIRTUAL_FROM = 150;
const ROW_HEIGHT = 52;

/** A table that draws only the rows in view once there are many, and asks for the next page near its end. */
export function DataTable<Row>({ label, columns, rows, rowKey, hasMore, loadingMore, onMore }: Props<Row>) {
  const t = useMessages(words);
  return (
    <section className="table-frame" aria-label={label} tabIndex={0}>
      <table className="table cards" role="table">
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <th key={column.key} scope="col" role="columnheader" className={column.className}>
                {column.header || <span className="visually-hidden">{t("actions")}</span>}
              </th>
            ))}
          </tr>
        </thead>
        {rows.length >= VIRTUAL_FROM ? (
          <VirtualBody columns={columns} rows={rows} rowKey={rowKey} />
        ) : (
          <tbody role="rowgroup">
            {rows.map((row) => (
              <DataRow key={rowKey(row)} columns={columns} row={row} />
            ))}
          </tbody>
        )}
      </table>
      {hasMore ? (
        <div className="table-foot">
          <button type="button" className="button small" disabled={loadingMore} onClick={onMore}>
            {loadingMore ? t("loading") : t("more")}
          </button>
        </div>
      ) : null}
    </section>
  );
}

interface RowProps<Row> {
  columns: Column<Row>[];
  row: Row;
  index?: number;
  measure?: (element: HTMLElement | null) => void;
}

function DataRow<Row>({ columns, row, index, measure }: RowProps<Row>) {
  return (
    <tr className="data" role="row" ref={measure} data-index={index}>
      {columns.map((column) => (
        <td
          key={column.key}
          role="cell"
          className={column.className}
          data-label={column.labelled ? column.header : undefined}
        >
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
}

function VirtualBody<Row>({ columns, rows, rowKey }: Pick<Props<Row>, "columns" | "rows" | "rowKey">) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [offset, setOffset] = useState(0);
  useLayoutEffect(() => {
    setOffset((body.current?.getBoundingClientRect().top ?? 0) + window.scrollY);
  }, []);
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
    scrollMargin: offset,
    getItemKey: (index) => rowKey(rows[index] as Row),
  });
  const items = virtual.getVirtualItems();
  const before = (items[0]?.start ?? offset) - offset;
  const after = virtual.getTotalSize() - ((items.at(-1)?.end ?? offset) - offset);
  return (
    <tbody role="rowgroup" ref={body}>
      <Space height={before} columns={columns.length} />
      {items.map((item) => (
        <DataRow
          key={item.key}
          columns={columns}
          row={rows[item.index] as Row}
          index={item.index}
          measure={virtual.measureElement}
        />
      ))}
      <Space height={after} columns={columns.length} />
    </tbody>
  );
}

function Space({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr className="space" aria-hidden="true">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}
