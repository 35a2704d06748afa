"""What calls have in common: the fields of several flows, and what a field is to a run.

A call is a frozen dataclass, and its fields are the parameters of its flow: their names and order,
types, defaults and descriptions are written here and nowhere else. A flow's signature,
documentation and form are made of it (`partwise.flows.orchestration.run_flow`).

The types of fields are texts until somebody asks for them: some are of rooms that import pyarrow,
and the help of a command, which shows the fields, does without.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_type_hints

from partwise.choices import NullKeys, OnExisting
from partwise.engine.options import ExecutionOptions
from partwise.runs.kinds import KINDS, RunKind

if TYPE_CHECKING:
    from partwise.calls.parameters import (
        ClusterParameter,
        ColumnsParameter,
        DataParameter,
        FilterParameter,
        HoldoutParameter,
        ParamsParameter,
        PartitionBy,
        StoreParameter,
        VersionParameter,
    )

CallKind = RunKind | Literal["pipeline"]
_ROLE = "role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a field of a call is to those who compare calls, write them down and pass them on."""

    is_written: bool = True
    """Whether it is among the arguments in the document of the run. Else it says which run, which
    rows (which are written down on their own) or which cluster."""
    decides: bool = True
    """Whether a resume with another value runs all partitions again, as with other code. Else it
    says which partitions there are, is compared for each of them, or says how they are executed."""
    function: Literal["", "always", "maybe"] = ""
    """Whether it is a function, or the name of one; maybe: or a plain value."""
    is_files: bool = False
    """Whether it names files, of which the content decides."""
    is_data: bool = False
    """Whether it holds rows or much else, which Prefect should neither walk through nor store."""
    is_newer: bool = False
    """Whether runs were made before there was such a field: where it says nothing it is left out,
    so that these are still known by their calls."""

    @property
    def metadata(self) -> Mapping[str, Role]:
        """The metadata of a field that has this role."""
        return {_ROLE: self}


DECIDES = Role()
WHERE = Role(is_written=False).metadata
HOW = Role(decides=False).metadata
FUNCTION = Role(function="always").metadata
FILES = Role(is_files=True).metadata


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a flow: which run, and where it stands."""

    kind: ClassVar[CallKind]
    """What the run does."""

    run_id: str = field(default="", metadata=WHERE)
    """A name for the run: letters, digits, "-", "_" and single dots. Empty: a name is made up.

    {scheduled:%Y-%m-%d} in it stands for the time at which the flow run was due,
    {scheduled[Europe/Amsterdam]:%Y-%m-%d} for that of a time zone."""
    store: StoreParameter = field(default="artifacts", metadata=WHERE)
    """The artifact store: a folder, a URL such as s3://bucket/folder, or the name of a
    StoreBlock that is saved, such as store-block/prod.

    Or a StoreBlock."""
    on_existing_artifacts: OnExisting = field(default="error", metadata=WHERE)
    """When the run exists: "error", "overwrite" all of it, or "resume": keep the partitions whose
    rows, models, code, settings and params are those of a finished one. "resume-failed": keep all
    that is DONE, whatever has changed since, and run the rest."""

    @classmethod
    def flow(cls) -> str:
        """Return the name of the flow function."""
        return "model_pipeline" if cls.kind == "pipeline" else KINDS[cls.kind].flow

    @classmethod
    def run_kind(cls) -> RunKind:
        """Return the kind of the run that it makes; a pipeline makes several, each by its call."""
        if cls.kind == "pipeline":
            raise ValueError("a pipeline is not a run")
        return cls.kind

    def parameters(self) -> dict[str, Any]:
        """Return all of its fields by name, as the flow takes them."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def written_arguments(self) -> dict[str, Any]:
        """Return what is written down in the document of the run, and compared by a resume."""
        written = {}
        for each in dataclasses.fields(self):
            value, role = getattr(self, each.name), role_of(each)
            if not role.is_written or (role.is_newer and value in (None, each.default)):
                continue
            # As it was written down before fields had empty texts: runs of then are known by it.
            written[each.name] = None if role.function == "always" and value == "" else value
        return written


