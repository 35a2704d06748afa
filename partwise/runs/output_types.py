"""Whether the columns that a run's partitions returned go together: which are of which types."""

from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.formatting import counted
from partwise.runs.key_texts import key_texts

_SHOWN = 3


def unfit_types(ledger: pa.Table, schemas: Mapping[str, pa.Schema]) -> str | None:
    """Name the first column whose types do not go together, and partitions of each type.

    Returned is the end of a sentence; None: all go together.
    """
    found: dict[str, dict[pa.DataType, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, schema in schemas.items():
        for field in schema:
            found[field.name][field.type].append(path)
    for name, files in found.items():
        try:
            one_column = [pa.schema([(name, data_type)]) for data_type in files]
            pa.unify_schemas(one_column, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            having = [(_of_files(ledger, paths), kind) for kind, paths in files.items()]
            having.sort(key=lambda each: each[0].num_rows, reverse=True)
            types = [f"{kind} in {_partitions(chosen)}" for chosen, kind in having]
            return f"column {name!r} is {', '.join(types[:-1])} and {types[-1]}"
    return None


def _of_files(ledger: pa.Table, paths: list[str]) -> pa.Table:
    return ledger.filter(pc.is_in(ledger["rows_file"], pa.array(paths, pa.string())))


def _partitions(chosen: pa.Table) -> str:
    shown = ", ".join(key_texts(chosen, _SHOWN))
    more = ", ..." if chosen.num_rows > _SHOWN else ""
    return f"{counted(chosen.num_rows, 'partition')} ({shown}{more})"


def mixed_types(
    run_id: str, ledger: pa.Table, schemas: Mapping[str, pa.Schema], error: pa.ArrowException
) -> ColumnError:
    """Return the error of output rows whose columns cannot stand in one table."""
    return ColumnError(
        f"Partitions of the run {run_id!r} returned columns of types that do not go together: "
        f"{unfit_types(ledger, schemas) or error}. Have the function return one type, and resume "
        "the run after its code has changed, or read the rows one file at a time with "
        "iter_predictions()."
    )
