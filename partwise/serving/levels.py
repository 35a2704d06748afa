"""Which models answer: the levels that are asked in turn, each a version of a catalog or a run.

All of it is as it was when it was opened. A new version is another value, so that a question keeps
the one that it began with.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs import rows
from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.errors import IntegrityError, ModelNotFoundError
from partwise.models.serdes import ModelSerde, serde_by_name
from partwise.runs.bundle import StoredArtifact, artifact_from_row, decode
from partwise.runs.documents import RUN_SCHEME, run_path
from partwise.runs.exports import (
    check_has_models,
    find_exports,
    has_one_model,
    ledger_of_models,
)
from partwise.runs.run import Run
from partwise.runs.stored_models import model_set, models_of
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn

Format = Literal["onnx", "native"]

_READ = ["run_id", "model", "weights", "categories"]
"""The columns of a `ModelSet` that are needed to find and read a model."""

_AT_ONCE = 2000
"""Partition IDs that are made Python's own at one time."""

_MOST_PLACES = 65_536
"""Keys of which it is remembered where their models stand, about 1 KiB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a model stands, and what goes with it."""

    run_id: str
    model: StoredArtifact
    weights: StoredArtifact | None
    categories: StoredArtifact | None

    identity: tuple[str, str, str]
    """What two equal models have in common, wherever they stand."""


class Level:
    """The models of a version of a catalog, or of a run."""

    def __init__(
        self,
        *,
        store: Store,
        reference: str,
        version: int,
        key_columns: tuple[KeyColumn, ...],
        partition_ids: pa.ChunkedArray,
        models: pa.Table,
    ) -> None:
        """`models` has the columns of a `ModelSet`, a row for each of the partition_ids."""
        self.store = store
        self.reference = reference
        self.version = version
        """Of the catalog, or the generation of the run."""
        self.key_columns = key_columns
        self._row_of: dict[str, int] = {}
        # Piece by piece, so that a server answers in between.
        for start in range(0, len(partition_ids), _AT_ONCE):
            names = partition_ids.slice(start, _AT_ONCE).to_pylist()
            self._row_of.update(zip(names, range(start, start + len(names)), strict=True))
        self.models = models.select(_READ)
        self._places: dict[str, Place] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def place(self, partition_id: str) -> Place | None:
        """Return where the model of a partition stands; None: it has none."""
        found = self._places.get(partition_id)
        if found is None:
            row = self._row_of.get(partition_id)
            if row is None:
                return None
            found = _place(self.models.slice(row, 1).to_pylist()[0])
            if len(self._places) >= _MOST_PLACES:
                # Two threads may find it full at one time.
                self._places.clear()
            self._places[partition_id] = found
        return found

    def places_met(self) -> dict[str, Place]:
        """Return the places that were asked for, by partition_id."""
        return dict(self._places)

    def partition_ids(self) -> list[str]:
        """Return all partitions that have a model."""
        return list(self._row_of)

    def read(self, place: Place, file: StoredArtifact) -> bytes:
        """Return the content of a file of a model.

        Raises:
            IntegrityError: It is gone, or not what was committed.
            StoreError: The store cannot be read.
        """
        path = run_path(place.run_id, file.bundle)
        try:
            stored = self.store.read_range(path, file.offset, file.stored_bytes)
        except FileNotFoundError as error:
            raise IntegrityError(
                f"{path} is gone, and {self.reference} draws on it: restore it from a backup."
            ) from error
        return decode(stored, file, f"the run {place.run_id!r}, in {self.reference}")


def _place(row: dict[str, Any]) -> Place:
    model, weights, categories = (
        row[name] and artifact_from_row(row[name]) for name in ("model", "weights", "categories")
    )
    first, second, third = (
        "" if file is None else file.sha256 for file in (model, weights, categories)
    )
    return Place(
        run_id=row["run_id"],
        model=model,
        weights=weights,
        categories=categories,
        identity=(first, second, third),
    )


def open_level(
    reference: str, store: Store, form: Format, serde: ModelSerde | None
) -> tuple[Level, Catalog | Run]:
    """Open what a reference names, and return the catalog or run that has the models as well.

    Args:
        reference: catalog://NAME, catalog://NAME@VERSION or run://ID.
        store: Where it stands.
        form: "onnx" for exports, "native" for models as they were trained.
        serde: Reads models that no native serde wrote.

    Raises:
        CatalogNotFoundError, RunNotFoundError: There is no such version or run.
        ModelNotFoundError: It has no model of this form.
        SerdeError: Its models need a serde that was not given.
        SignatureError, RunFormatError, IntegrityError: It is not to be trusted, or damaged.
    """
    source: Catalog | Run
    if reference.startswith(CATALOG_SCHEME):
        source = Catalog.open(reference, store)
        level = _level_of_catalog(source, form)
    else:
        source = Run.open(reference.removeprefix(RUN_SCHEME), store)
        if form == "onnx":
            source = Run.open(find_exports(source, form).run_id, store)
        # A handle keeps its ledger, which may be large; pages read it once somebody looks.
        level = _level_of_run(copy(source))
    if not len(level):
        raise ModelNotFoundError(
            f"{level.reference} has no model in the format {form!r}"
            + (
                ": export its models and promote them with their exports, or serve them as they "
                "were trained (--format native)."
                if form == "onnx"
                else "."
            )
        )
    for name in pc.struct_field(level.models["model"], "serde").unique().to_pylist():
        serde_by_name(name, serde)
    return level, source


def _level_of_catalog(catalog: Catalog, form: Format) -> Level:
    models = catalog.model_set(form)
    table = catalog.table.filter(pc.is_valid(catalog.table[form]))
    return Level(
        store=catalog.store,
        reference=catalog.reference,
        version=catalog.version,
        key_columns=catalog.key_columns,
        partition_ids=table["partition_id"],
        models=models.models,
    )


def _level_of_run(run: Run) -> Level:
    is_one = has_one_model(run)
    check_has_models(run, takes_exports=True)
    models = model_set(run, models_of(ledger_of_models(run)), of_all_rows=is_one)
    names = models.models["owner"]
    return Level(
        store=run.store,
        reference=models.name,
        version=run.generation if run.shown is None else run.shown.generation,
        key_columns=models.key_columns,
        partition_ids=pa.chunked_array([[rows.OF_ALL]]) if is_one and len(names) else names,
        models=models.models,
    )
