"""Where trained models stand: a table with one row for each, out of the ledger of a run.

A set of models is what inference, exports and comparisons take: of one run, or of a catalog, whose
models are of many.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.runs.bundle import CATEGORIES_FILENAME, EXTERNAL_DATA_SUFFIX, SKETCH_FILENAME
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.ledger import ARTIFACT, key_names, with_plain_keys
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import KeyColumn, key_identities, normalize_keys

MODEL_FILES = ("model", "weights", "categories", "sketch")
"""The columns of what is kept of a model."""

MODELS = pa.schema(
    [
        # Of the key that has the model, by `key_identities`; null: all partitions have it.
        pa.field("hash", pa.uint64()),
        pa.field("run_id", pa.string()),
        # Of the run, in which the model stands; null: the newest that is complete.
        pa.field("generation", pa.int32()),
        # The partition_id that the model has in its run.
        pa.field("owner", pa.string()),
        pa.field("model", ARTIFACT),
        # The artifact with the external data of an ONNX file; null: there is none.
        pa.field("weights", ARTIFACT),
        # That with the categories of the rows trained on; null: these had no dictionary columns.
        pa.field("categories", ARTIFACT),
        # That with the sketch of these rows; null: none was made.
        pa.field("sketch", ARTIFACT),
    ]
)
"""The columns of a set of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSet:
    """The models of a run, or of a version of a catalog."""

    name: str
    """As a run that uses it writes it down: run://sales-1, or catalog://sales@7."""
    key_columns: tuple[KeyColumn, ...]
    """None: it has one model, of all rows."""
    models: pa.Table
    """Of the columns `MODELS`."""
    n_shards: int | None = None
    """Among how many shards its models were divided, so that they lie together; None: no such
    number is better than others."""

    @property
    def title(self) -> str:
        """What a person calls it."""
        scheme, _, name = self.name.partition("://")
        return f"the {scheme} {name!r}"

    @property
    def serdes(self) -> list[str]:
        """The names of the serdes that wrote the models."""
        return sorted(pc.struct_field(self.models["model"], "serde").unique().to_pylist())

    def without_sketches(self) -> "ModelSet":
        """Return the models without what only an evaluation of their predictions reads."""
        nothing = pa.nulls(self.models.num_rows, ARTIFACT)
        place = self.models.column_names.index("sketch")
        return replace(self, models=self.models.set_column(place, "sketch", nothing))

    def checksums(self) -> list[tuple[str, str]]:
        """Return for each model its partition_id, "" for that of all partitions, and a checksum."""
        owners = self.models["owner"].to_pylist() if self.key_columns else [""]
        return list(zip(owners, model_checksums(self.models), strict=True))


def model_checksums(models: pa.Table) -> list[str]:
    """Return the sha256 of each model, followed by that of its categories if it has any."""
    model = pc.struct_field(models["model"], "sha256")
    categories = pc.struct_field(models["categories"], "sha256")
    both = pc.binary_join_element_wise(model, categories, ":")
    found: list[str] = pc.coalesce(both, model).to_pylist()
    return found


def model_set(run: Run, models: pa.Table, *, of_all_rows: bool = False) -> ModelSet:
    """Return models of a run as a set; `models` is of `models_of`.

    `of_all_rows` makes the run's one model that of all partitions, whatever their keys.
    """
    columns = () if of_all_rows else run.key_columns
    if of_all_rows:
        models = models.sort_by("shard").slice(0, 1)
        hashes = pa.nulls(models.num_rows, pa.uint64())
    else:
        hashes = key_hashes(models, columns)
    table = pa.table(
        {
            "hash": hashes,
            "run_id": pa.repeat(run.run_id, models.num_rows),
            "generation": pa.nulls(models.num_rows, pa.int32()),
            "owner": models["partition_id"],
            **{name: models[name] for name in MODEL_FILES},
        },
        schema=MODELS,
    )
    n_shards = None if of_all_rows else run.document.n_shards
    name = f"{RUN_SCHEME}{run.run_id}"
    return ModelSet(name=name, key_columns=columns, models=table, n_shards=n_shards)


def key_hashes(rows: pa.Table, columns: tuple[KeyColumn, ...]) -> pa.Array:
    """Return what the keys of a ledger's, or a catalog's, rows meet those of others by."""
    keys = with_plain_keys(rows.select(key_names(rows.column_names)))
    return pa.array(key_identities(normalize_keys(keys, columns)))


def models_of(ledger: pa.Table) -> pa.Table:
    """Return the rows of a ledger that have a model.

    In place of `artifacts` they have the columns `MODEL_FILES`, as `MODELS` says.
    """
    lists = ledger["artifacts"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    owners = lists.value_parent_indices().to_numpy()
    artifacts = lists.flatten()
    names = pc.struct_field(artifacts, "filename")
    models = _places(pc.not_equal(pc.struct_field(artifacts, "serde"), ""))
    # For each row of the ledger, which of all artifacts is its model; -1: it has none.
    model_of = np.full(ledger.num_rows, -1)
    model_of[owners[models]] = models
    data = _places(pc.ends_with(names, EXTERNAL_DATA_SUFFIX))
    data = data[model_of[owners[data]] >= 0]
    beside = pc.binary_join_element_wise(
        names.take(pa.array(model_of[owners[data]])), EXTERNAL_DATA_SUFFIX, ""
    )
    data = data[pc.equal(names.take(pa.array(data)), beside).to_numpy(zero_copy_only=False)]
    beside_model = {
        column: _places(pc.equal(names, filename))
        for column, filename in (("categories", CATEGORIES_FILENAME), ("sketch", SKETCH_FILENAME))
    }
    rows = ledger.drop_columns(["artifacts"]).take(pa.array(owners[models]))
    found = {"model": models}
    for column, places in {"weights": data, **beside_model}.items():
        of_row = np.full(ledger.num_rows, -1)
        of_row[owners[places]] = places
        found[column] = of_row[owners[models]]
    for column, places in found.items():
        rows = rows.append_column(column, artifacts.take(pa.array(places, mask=places < 0)))
    return rows


def _places(condition: pa.Array) -> np.ndarray:
    """Return where a condition holds."""
    return np.flatnonzero(condition.to_numpy(zero_copy_only=False))
