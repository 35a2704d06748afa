"""What differs between two versions of a dataset: columns, statistics, and partitions."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from partwise.datasets.dataset import Dataset
from partwise.datasets.manifest import ColumnDocument
from partwise.datasets.statistics import SKETCH_SIZE
from partwise.shuffle.plan import UnsortedShard, shard_rows
from partwise.shuffle.shard_count import default_n_shards
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.tables.dictionaries import plain_storage
from partwise.tables.keys.partition_keys import (
    Key,
    KeyColumn,
    check_key_classes,
    key_columns,
    key_values,
)

STATISTICS = ("nulls", "nans", "min", "max", "mean", "distinct")
_SAME_MEAN = 1e-9
_SAME_DISTINCT = 0.05
"""More than three standard errors of what is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """A column that is not what it was."""

    name: str
    before: ColumnDocument | None
    """None: it was added."""
    after: ColumnDocument | None
    """None: it was removed."""
    moved: tuple[str, ...]
    """What differs, of "type", "mark", "order" (that of ordered categories) and the statistics."""


@dataclass(slots=True)
class PartitionChanges:
    """How many partitions differ, and the keys of some."""

    key_columns: tuple[KeyColumn, ...]
    same: int = 0
    counts: dict[str, int] = field(default_factory=lambda: {"added": 0, "removed": 0, "changed": 0})
    examples: dict[str, list[Key]] = field(
        default_factory=lambda: {"added": [], "removed": [], "changed": []}
    )

    def count(self, change: str, key: Key, most: int) -> None:
        """Count a partition."""
        self.counts[change] += 1
        if len(self.examples[change]) < most:
            self.examples[change].append(key)


def compare_columns(before: Dataset, after: Dataset) -> list[ColumnChange]:
    """Return the columns that differ in type, mark or statistics, by the manifests alone.

    Counts of distinct values beyond 4,096 are estimates, and differ when they do by 5 %.
    """
    old, new = before.statistics, after.statistics
    changes = []
    for name in dict.fromkeys([*new, *old]):
        first, second = old.get(name), new.get(name)
        if first is None or second is None:
            changes.append(ColumnChange(name=name, before=first, after=second, moved=()))
            continue
        moved = [what for what in ("type", *STATISTICS) if _differs(what, first, second)]
        if before.manifest.mark_of(name) != after.manifest.mark_of(name):
            moved.insert(0, "mark")
        orders = {each.manifest.orders.get(name) for each in (before, after)}
        if len(orders - {None}) > 1:
            moved.append("order")
        if moved:
            changes.append(ColumnChange(name=name, before=first, after=second, moved=tuple(moved)))
    return changes


def _differs(what: str, first: ColumnDocument, second: ColumnDocument) -> bool:
    old, new = getattr(first, what), getattr(second, what)
    if old is None or new is None or what not in ("mean", "distinct"):
        return bool(old != new)
    if what == "mean":
        return bool(abs(old - new) > _SAME_MEAN * max(abs(old), abs(new)))
    if max(old, new) < SKETCH_SIZE:
        return bool(old != new)
    return bool(abs(old - new) > _SAME_DISTINCT * max(old, new))


def compare_partitions(
    before: Dataset, after: Dataset, partition_by: Sequence[str], *, examples: int = 5
) -> PartitionChanges:
    """Count the partitions that were added, removed or changed.

    Compared are the columns that both versions have with one type, but for those of the key, whose
    values are equal as keys are, in the order of the rows. Both are sharded by key, into the folder
    for temporary files, and compared shard by shard: memory is that of one shard's keys. At most
    `examples` keys are kept of each kind of change.
    """
    names = _common_columns(before.manifest.schema, after.manifest.schema, partition_by)
    sources = [_without_marks(dataset).source(columns=names) for dataset in (before, after)]
    keys = key_columns(sources[1].schema, partition_by)
    check_key_classes(key_columns(sources[0].schema, partition_by), keys, before.reference)
    changes = PartitionChanges(key_columns=keys)
    abouts = [source.description() for source in sources]
    rows = max(about.rows or 0 for about in abouts)
    n_shards = default_n_shards(rows, max(about.size_bytes for about in abouts), 1)
    with tempfile.TemporaryDirectory(prefix="partwise-diff-") as folder:
        sharded = [
            shard_rows(source, keys, n_shards, Path(folder) / name, null_keys="keep")
            for source, name in zip(sources, ("before", "after"), strict=True)
        ]
        shards = [{shard.number: shard for shard in each.shards} for each in sharded]
        for number in sorted({*shards[0], *shards[1]}):
            old, new = (_fingerprints(side.get(number), keys, Path(folder)) for side in shards)
            _count(changes, old, new, examples)
    return changes


def _common_columns(first: pa.Schema, second: pa.Schema, keys: Sequence[str]) -> list[str]:
    """The keys, and the columns that both have with one type."""
    types = {column.name: plain_storage(column.type) for column in first}
    common = [c.name for c in second if types.get(c.name) == plain_storage(c.type)]
    return list(dict.fromkeys([*keys, *common]))


def _without_marks(dataset: Dataset) -> Dataset:
    """The rows as they are: a partition is not another one because its label is marked."""
    return Dataset(dataset.store, dataset.manifest.model_copy(update={"label": ()}))


def _fingerprints(
    shard: UnsortedShard | None, keys: tuple[KeyColumn, ...], folder: Path
) -> dict[str, tuple[str, Key]]:
    """The fingerprint and key of each partition of a shard, by partition_id."""
    if shard is None:
        return {}
    ordered = sort_shard(shard, keys, folder / "sorted")
    reader = ShardReader(ordered.path, left_out=[column.name for column in keys])
    found = {
        # With the number of rows, as there may be no column besides the key.
        name: (f"{stop - start} {reader.fingerprint(int(start), int(stop))}", key)
        for name, key, start, stop in zip(
            ordered.partition_ids,
            key_values(ordered.keys),
            ordered.offsets[:-1],
            ordered.offsets[1:],
            strict=True,
        )
    }
    os.unlink(ordered.path)
    return found


def _count(
    changes: PartitionChanges,
    old: dict[str, tuple[str, Key]],
    new: dict[str, tuple[str, Key]],
    examples: int,
) -> None:
    for name, (fingerprint, key) in new.items():
        if name not in old:
            changes.count("added", key, examples)
        elif old[name][0] != fingerprint:
            changes.count("changed", key, examples)
        else:
            changes.same += 1
    for name, (_, key) in old.items():
        if name not in new:
            changes.count("removed", key, examples)
