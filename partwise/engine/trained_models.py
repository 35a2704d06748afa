"""Where the trained models of a shard stand, and bringing their bytes to the worker."""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.engine.works import StoredModel
from partwise.runs.bundle import (
    CATEGORIES_FILENAME,
    StoredArtifact,
    artifact_from_row,
    neighbours,
)
from partwise.runs.documents import run_path
from partwise.shuffle.shared_folder import LARGEST_READ_BYTES
from partwise.store.store import Store

EVERY = ""
"""The partition_id of a model that all partitions have in common; none has this name."""

EXTERNAL_DATA_SUFFIX = ".data"
"""What follows an ONNX file's name in that of the file with its external data: large weights."""


def models_by_shard(ledger: pa.Table) -> dict[int, pa.Table]:
    """Return where the models of a training run are, a table for each shard.

    Returns:
        Tables of the columns partition_id and those of an artifact; `external_data` names the
        artifact with the weights of an ONNX file that are kept outside it, or is empty;
        `categories` is the artifact with the categories of the rows trained on, or null.
    """
    lists = ledger["artifacts"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    parents = lists.value_parent_indices()
    flat = pa.Table.from_struct_array(lists.flatten())
    flat = flat.append_column("partition_id", ledger["partition_id"].take(parents))
    flat = flat.append_column("shard", ledger["shard"].take(parents))
    models = flat.filter(pc.not_equal(flat["serde"], ""))
    models = models.append_column("external_data", _external_data(models, flat))
    models = models.append_column("categories", _categories(models, flat))
    models = models.sort_by(
        [("shard", "ascending"), ("bundle", "ascending"), ("offset", "ascending")]
    )
    shards = models["shard"].to_numpy()
    found: dict[int, pa.Table] = {}
    start = 0
    for stop in range(1, len(shards) + 1):
        if stop == len(shards) or shards[stop] != shards[start]:
            found[int(shards[start])] = models.slice(start, stop - start).drop_columns(["shard"])
            start = stop
    return found


def model_of_every_partition(ledger: pa.Table) -> pa.Table | None:
    """Return where the one model of a run is, for every partition of another run.

    It is a table like those of `models_by_shard`, of one row, whose partition_id is `EVERY`, with
    the column `owner`: the partition_id that the model has in its run. None: it has no model.
    """
    found = list(models_by_shard(ledger).values())
    if not found:
        return None
    model = found[0].slice(0, 1)
    place = model.schema.get_field_index("partition_id")
    model = model.append_column("owner", model["partition_id"])
    return model.set_column(place, "partition_id", pa.array([EVERY]))


def _external_data(models: pa.Table, artifacts: pa.Table) -> pa.Array:
    """Return for each model the name of the artifact with its external data, or ""."""
    found = artifacts.filter(pc.ends_with(artifacts["filename"], EXTERNAL_DATA_SUFFIX))
    owners = set(zip(found["partition_id"].to_pylist(), found["filename"].to_pylist(), strict=True))
    names = pc.binary_join_element_wise(models["filename"], EXTERNAL_DATA_SUFFIX, "").to_pylist()
    pairs = zip(models["partition_id"].to_pylist(), names, strict=True) if owners else ()
    here = [name if (owner, name) in owners else "" for owner, name in pairs]
    return pa.array(here or [""] * models.num_rows, pa.string())


def _categories(models: pa.Table, artifacts: pa.Table) -> pa.Array:
    """Return for each model the artifact with the categories that it was trained with, or null."""
    found = artifacts.filter(pc.equal(artifacts["filename"], CATEGORIES_FILENAME))
    owners = found["partition_id"].to_pylist()
    rows = found.drop_columns(["partition_id", "shard"])
    by_owner = dict(zip(owners, rows.to_pylist(), strict=True))
    kind = pa.struct(list(rows.schema))
    return pa.array([by_owner.get(name) for name in models["partition_id"].to_pylist()], kind)


def models_fingerprint(models: Mapping[int, pa.Table]) -> str:
    """Return what two equal sets of trained models have in common, wherever they are stored."""
    pairs = [pair for table in models.values() for pair in _checksums(table)]
    return hashlib.sha256(repr(sorted(pairs)).encode()).hexdigest()


def locate_models(
    table_path: str, store: Store, training_run_id: str, partition_ids: list[str], directory: str
) -> dict[str, StoredModel]:
    """Return the local file and offset where the bytes of each partition's model stand.

    On a local store these are the bundles themselves. From a bucket they are read here, neighbours
    in one request, into one file.
    """
    rows = _rows_of(_read(table_path), partition_ids)
    names = [row.pop("partition_id") for row in rows]
    external = [row.pop("external_data") for row in rows]
    categories = [row.pop("categories") for row in rows]
    models = [artifact_from_row(row) for row in rows]
    lists = [None if row is None else artifact_from_row(row) for row in categories]
    artifacts = sorted(
        {*models, *(each for each in lists if each is not None)},
        key=lambda artifact: (artifact.bundle, artifact.offset),
    )
    places = _places(artifacts, store, training_run_id, directory)
    located: dict[str, StoredModel] = {}
    for name, model, data, own in zip(names, models, external, lists, strict=True):
        path, offset = places[model]
        own_path, own_offset = ("", 0) if own is None else places[own]
        located[name] = StoredModel(
            path=path,
            offset=offset,
            artifact=model,
            external_data=data,
            categories=own,
            categories_path=own_path,
            categories_offset=own_offset,
        )
    return located


def _places(
    artifacts: list[StoredArtifact], store: Store, training_run_id: str, directory: str
) -> dict[StoredArtifact, tuple[str, int]]:
    """Return the local file and offset of artifacts, sorted by bundle and offset."""
    bundles = {artifact.bundle for artifact in artifacts}
    paths = {bundle: run_path(training_run_id, bundle) for bundle in bundles}
    found: dict[StoredArtifact, tuple[str, int]] = {}
    local = {bundle: store.local_path(path) for bundle, path in paths.items()}
    if all(path is not None for path in local.values()):
        return {each: (local[each.bundle] or "", each.offset) for each in artifacts}
    target = os.path.join(directory, "models")
    with open(target, "wb") as file:
        for start, stop in neighbours(artifacts, LARGEST_READ_BYTES):
            first, last = artifacts[start], artifacts[stop - 1]
            size = last.offset + last.stored_bytes - first.offset
            base = file.tell() - first.offset
            # Of a bundle that is gone only those partitions are to fail whose models it had: what
            # is found in their place differs from the checksum.
            with contextlib.suppress(FileNotFoundError):
                file.write(store.read_range(paths[first.bundle], first.offset, size))
            for artifact in artifacts[start:stop]:
                found[artifact] = (target, base + artifact.offset)
    return found


def model_checksums(table_path: str, partition_ids: list[str]) -> dict[str, str]:
    """Return a checksum of each partition's trained model and its categories, by partition_id."""
    found = dict(_checksums(_read(table_path)))
    return dict.fromkeys(partition_ids, found[EVERY]) if EVERY in found else found


def owner_of_model(table_path: str) -> str | None:
    """Return the partition_id that the model of every partition has in its own run.

    None: each partition has its own model, under its own partition_id.
    """
    table = _read(table_path)
    return str(table["owner"][0]) if "owner" in table.column_names else None


def _rows_of(table: pa.Table, partition_ids: list[str]) -> list[dict[str, Any]]:
    """Return the rows of some partitions; that of every partition once for each of them."""
    rows = table.to_pylist()
    if rows and rows[0]["partition_id"] == EVERY:
        del rows[0]["owner"]
        return [{**rows[0], "partition_id": name} for name in partition_ids]
    wanted = set(partition_ids)
    return [row for row in rows if row["partition_id"] in wanted]


def _checksums(table: pa.Table) -> list[tuple[str, str]]:
    """Return partition IDs, each with the sha256 of its model, and that of its categories."""
    names, models = table["partition_id"].to_pylist(), table["sha256"].to_pylist()
    categories = table["categories"].to_pylist()
    return [
        (name, model if own is None else f"{model}:{own['sha256']}")
        for name, model, own in zip(names, models, categories, strict=True)
    ]


def _read(table_path: str) -> pa.Table:
    with pa.ipc.open_stream(Path(table_path).read_bytes()) as reader:
        return reader.read_all()
