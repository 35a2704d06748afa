"""The table of a version: one row a key, with its champion, and where the champion's files stand.

Tables of 100,000 rows are worked with as whole columns: as Python objects they take seconds.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError, RunFormatError
from partwise.runs.documents import is_run_id
from partwise.runs.exports import has_one_model, ledger_of_models
from partwise.runs.ledger import ARTIFACT, KEY_PREFIX, key_names
from partwise.runs.run import Run
from partwise.runs.stored_models import MODEL_FILES, models_of
from partwise.runs.stored_names import check_names
from partwise.tables.keys.key_classes import key_class_of
from partwise.tables.keys.one_table import one_table
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes

OF_ALL = "all"
"""The partition_id of the only row of a catalog without key columns."""
ROWS_PER_GROUP = 4096
"""Of the Parquet file: one key is found by reading one group."""

FILES = pa.struct([pa.field(name, ARTIFACT) for name in MODEL_FILES])
"""A model, the external data of an ONNX file, categories and sketch of the rows trained on."""
_ARTIFACT = tuple(field.name for field in ARTIFACT)
EXPORT = pa.struct([("run_id", pa.string()), ("generation", pa.int32()), *FILES])
"""The same of an export, with the run that it stands in."""
COLUMNS = pa.schema(
    [
        pa.field("partition_id", pa.string()),
        # The run, its generation, and the partition_id there; null: the key is retired.
        pa.field("run_id", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("owner", pa.string()),
        pa.field("native", FILES),
        pa.field("onnx", EXPORT),
        # What it was measured with when it was promoted.
        pa.field("rows", pa.int64()),
        pa.field("metrics", pa.map_(pa.string(), pa.float64())),
        pa.field("promoted_at", pa.timestamp("us", tz="UTC")),
        pa.field("since_version", pa.int32()),
        pa.field("comparison", pa.string()),
        pa.field("margin", pa.float64()),
        pa.field("reason", pa.string()),
        pa.field("pinned", pa.bool_()),
        pa.field("retired", pa.bool_()),
        # The first of the versions since which data lacked the key.
        pa.field("unseen_since", pa.int32()),
    ]
)


def champions_of(run: Run, exports: Run | None = None) -> pa.Table:
    """Return the rows of a catalog for all models of a training run.

    Their `promoted_at` and `since_version` are null: the version that they become part of fills
    them in. `exports` is a run of exports of these models: what it has is noted as well, but for
    exports that are older than the model by now.

    Raises:
        InputError: It is one of exports of another run's.
    """
    models = models_of(ledger_of_models(run))
    is_one = has_one_model(run)
    if is_one:
        models = models.slice(0, 1)
    n = models.num_rows
    values = {
        "partition_id": pa.repeat(OF_ALL, n) if is_one else models["partition_id"],
        "run_id": pa.repeat(run.run_id, n),
        "generation": models["generation"],
        "owner": models["partition_id"],
        "native": _struct([models[name] for name in MODEL_FILES], FILES),
        "onnx": pa.nulls(n, EXPORT) if exports is None else _exported(models, run, exports),
        "rows": models["rows"],
        "metrics": models["metrics"],
        **dict.fromkeys(("comparison", "reason"), pa.repeat("", n)),
        **dict.fromkeys(("pinned", "retired"), pa.repeat(False, n)),
    }
    keys = [] if is_one else key_names(models.column_names)
    columns = [values.get(field.name, pa.nulls(n, field.type)) for field in COLUMNS]
    names = [*keys, *COLUMNS.names]
    return in_order(pa.table([*(models[name] for name in keys), *columns], names=names))


def _exported(models: pa.Table, run: Run, exports: Run) -> pa.Array:
    if exports.document.training_run_id != run.run_id:
        raise InputError(
            f"The run {exports.run_id!r} has no exports of the models of {run.run_id!r}."
        )
    found = models_of(exports.ledger)
    places = pc.index_in(models["partition_id"], found["partition_id"].combine_chunks())
    found = found.take(places)
    # What was exported before was another model of the key.
    newer = pc.greater_equal(found["finished_at"], models["finished_at"])
    run_ids = pc.if_else(newer, exports.run_id, pa.scalar(None, pa.string()))
    return _struct([run_ids, found["generation"], *(found[name] for name in MODEL_FILES)], EXPORT)


def _struct(columns: Sequence[pa.ChunkedArray], kind: pa.StructType) -> pa.Array:
    """Return columns as one; where the first is null, all is."""
    arrays = [pa.concat_arrays(pa.chunked_array(column).chunks) for column in columns]
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(arrays[0]))


def in_order(table: pa.Table) -> pa.Table:
    """Return rows as a version has them."""
    return table.sort_by("partition_id").combine_chunks()


def key_columns_of(table: pa.Table) -> tuple[KeyColumn, ...]:
    """Return the key columns of rows of a version, with their classes."""
    return tuple(
        KeyColumn(
            name=name.removeprefix(KEY_PREFIX), key_class=key_class_of(name, table[name].type)
        )
        for name in key_names(table.column_names)
    )


def replaced(base: pa.Table | None, rows: pa.Table) -> pa.Table:
    """Return the rows of a version with others in the place of those of their keys, or beside them.

    Where a row names the very champion that is there, that row stays untouched. Pins are not looked
    at: whoever chooses the rows leaves those of pinned keys out.

    Raises:
        KeyClassError: The keys are of other columns or classes.
    """
    if base is None:
        return in_order(rows)
    check_key_classes(key_columns_of(base), key_columns_of(rows), "the catalog")
    places = pc.index_in(rows["partition_id"], base["partition_id"].combine_chunks())
    same = pc.equal(identities(rows), identities(base).take(places))
    rows = rows.filter(pc.invert(pc.fill_null(same, fill_value=False)))
    kept = base.filter(pc.invert(_is_among(base, rows["partition_id"])))
    return in_order(one_table([kept, rows]))


def identities(table: pa.Table) -> pa.ChunkedArray:
    """Return for each row a text that is another one where the key has another champion."""
    parts = [table["run_id"], table["generation"], table["retired"], table["unseen_since"]]
    for files in (table["native"], table["onnx"]):
        parts += _checksums(files)
    return _texts([*parts, pc.struct_field(table["onnx"], "run_id")])


def export_identities(table: pa.Table) -> pa.ChunkedArray:
    """Return for each row a text that is another one where its model has another export."""
    return _texts([*_checksums(table["onnx"]), pc.struct_field(table["onnx"], "run_id")])


def _checksums(files: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    return [pc.struct_field(pc.struct_field(files, name), "sha256") for name in MODEL_FILES]


def _texts(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    texts = [part.cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, " ", null_handling="replace", null_replacement="-")


def is_same(table: pa.Table, base: pa.Table) -> bool:
    """Whether two versions have the same champions for the same keys, and the same pins."""
    return table.num_rows == base.num_rows and all(
        ours.equals(theirs)
        for ours, theirs in (
            (table["partition_id"], base["partition_id"]),
            (table["pinned"], base["pinned"]),
            (identities(table), identities(base)),
        )
    )


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows of a version with other values in one of `COLUMNS`."""
    return table.set_column(table.column_names.index(name), COLUMNS.field(name), values)


