"""All borders, and how values of a type are taken across them."""

from collections.abc import Callable
from pathlib import Path

from partwise.sources.opening import open_source
from tests.borders.database_borders import sqlite_output
from tests.borders.type_borders import (
    Lines,
    Rows,
    categories,
    features,
    filters,
    keys,
    labels,
    outputs,
    predictions,
    read,
    refused,
    source,
)
from tests.borders.type_cases import Case

BORDERS: dict[str, Callable[[Rows, Path], Lines]] = {
    "source": source,
    "filter": filters,
    "key": keys,
    "feature": features,
    "category": categories,
    "label": labels,
    "prediction": predictions,
    "output": outputs,
    "SQLite": sqlite_output,
}


def cross(case: Case, count: int, folder: Path) -> tuple[int, list[str]]:
    """Take drawn values of a case across all borders.

    Returns:
        How many values there were, and a line for each border behind which one was another.
    """
    values = case.drawn(count)
    if case.kind == "refused":
        reading = lambda: list(open_source(case.write(values, folder)).batches())  # noqa: E731
        return len(values), list(refused(reading, "source", "x"))
    rows = read(case, values, folder)
    lines = [line for border in BORDERS.values() for line in border(rows, folder)]
    return len(rows.values), lines
