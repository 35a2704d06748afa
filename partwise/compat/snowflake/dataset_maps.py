"""Rows by name as calls of theirs take them, and as the ranks of ours are given them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.ml.data.sharded_data_connector import ShardedDataConnector
from partwise.compat.snowflake.stages import own_rows
from partwise.ranks.context import RankContext

DATA = "train"
"""The source of a gang that is not of its `eval_data`."""


@dataclass(frozen=True)
class Placed:
    """Where a rank finds the rows of a name."""

    source: str
    is_sharded: bool
    equal: bool


@dataclass(frozen=True)
class DatasetMap:
    """Rows by name: what a call takes as `data` and `eval_data`, and where ranks find each."""

    data: Any
    eval_data: Mapping[str, Any]
    places: Mapping[str, Placed]


def placed(datasets: Mapping[str, Any] | None) -> DatasetMap:
    """Return what a call takes; `data` is what is called "train", or else comes first."""
    given = dict(datasets or {})
    # A call needs rows, even where its function asks for none.
    first = DATA if DATA in given else next(iter(given), "")
    places = {}
    for name, rows in given.items():
        sharded = rows if isinstance(rows, ShardedDataConnector) else None
        places[name] = Placed(
            source=DATA if name == first else name,
            is_sharded=sharded is not None,
            equal=sharded is not None and sharded.equal,
        )
    rows_by_name = {name: own_rows(rows) for name, rows in given.items()}
    data = rows_by_name.pop(first, pa.table({"nothing": [0]}))
    return DatasetMap(data=data, eval_data=rows_by_name, places=places)


def rank_datasets(context: RankContext, places: Mapping[str, Placed]) -> dict[str, Any]:
    """Return the rows of a rank by name; every rank has to call it alike."""
    # All at once: ranks would wait for each other where only some of them ask.
    datasets: dict[str, Any] = {}
    for name, place in places.items():
        whole = not place.is_sharded
        rows = context.data(place.source, equal=place.equal, whole=whole)
        datasets[name] = (
            DataConnector(rows) if whole else ShardedDataConnector(rows, place.equal, is_share=True)
        )
    return datasets
