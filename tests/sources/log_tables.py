"""Tables of Delta and Iceberg, for tests."""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

if TYPE_CHECKING:
    from pyiceberg.table import Table

KEYS = ["a", "b/ü =%", None, "x:y", "a b", "%41"]


def some_rows(start: int = 0) -> pa.Table:
    """Six rows of six keys, with a number of its own each."""
    moments = [dt.datetime(2024, 1, 1 + day, 12, 0, 0, 123456, dt.UTC) for day in range(6)]
    return pa.table(
        {
            "key": KEYS,
            "day": pa.array([moment.date() for moment in moments]),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "n": pa.array(range(start, start + 6), pa.int64()),
            "x": [1.0, float("nan"), -0.0, None, 4.0, 5.0],
            "text": ["t" * 40 + str(row) for row in range(6)],
        }
    )


def write_delta(root: Path | str, table: pa.Table, mode: str = "append", **options) -> None:
    write_deltalake(str(root), table, mode=mode, **options)


def new_iceberg(folder: Path, table: pa.Table, name: str = "t", **options) -> "Table":
    """Create a table and append rows; its folder is `folder_of` it."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(exist_ok=True)
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
    catalog.create_namespace_if_not_exists("n")
    made = catalog.create_table(f"n.{name}", schema=options.pop("schema", table.schema), **options)
    made.append(table)
    catalog.close()
    return made


def folder_of(table: "Table") -> str:
    return table.metadata.location.removeprefix("file://")
