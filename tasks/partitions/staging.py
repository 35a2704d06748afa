"""Files that the driver makes for workers: on a disk that they share, or by way of the store."""

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tasks.data.shards.spilled_parts import MESSAGE_ALIGNMENT
from partwise.tasks.data.shards.spills import SpilledShard
from partwise.tasks.errors import StoreError
from partwise.tasks.partitions.assignment import Medium, StagedFile
from partwise.tasks.runs.bundle import artifact_from_row
from partwise.tasks.runs.manifest import SCRATCH, run_path
from partwise.tasks.runs.store import Store

GAP_BYTES = 1 << 20
"""Models of one bundle that lie closer than this are read in one request."""

LARGEST_READ_BYTES = 64 << 20

BESIDE = ".data"
"""What follows a model's file name in that of the file with weights beside it."""


class Stage:
    """The driver's folder for what it hands to workers; gone when the execution ends.

    Args:
        directory: A folder on this machine.
        store: The artifact store; used where workers do not see the folder.
        run_id: The run.
        token: The execution's.
        shared: Whether the workers see this machine's disk.
    """

    def __init__(
        self, directory: Path, store: Store, run_id: str, token: str, *, shared: bool
    ) -> None:
        self.directory = directory
        self.store = store
        self.folder = run_path(run_id, SCRATCH, token)
        self.where: Medium = "disk" if shared else "store"

    def hand_over(self, path: str) -> StagedFile:
        """Make a file of the folder reachable for workers."""
        if self.where == "disk":
            return StagedFile(path=path, where="disk")
        name = f"{self.folder}/{os.path.basename(path)}"
        self.store.create(name, Path(path).read_bytes())
        return StagedFile(path=name, where="store")

    def write(self, name: str, content: bytes) -> StagedFile:
        """Make a file of this content reachable for workers."""
        path = self.directory / name
        path.write_bytes(content)
        return self.hand_over(str(path))

    def close(self) -> None:
        """Remove the folder, and what went by way of the store."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.where == "store":
            # The run has come to its end; what stays here is left to `partwise runs gc`.
            with contextlib.suppress(StoreError):
                self.store.delete_folder(self.folder)


def fetch(staged: StagedFile, store: Store, directory: str) -> str:
    """Return the local path of a staged file, read from the store at most once per folder."""
    if staged.where == "disk":
        return staged.path
    path = os.path.join(directory, os.path.basename(staged.path))
    if not os.path.exists(path):
        temporary = f"{path}.{secrets.token_hex(4)}"
        Path(temporary).write_bytes(store.read(staged.path))
        os.replace(temporary, path)
    return path


def fetch_shard(
    spill: SpilledShard, where: Medium, store: Store, shared: str, directory: str
) -> SpilledShard:
    """Return a shard with its files on this machine: of those in the store, just its own rows.

    Args:
        spill: The shard.
        where: Where its files lie.
        store: The artifact store.
        shared: A folder on this machine's disk for what all shards have in common.
        directory: One for this shard's own rows.
    """
    if where == "disk":
        return spill
    dictionaries = fetch(StagedFile(path=spill.dictionaries, where=where), store, shared)
    path = os.path.join(directory, f"{spill.number:05d}.rows")
    fetched = []
    with open(path, "wb") as file:
        for rows in spill.spilled:
            # The rows of a shard lie side by side in an object.
            first, end = rows.spans[:, 0].min(), (rows.spans[:, 0] + rows.spans[:, 1]).max()
            shift = file.tell() - int(first)
            for start in range(int(first), int(end), LARGEST_READ_BYTES):
                size = min(LARGEST_READ_BYTES, int(end) - start)
                file.write(store.read_range(rows.path, start, size))
            file.write(b"\0" * (-file.tell() % MESSAGE_ALIGNMENT))
            spans = rows.spans + np.array([shift, 0])
            fetched.append(replace(rows, path=path, spans=spans))
    return replace(spill, spilled=tuple(fetched), dictionaries=dictionaries)


def models_by_shard(ledger: pa.Table) -> dict[int, pa.Table]:
    """Return where the models of a training run are, a table for each shard.

    Args:
        ledger: The training run's.

    Returns:
        Tables of the columns partition_id and those of an artifact; `beside` names the artifact
        with weights that the model's own file has no room for, or is empty.
    """
    lists = ledger["artifacts"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    parents = lists.value_parent_indices()
    flat = pa.Table.from_struct_array(lists.flatten())
    flat = flat.append_column("partition_id", ledger["partition_id"].take(parents))
    flat = flat.append_column("shard", ledger["shard"].take(parents))
    models = flat.filter(pc.not_equal(flat["serde"], ""))
    models = models.append_column("beside", _names_beside(models, flat))
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


def _names_beside(models: pa.Table, artifacts: pa.Table) -> pa.Array:
    """Return for each model the name of the artifact with weights beside it, or ""."""
    found = artifacts.filter(pc.ends_with(artifacts["filename"], BESIDE))
    owners = set(zip(found["partition_id"].to_pylist(), found["filename"].to_pylist(), strict=True))
    names = pc.binary_join_element_wise(models["filename"], BESIDE, "").to_pylist()
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


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def locate_models(
    table_path: str, store: Store, training_run_id: str, partition_ids: list[str], directory: str
) -> list[tuple[str, str, int, dict[str, Any], str]]:
    """Give each partition the local file and offset where its model's bytes stand.

    On a local store these are the bundles themselves. From a bucket they are read here, neighbours
    in one request, into one file.

    Returns:
        (partition_id, path, offset, artifact, beside) of those that have a model.
    """
    wanted = set(partition_ids)
    rows = [row for row in _read(table_path).to_pylist() if row["partition_id"] in wanted]
    names = [row.pop("partition_id") for row in rows]
    besides = [row.pop("beside") for row in rows]
    artifacts = [asdict(artifact_from_row(row)) for row in rows]
    located: list[tuple[str, str, int, dict[str, Any], str]] = []
    paths = {row["bundle"]: run_path(training_run_id, row["bundle"]) for row in rows}
    if all(store.local_path(path) is not None for path in paths.values()):
        for name, artifact, beside in zip(names, artifacts, besides, strict=True):
            bundle = store.local_path(paths[artifact["bundle"]]) or ""
            located.append((name, bundle, artifact["offset"], artifact, beside))
        return located
    target = os.path.join(directory, "models")
    with open(target, "wb") as file:
        for start, stop in _neighbours(artifacts):
            first, last = artifacts[start], artifacts[stop - 1]
            size = last["offset"] + last["stored_bytes"] - first["offset"]
            base = file.tell() - first["offset"]
            with contextlib.suppress(FileNotFoundError):
                file.write(store.read_range(paths[first["bundle"]], first["offset"], size))
            located += [
                (names[i], target, base + artifacts[i]["offset"], artifacts[i], besides[i])
                for i in range(start, stop)
            ]
    return located


def model_checksums(table_path: str) -> dict[str, str]:
    """Return the sha256 of each partition's trained model, by partition_id."""
    table = _read(table_path)
    names, checksums = table["partition_id"].to_pylist(), table["sha256"].to_pylist()
    return dict(zip(names, checksums, strict=True))


def _read(table_path: str) -> pa.Table:
    with pa.ipc.open_stream(Path(table_path).read_bytes()) as reader:
        return reader.read_all()


def _neighbours(artifacts: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Divide artifacts, sorted by bundle and offset, into spans that are read at once."""
    spans: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(artifacts) + 1):
        if i < len(artifacts):
            first, before, here = artifacts[start], artifacts[i - 1], artifacts[i]
            end = before["offset"] + before["stored_bytes"]
            if (
                here["bundle"] == first["bundle"]
                and here["offset"] - end <= GAP_BYTES
                and here["offset"] + here["stored_bytes"] - first["offset"] <= LARGEST_READ_BYTES
            ):
                continue
        spans.append((start, i))
        start = i
    return spans if artifacts else []
