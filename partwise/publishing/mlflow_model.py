"""What MLflow loads as the model of a version of a catalog: each row is predicted by its key's own.

Its file is an address. Models are read from the store when a key first needs one, by range, and
nothing in them runs code: those that are pickles are refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.catalogs.catalog import Catalog
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import returned_table
from partwise.connector.trained_rows import with_trained_categories
from partwise.errors import InputError
from partwise.runs.run import ONLY
from partwise.sources.frames.tables import table_of
from partwise.store.store import Store
from partwise.tables.dictionaries import without_views
from partwise.tables.keys.partition_keys import Key, normalize_keys, rows_by_key
from partwise.trainers.predict import default_predict

if TYPE_CHECKING:
    import pandas as pd

ADDRESS = "catalog.json"
"""The model's file: store and version."""
_MOST_KEPT = 1000
"""Models that one process keeps; of trees some 70 KiB each."""


def address_of(catalog: Catalog) -> bytes:
    """Return the content of a model's file."""
    store = catalog.store
    named = {"url": store.url, "endpoint_url": store.endpoint_url, "region": store.region}
    return json.dumps({"catalog": f"{catalog.name}@{catalog.version}", "store": named}).encode()


def _load_pyfunc(path: str) -> "CatalogModel":
    """Return the model of a file; MLflow calls it by this name."""
    address = json.loads(Path(path).read_text())
    return CatalogModel(Catalog.open(address["catalog"], Store(**address["store"])))


class CatalogModel:
    """Predicts rows of one key or of many."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._kept: dict[str, tuple[Any, pa.Table | None]] = {}

    def predict(
        self, model_input: Any, params: Mapping[str, Any] | None = None
    ) -> "pd.DataFrame | pd.Series":
        """Predict rows, in their order; those of a frame of pandas keep its index.

        Args:
            model_input: A frame, table, or mapping of columns.
            params: `key` is the key of all rows, as the command line takes it; without it, the rows
                have the key columns.

        Raises:
            InputError: Neither is there.
            PartitionNotFoundError: The catalog does not have a key.
            ModelNotFoundError: A key is retired.
        """
        import pandas as pd

        is_mapping = isinstance(model_input, Mapping)
        table = pa.table(dict(model_input)) if is_mapping else table_of(model_input)
        # Of views, as polars has them, Arrow can take no rows.
        predicted = self._predicted(without_views(table), str((params or {}).get("key") or ""))
        frame: pd.DataFrame = predicted.to_pandas()
        if isinstance(model_input, pd.DataFrame):
            # By which pandas sets a column: rows that were sorted or filtered count otherwise.
            frame.index = model_input.index
        only: bool = predicted.column_names == ["prediction"]
        return frame["prediction"] if only else frame

    def _predicted(self, table: pa.Table, key: str) -> pa.Table:
        columns = self.catalog.key_columns
        if not table.num_rows:
            # Which no model is asked for: most libraries refuse them.
            return pa.table({"prediction": pa.array([], pa.float64())})
        if key or not columns:
            return self._by_one(table, key if columns else ONLY)
        missing = [each.name for each in columns if each.name not in table.column_names]
        if missing:
            raise InputError(
                f"The rows lack the key column {missing[0]!r} of {self.catalog.reference}, and "
                "params names no key: give one of them."
            )
        groups = rows_by_key(normalize_keys(table, columns))
        parts = [self._by_one(table.take(pa.array(rows)), key) for key, rows in groups]
        both = pa.concat_tables(parts, promote_options="permissive")
        return both.take(pa.array(np.argsort(np.concatenate([rows for _, rows in groups]))))

    def _by_one(self, table: pa.Table, key: Key) -> pa.Table:
        model, categories = self._read(key)
        data = with_trained_categories(DataConnector(table), categories)
        return returned_table(default_predict(data, model, PartitionContext(key=key)), "prediction")

    def _read(self, key: Key) -> tuple[Any, pa.Table | None]:
        name = repr(key)
        if name not in self._kept:
            found = self.catalog.model(key), self.catalog.categories(key)
            if len(self._kept) == _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = found
        return self._kept[name]