@dataclass(frozen=True, kw_only=True)
class VersionedCall(Call):
    """A call whose code is compared, carried out by a cluster of its own choice."""

    version: VersionParameter = field(default="", metadata=WHERE)
    """Your own word for the version of your code, which a resume compares in place of looking at
    the code."""
    cluster: ClusterParameter = field(default="", metadata=WHERE)
    """The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or CustomCluster
    block, the name of one that is saved, such as cuda-cluster/big, or a scheduler's address."""


@dataclass(frozen=True, kw_only=True)
class ExecutedCall(VersionedCall):
    """A call of partitions or trials, each by itself."""

    execution: ExecutionOptions = field(default_factory=ExecutionOptions, metadata=HOW)
    """Retries, limits, failure budget, shards."""


@dataclass(frozen=True)
class RowsCall(Call):
    """A call over rows."""

    data: DataParameter = field(metadata=Role(is_written=False, is_data=True).metadata)
    """Where the rows come from: a file, glob, folder or URL of Parquet, CSV, Excel, JSON lines, ORC
    or Arrow; a dataset, dataset://sales@3; the name of a FilesBlock or QueryBlock, such as
    query-block/shop; or a list of these.

    Or Files, with how they are read. From Python also a Query, a block, and a table, frame or
    stream of pyarrow, pandas, polars, DuckDB or Dask."""
    _: KW_ONLY
    filter: FilterParameter = field(default=(), metadata=WHERE)
    """Rows to keep: (column, op, value) tuples that must all hold, or lists of them."""
    columns: ColumnsParameter = field(default=(), metadata=WHERE)
    """Columns to read. None given: all."""


@dataclass(frozen=True)
class KeyedCall(RowsCall, ExecutedCall):
    """A call over rows that are divided into partitions by the values of key columns."""

    partition_by: PartitionBy
    """The key column, or a list of them. Rows of equal keys are a partition."""
    _: KW_ONLY
    params: ParamsParameter = field(default="", metadata=Role(decides=False, is_data=True).metadata)
    """Parameters for single partitions, found in context.params: the path of a table with the key
    columns.

    Or a mapping of key to mapping. From Python also the table."""
    null_keys: NullKeys = field(default="error", metadata=HOW)
    """What becomes of rows with a null key: "error", "drop", or "keep" as a partition."""
    seed: int = 0
    """Every partition's own seed is derived from this one and its key."""


def drawn_rows() -> HoldoutParameter:
    """Return the rows that settings are scored on where nothing is said."""
    # Here, since it brings pyarrow, and the kinds of calls are imported without.
    from partwise.evaluation import HoldoutFraction

    return HoldoutFraction()


def role_of(argument: dataclasses.Field[Any]) -> Role:
    """Return what a field of a call is."""
    known: Role = argument.metadata.get(_ROLE, DECIDES)
    return known


def fields_in_order(call: type[Call]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a kind of call as a person reads them.

    Those by place are first, and then what is the call's own; which run and where it works come
    last, as most calls leave them as they are.
    """
    kinds = [each for each in call.__mro__ if issubclass(each, Call)]
    # Some classes say a field again, in other words: it stands where it does in other calls.
    home = {name: kind for kind in kinds for name in inspect.get_annotations(kind)}
    general = (Call, VersionedCall, ExecutedCall)
    rank = {kind: place for place, kind in enumerate([*kinds, *general])}

    def place_of(each: dataclasses.Field[Any]) -> int:
        return rank[home[each.name]] if each.kw_only else -1

    return sorted(dataclasses.fields(call), key=place_of)


def roles(call: type[Call]) -> Mapping[str, Role]:
    """Return what the fields of a kind of call are, by name."""
    return {each.name: role_of(each) for each in dataclasses.fields(call)}


def field_types(call: type[Call]) -> Mapping[str, Any]:
    """Return the types of the fields of a kind of call, by name."""
    from partwise.calls import parameters

    return get_type_hints(call, localns=vars(parameters), include_extras=True)
