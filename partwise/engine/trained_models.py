"""Which trained models the partitions of a shard have, and bringing their bytes to the worker.

Sets of models are asked in an order, their *levels*: a set of fewer key columns has one model for
many partitions, and one without key columns has a model for all.
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.engine.works import StoredFile, StoredModel
from partwise.errors import IntegrityError, RunFormatError
from partwise.runs.bundle import StoredArtifact, artifact_from_row, neighbours
from partwise.runs.documents import run_path
from partwise.runs.stored_models import MODEL_FILES, ModelSet, model_checksums
from partwise.shuffle.plan import ShardedRows
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import hash_keys, key_identities

LARGEST_READ_BYTES = 64 << 20
"""Of one request for models that lie side by side."""
TRAINED_ON = "trained_on"
"""A column that the models of a comparison have as well: the fingerprint of the rows that a model
was trained on, null where it is not known."""
VALUE_THEN, ROWS_THEN = "value_then", "rows_then"
"""Columns that the models of an evaluation have as well: a metric, and the rows it was measured
on, as they are known since training or promotion."""
_Place = tuple[str, int]
"""The bundle of an artifact in its run, and where it begins there."""


def models_by_shard(sets: Sequence[ModelSet], sharded: ShardedRows) -> dict[int, pa.Table]:
    """Return which models the partitions of each shard have, a table for each shard with any.

    Returns:
        Tables of the columns of a `ModelSet`, in which `hash` is that of the partition's own key;
        with `level`: the place of the set among all.
    """
    tables, everywhere = [], []
    for level, models in enumerate(sets):
        if not models.key_columns:
            everywhere.append(_at_level(models.models, level))
            continue
        own = sharded.keys.select([each.name for each in models.key_columns])
        known = sharded.key_hashes if models.key_columns == sharded.key_columns else None
        rows = pc.index_in(pa.array(key_identities(own, known)), value_set=models.models["hash"])
        found = models.models.take(rows.drop_null())
        hashes = pa.array(sharded.key_hashes).filter(rows.is_valid())
        found = found.set_column(0, "hash", hashes)
        tables.append(_at_level(found, level))
    by_shard: dict[int, pa.Table] = {}
    if tables:
        found = pa.concat_tables(tables)
        numbers = found["hash"].to_numpy() % np.uint64(sharded.n_shards)
        order = np.argsort(numbers, kind="stable")
        found, numbers = found.take(pa.array(order)), numbers[order]
        shards, counts = np.unique(numbers, return_counts=True)
        stops = np.cumsum(counts)
        for shard, stop, count in zip(shards, stops, counts, strict=True):
            by_shard[int(shard)] = found.slice(stop - count, count)
    if everywhere:
        for each in sharded.shards:
            own = [by_shard[each.number]] if each.number in by_shard else []
            by_shard[each.number] = pa.concat_tables([*own, *everywhere])
    return by_shard


def _at_level(models: pa.Table, level: int) -> pa.Table:
    return models.append_column("level", pa.array(np.full(models.num_rows, level, np.int32)))


def models_fingerprint(sets: Sequence[ModelSet], without_model: str | None = None) -> str:
    """Return what two equal sequences of sets have in common, wherever their models are stored.

    `without_model` is what answers where none of them does.
    """
    pairs: list[Any] = [sorted(models.checksums()) for models in sets]
    pairs += [] if without_model is None else [without_model]
    # As it was when there was one set only: runs of then are known by it.
    return hashlib.sha256(repr(pairs[0] if len(pairs) == 1 else pairs).encode()).hexdigest()


class ShardModels:
    """The models that the partitions of one shard have."""

    def __init__(self, table: pa.Table, keys: pa.Table) -> None:
        """`table` is one of `models_by_shard`; `keys` are those of the shard, in their order."""
        table = table.sort_by("level")
        self._rows = table.to_pylist()
        self._checksums = model_checksums(table)
        by_hash: dict[int | None, list[int]] = {}
        for number, value in enumerate(table["hash"].to_pylist()):
            by_hash.setdefault(value, []).append(number)
        every = by_hash.get(None, [])
        hashes = hash_keys(keys).tolist()
        # Both lists are by level; a model of all partitions may stand between others.
        self._of = [
            sorted([*by_hash.get(value, ()), *every]) if every else by_hash.get(value, [])
            for value in hashes
        ]

    @classmethod
    def read(cls, path: str, keys: pa.Table) -> "ShardModels":
        """Read the file of a shard's table."""
        return cls(pa.ipc.open_stream(Path(path).read_bytes()).read_all(), keys)

    def checksum(self, place: int, *, of_all: bool) -> str | None:
        """Return the checksum of a partition's first model, or of all; None: it has none."""
        own = [self._checksums[number] for number in self._of[place]]
        if not own or not of_all:
            return own[0] if own else None
        levels = [self._rows[number]["level"] for number in self._of[place]]
        return hashlib.sha256(repr([*zip(levels, own, strict=True)]).encode()).hexdigest()

    def owner(self, place: int, run_id: str) -> tuple[str, int | None] | None:
        """Return the partition_id, and the generation, of a partition's model in its run.

        None: it has no model of that run.
        """
        for number in self._of[place]:
            row = self._rows[number]
            if row["run_id"] == run_id:
                return row["owner"], row["generation"]
        return None

    def locate(
        self,
        places: Sequence[int],
        store: Store,
        directory: str,
        fingerprints: Mapping[int, str] = MappingProxyType({}),
    ) -> dict[int, list[StoredModel]]:
        """Return the models of partitions, by level, as their bytes stand in local files.

        `fingerprints` are those of the rows as a training has them, where it is asked whether
        models have seen them.

        On a local store these are the bundles themselves. From a bucket they are read here,
        neighbours in one request, into one file.
        """
        needed = sorted({number for place in places for number in self._of[place]})
        wanted: dict[str, dict[_Place, StoredArtifact]] = {}
        for row in (self._rows[number] for number in needed):
            of_run = wanted.setdefault(row["run_id"], {})
            for found in (row[name] for name in MODEL_FILES):
                # Models that partitions share are of several rows.
                if (
                    found is not None
                    and (place := (found["bundle"], found["offset"])) not in of_run
                ):
                    of_run[place] = artifact_from_row(found)
        files = {
            run_id: _bring(artifacts, store, run_id, directory)
            for run_id, artifacts in wanted.items()
        }
        saw = {
            number
            for place, fingerprint in fingerprints.items()
            for number in self._of[place]
            if self._rows[number].get(TRAINED_ON) == fingerprint
        }
        models = {
            number: _model(self._rows[number], files, saw_rows=number in saw) for number in needed
        }
        return {
            place: [models[number] for number in self._of[place]]
            for place in places
            if self._of[place]
        }


