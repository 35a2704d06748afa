"""Where the trained models of a shard stand, and bringing their bytes to the worker."""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from partwise.engine.works import StoredModel
from partwise.runs.bundle import StoredArtifact, artifact_from_row
from partwise.runs.documents import run_path
from partwise.shuffle.shared_folder import LARGEST_READ_BYTES
from partwise.store.store import Store

GAP_BYTES = 1 << 20
"""Models of one bundle that lie closer than this are read in one request."""

EXTERNAL_DATA_SUFFIX = ".data"
"""What follows an ONNX file's name in that of the file with its external data: large weights."""


def models_by_shard(ledger: pa.Table) -> dict[int, pa.Table]:
    """Return where the models of a training run are, a table for each shard.

    Args:
        ledger: The training run's.

    Returns:
        Tables of the columns partition_id and those of an artifact; `external_data` names the
        artifact with the weights of an ONNX file that are kept outside it, or is empty.
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


def _external_data(models: pa.Table, artifacts: pa.Table) -> pa.Array:
    """Return for each model the name of the artifact with its external data, or ""."""
    found = artifacts.filter(pc.ends_with(artifacts["filename"], EXTERNAL_DATA_SUFFIX))
    owners = set(zip(found["partition_id"].to_pylist(), found["filename"].to_pylist(), strict=True))
    names = pc.binary_join_element_wise(models["filename"], EXTERNAL_DATA_SUFFIX, "").to_pylist()
    pairs = zip(models["partition_id"].to_pylist(), names, strict=True) if owners else ()
    here = [name if (owner, name) in owners else "" for owner, name in pairs]
    return pa.array(here or [""] * models.num_rows, pa.string())


def models_fingerprint(models: Mapping[int, pa.Table]) -> str:
    """Return what two equal sets of trained models have in common, wherever they are stored."""
    pairs = [
        pair
        for table in models.values()
        for pair in zip(table["partition_id"].to_pylist(), table["sha256"].to_pylist(), strict=True)
    ]
    return hashlib.sha256(repr(sorted(pairs)).encode()).hexdigest()


def locate_models(
    table_path: str, store: Store, training_run_id: str, partition_ids: list[str], directory: str
) -> dict[str, StoredModel]:
    """Return the local file and offset where the bytes of each partition's model stand.

    On a local store these are the bundles themselves. From a bucket they are read here, neighbours
    in one request, into one file.

    Returns:
        By partition_id, the models of those that have one.
    """
    wanted = set(partition_ids)
    rows = [row for row in _read(table_path).to_pylist() if row["partition_id"] in wanted]
    names = [row.pop("partition_id") for row in rows]
    external = [row.pop("external_data") for row in rows]
    artifacts = [artifact_from_row(row) for row in rows]
    located: dict[str, StoredModel] = {}

    def locate(i: int, path: str, offset: int) -> None:
        located[names[i]] = StoredModel(
            path=path, offset=offset, artifact=artifacts[i], external_data=external[i]
        )

    paths = {row["bundle"]: run_path(training_run_id, row["bundle"]) for row in rows}
    local = {bundle: store.local_path(path) for bundle, path in paths.items()}
    if all(path is not None for path in local.values()):
        for i, artifact in enumerate(artifacts):
            locate(i, local[artifact.bundle] or "", artifact.offset)
        return located
    target = os.path.join(directory, "models")
    with open(target, "wb") as file:
        for start, stop in _neighbours(artifacts):
            first, last = artifacts[start], artifacts[stop - 1]
            size = last.offset + last.stored_bytes - first.offset
            base = file.tell() - first.offset
            with contextlib.suppress(FileNotFoundError):
                file.write(store.read_range(paths[first.bundle], first.offset, size))
            for i in range(start, stop):
                locate(i, target, base + artifacts[i].offset)
    return located


def model_checksums(table_path: str) -> dict[str, str]:
    """Return the sha256 of each partition's trained model, by partition_id."""
    table = _read(table_path)
    names, checksums = table["partition_id"].to_pylist(), table["sha256"].to_pylist()
    return dict(zip(names, checksums, strict=True))


def _read(table_path: str) -> pa.Table:
    with pa.ipc.open_stream(Path(table_path).read_bytes()) as reader:
        return reader.read_all()


def _neighbours(artifacts: list[StoredArtifact]) -> list[tuple[int, int]]:
    """Divide artifacts, sorted by bundle and offset, into spans that are read at once."""
    spans: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(artifacts) + 1):
        if i < len(artifacts):
            first, before, here = artifacts[start], artifacts[i - 1], artifacts[i]
            end = before.offset + before.stored_bytes
            if (
                here.bundle == first.bundle
                and here.offset - end <= GAP_BYTES
                and here.offset + here.stored_bytes - first.offset <= LARGEST_READ_BYTES
            ):
                continue
        spans.append((start, i))
        start = i
    return spans if artifacts else []