def pinned(table: pa.Table, partition_ids: Sequence[str], *, is_pinned: bool) -> pa.Table:
    """Return the rows of a version with pins set or taken away."""
    values = pc.if_else(_is_among(table, partition_ids), is_pinned, table["pinned"])
    return with_column(table, "pinned", values)


def retired(table: pa.Table, partition_ids: Sequence[str] | pa.Array) -> pa.Table:
    """Return the rows of a version with rows without a champion for some keys."""
    chosen = _is_among(table, partition_ids)
    gone = table.filter(pc.and_(chosen, pc.invert(table["retired"])))
    keys = key_names(table.column_names)
    kept = {name: gone[name] for name in (*keys, "partition_id", "unseen_since")}
    kept |= dict.fromkeys(("comparison", "reason"), pa.repeat("", gone.num_rows))
    kept |= {"pinned": pa.repeat(False, gone.num_rows), "retired": pa.repeat(True, gone.num_rows)}
    columns = [kept.get(field.name, pa.nulls(gone.num_rows, field.type)) for field in table.schema]
    rows = pa.table(columns, schema=table.schema)
    return in_order(
        pa.concat_tables([table.filter(pc.invert(_is_among(table, rows["partition_id"]))), rows])
    )


def rolled_back(base: pa.Table, old: pa.Table) -> pa.Table:
    """Return the rows of an earlier version, with those of keys that are pinned as they are."""
    stay = base.filter(base["pinned"])
    rows = old.filter(pc.invert(_is_among(old, stay["partition_id"])))
    rows = pinned(rows, rows["partition_id"], is_pinned=False)
    for name in ("since_version", "promoted_at"):
        rows = with_column(rows, name, pa.nulls(rows.num_rows, COLUMNS.field(name).type))
    both = replaced(base, rows)
    kept = pc.or_(_is_among(both, rows["partition_id"]), _is_among(both, stay["partition_id"]))
    return both.filter(kept)