def _model(
    row: Mapping[str, Any], files: Mapping[str, Mapping[_Place, StoredFile]], *, saw_rows: bool
) -> StoredModel:
    of_run = files[row["run_id"]]
    model, weights, categories, sketch = (
        None if (found := row[name]) is None else of_run[found["bundle"], found["offset"]]
        for name in MODEL_FILES
    )
    if model is None:
        raise RunFormatError("A row of models has no model: the table was damaged.")
    return StoredModel(
        level=row["level"],
        run_id=row["run_id"],
        owner=row["owner"],
        file=model,
        weights=weights,
        categories=categories,
        sketch=sketch,
        saw_rows=saw_rows,
        value_then=row.get(VALUE_THEN),
        rows_then=row.get(ROWS_THEN),
    )


def _bring(
    wanted: Mapping[_Place, StoredArtifact], store: Store, run_id: str, directory: str
) -> dict[_Place, StoredFile]:
    """Return artifacts of a run as parts of local files; from a bucket they are read first."""
    artifacts = [wanted[place] for place in sorted(wanted)]
    paths = {artifact.bundle: run_path(run_id, artifact.bundle) for artifact in artifacts}
    local = {bundle: store.local_path(path) for bundle, path in paths.items()}
    files = {}
    if all(path is not None for path in local.values()):
        for place, artifact in wanted.items():
            path, offset = local[artifact.bundle] or "", artifact.offset
            files[place] = StoredFile(path=path, offset=offset, artifact=artifact)
        return files
    target = os.path.join(directory, f"models-{run_id}")
    with open(target, "wb") as file:
        for start, stop in neighbours(artifacts, LARGEST_READ_BYTES):
            first, last = artifacts[start], artifacts[stop - 1]
            size = last.offset + last.stored_bytes - first.offset
            base = file.tell() - first.offset
            # Of a bundle that is gone or cut off only those partitions are to fail whose models it
            # had: what is found in their place differs from the checksum.
            with contextlib.suppress(FileNotFoundError):
                file.write(_read_what_is_there(store, paths[first.bundle], first.offset, size))
            for artifact in artifacts[start:stop]:
                place = (artifact.bundle, artifact.offset)
                at = base + artifact.offset
                files[place] = StoredFile(path=target, offset=at, artifact=artifact)
    return files


def _read_what_is_there(store: Store, path: str, offset: int, size: int) -> bytes:
    try:
        return store.read_range(path, offset, size)
    except IntegrityError:
        return store.read_range(path, offset, max(0, min(size, store.size(path) - offset)))
