"""A catalog without any flow: runs whose models are words, promoted and read back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.commit import commit_version
from partwise.catalogs.documents import Origin, versions_of
from partwise.catalogs.rows import champions_of, replaced
from partwise.errors import CatalogNotFoundError
from partwise.models.serdes import serde_name
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.run_maker import TEXTS, RunMaker

Values = Mapping[Any, float]
"""What the model of each key is, as a number."""


@dataclass(frozen=True)
class Words:
    """Reads and writes models that are texts."""

    filename: str = "note.txt"

    def write(self, model: str, file_path: str) -> None:
        Path(file_path).write_text(model)

    def read(self, file_path: str) -> str:
        return Path(file_path).read_text()


def train(
    store: Store, run_id: str, values: Values, on_existing: str = "overwrite", keys=TEXTS
) -> Run:
    """Make a training run, or a further generation of it, which is complete."""
    maker = RunMaker(store, run_id, "train", serde_name(Words()), keys=keys)
    maker.begin(on_existing)
    if values:
        maker.commit(*((key, "DONE", value) for key, value in values.items()))
    return maker.end(len(values))


def newest(store: Store, name: str = "sales") -> Catalog | None:
    try:
        return Catalog.open(name, store)
    except CatalogNotFoundError:
        return None


def promote(
    store: Store, run_id: str, name: str = "sales", base: Catalog | None = None, **rule: Any
) -> Catalog:
    """Have all models of a run be champions, beside those of other keys."""
    # What is read before the commit is none of the operations that a watched store counts.
    plain = Store(url=store.url, endpoint_url=store.endpoint_url, region=store.region)
    base = base or newest(plain, name)
    rows = replaced(base and base.table, champions_of(Run.open(run_id, plain)))
    origin = Origin(action="promote", rule={"run": run_id, **rule})
    return commit_version(store, name, base=base, champions=rows, origin=origin)


def train_and_promote(store: Store, run_id: str, values: Values) -> Catalog:
    """Make a training run, and have all of its models be champions."""
    train(store, run_id, values)
    return promote(store, run_id)


def words(catalog: Catalog) -> dict[Any, str]:
    """Return the models of all keys, as their bytes in the store are now."""
    rows = [row for row in catalog.table.to_pylist() if not row["retired"]]
    names = [f"key.{column.name}" for column in catalog.key_columns]
    keys = [tuple(row[name] for name in names) for row in rows]
    keys = [key[0] if len(key) == 1 else key for key in keys]
    return {key: catalog.model(key, Words()) for key in keys}


def all_words(store: Store, name: str = "sales") -> dict[int, dict[Any, str]]:
    """Return the models of all versions that are there."""
    there = versions_of(store, name).there()
    return {number: words(Catalog.open(f"{name}@{number}", store)) for number in there}


def said(values: Values) -> dict[Any, str]:
    """Return the models of a run as `words` gives them."""
    return {key: f"{key} {value}" for key, value in values.items()}


def schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))