def differences(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return a row for each key of which two versions differ, as `Catalog.diff` has them."""
    both = one_table(
        [each.select([*key_names(each.column_names), "partition_id"]) for each in (before, after)]
    )
    ids = both["partition_id"].unique()
    first = pc.index_in(ids, both["partition_id"].combine_chunks())
    sides = [
        each.take(pc.index_in(ids, each["partition_id"].combine_chunks()))
        for each in (before, after)
    ]
    (was, now), (is_old, is_new) = sides, [pc.is_valid(side["partition_id"]) for side in sides]
    differ = pc.not_equal(*(identities(side) for side in sides))
    change = pc.case_when(
        pc.make_struct(
            pc.invert(is_old),
            pc.invert(is_new),
            pc.and_(now["retired"], pc.invert(was["retired"])),
            differ,
            pc.and_(now["pinned"], pc.invert(was["pinned"])),
            pc.and_(was["pinned"], pc.invert(now["pinned"])),
        ),
        *("added", "removed", "retired", "changed", "pinned", "unpinned"),
    )
    table = both.take(first)
    for name, column in (
        ("change", change),
        ("run_id_before", was["run_id"]),
        ("generation_before", was["generation"]),
        *((name, now[name]) for name in ("run_id", "generation", "margin", "reason")),
    ):
        table = table.append_column(name, column)
    return in_order(table.filter(pc.is_valid(change)))


def _is_among(
    table: pa.Table, partition_ids: Sequence[str] | pa.Array | pa.ChunkedArray
) -> pa.ChunkedArray:
    if not isinstance(partition_ids, pa.Array | pa.ChunkedArray):
        partition_ids = pa.array(partition_ids, pa.string())
    return pc.is_in(table["partition_id"], partition_ids)


def completed(table: pa.Table, version: int, at: datetime) -> pa.Table:
    """Return rows with what only their version knows, where it is not there yet.

    Raises:
        InputError: They are not the rows of a version: columns or types differ, or a key stands
            there twice.
    """
    keys = key_names(table.column_names)
    if table.column_names != [*keys, *COLUMNS.names]:
        raise InputError(f"Rows of a catalog have the columns {', '.join(COLUMNS.names)}.")
    ids = table["partition_id"]
    if ids.null_count or len(ids.unique()) != len(ids):
        raise InputError("Rows of a catalog have one row for each key.")
    for name, value in (("since_version", version), ("promoted_at", at)):
        filled = pc.fill_null(table[name], pa.scalar(value, COLUMNS.field(name).type))
        table = with_column(table, name, filled)
    return in_order(table)


def artifacts_of(tables: Sequence[pa.Table], fields: Sequence[str] = _ARTIFACT) -> pa.Table:
    """Return what the rows of versions refer to, each once: run_id, owner, fields of `ARTIFACT`."""
    parts = []
    for table in tables:
        for run_ids, files in _files_of(table):
            for name in MODEL_FILES:
                file = pc.struct_field(files, name)
                columns = [pc.struct_field(file, field) for field in fields]
                names = ["run_id", "owner", *fields]
                part = pa.table([run_ids, table["owner"], *columns], names=names)
                parts.append(part.filter(pc.is_valid(part["bundle"])))
    if not parts:
        return pa.table({})
    found = pa.concat_tables(parts)
    return found.group_by(found.column_names).aggregate([])


def bundles_by_run(table: pa.Table) -> dict[str, set[str]]:
    """Return the bundles that the rows of a version refer to, by run."""
    found: dict[str, set[str]] = defaultdict(set)
    pairs = artifacts_of([table], ["bundle"]).select(["run_id", "bundle"])
    for pair in pairs.group_by(pairs.column_names).aggregate([]).to_pylist():
        found[pair["run_id"]].add(pair["bundle"])
    return dict(found)


def _files_of(table: pa.Table) -> list[tuple[pa.ChunkedArray, pa.ChunkedArray]]:
    """Return the run IDs and the files of all rows: in the native formats, and as exports."""
    onnx = table["onnx"]
    return [(table["run_id"], table["native"]), (pc.struct_field(onnx, "run_id"), onnx)]


def as_today(table: pa.Table) -> pa.Table:
    """Return the table of a version, whichever release wrote it: what it lacks is null."""
    for name, kind in (("native", FILES), ("onnx", EXPORT)):
        place = table.schema.get_field_index(name)
        if place < 0 or not pa.types.is_struct(table.schema.field(place).type):
            continue
        column = pa.concat_arrays(table.column(place).chunks or [pa.nulls(0, kind)])
        if column.type.get_field_index("sketch") >= 0:
            continue
        # Before models had sketches.
        fields = [column.field(number) for number in range(column.type.num_fields)]
        if [field.name for field in column.type] == [field.name for field in kind][:-1]:
            fields.append(pa.nulls(len(column), ARTIFACT))
            struct = pa.StructArray.from_arrays(fields, fields=list(kind), mask=pc.is_null(column))
            table = table.set_column(place, name, struct)
    return table


def check_rows(table: pa.Table, columns: Sequence[KeyColumn], where: str) -> None:
    """Refuse what is not the table of a version of these keys.

    Whoever may write to a store may write anything into it; whoever reads it need not look at a
    name again.

    Raises:
        RunFormatError: It is none.
    """
    names = [f"{KEY_PREFIX}{column.name}" for column in columns]
    if table.column_names != [*names, *COLUMNS.names]:
        raise RunFormatError(f"{where} is not a table of a catalog: its columns are others.")
    if key_columns_of(table) != tuple(columns):
        raise RunFormatError(f"{where} has keys of other classes than its version.")
    for field in COLUMNS:
        if table.schema.field(field.name).type != field.type:
            raise RunFormatError(f"{where} is not a table of a catalog: {field.name!r} is another.")
    for run_ids, files in _files_of(table):
        strange = [name for name in run_ids.drop_null().unique().to_pylist() if not is_run_id(name)]
        if strange:
            raise RunFormatError(f"{where} names {strange[0][:80]!r} as a run, which none can be.")
        artifacts = [pc.struct_field(files, name).drop_null() for name in MODEL_FILES]
        ids = table["partition_id"].chunks + table["owner"].drop_null().chunks
        check_names(where, pa.chunked_array(ids, pa.string()), artifacts)
