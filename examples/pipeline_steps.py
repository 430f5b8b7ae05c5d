"""Python steps of pipeline.yaml: plain functions that take arguments and return JSON values."""

from __future__ import annotations

import csv
import os
import time


def make_table(rows: int) -> dict[str, object]:
    """Writes a table to the context directory of the run and returns its path."""
    directory = os.environ["TOBAN_CONTEXT_DIR"]
    path = os.path.join(directory, "table.csv")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "amount"])
        for number in range(1, rows + 1):
            writer.writerow([number, number * 7 % 11 - 1])
    print(f"wrote {rows} rows")
    return {"directory": directory, "path": path, "rows": rows}


def check_table(path: str, strict: bool) -> None:
    """Raises ValueError, which fails the step, if `strict` and an amount is negative."""
    time.sleep(0.5)
    with open(path, newline="", encoding="utf-8") as file:
        negative = [row["id"] for row in csv.DictReader(file) if int(row["amount"]) < 0]
    print(f"rows with a negative amount: {len(negative)}")
    if negative and strict:
        raise ValueError(f"negative amounts in rows {', '.join(negative)}")
