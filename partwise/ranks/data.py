"""The rows of one rank as a connector, with categories whose codes mean the same on every rank."""

import pyarrow as pa
import pyarrow.compute as pc

from partwise.connector.categories import with_categories_once
from partwise.connector.data_connector import DataConnector
from partwise.ranks.global_categories import global_categories
from partwise.ranks.protocols import Exchange, Share
from partwise.runs.bundle import CATEGORIES_FILENAME
from partwise.shuffle.shared_folder import table_bytes
from partwise.tables.categories import with_categories_of, with_own_categories


def rank_data(exchange: Exchange, files: dict[str, bytes], share: Share) -> DataConnector:
    """Return the rows of a rank; every rank has to call it alike.

    Categories of what was read first come first; those that only a later source has, such as rows
    to evaluate on, stand behind them. The run keeps them all, for rows that its model meets later.
    """
    table = with_categories_once(pa.Table.from_batches(share.batches(), share.schema))
    coded = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    content = global_categories(exchange, share, coded).artifact() if coded else None
    if content is not None:
        known = files.get(CATEGORIES_FILENAME)
        categories = _joined(None if known is None else _opened(known), _opened(content))
        files[CATEGORIES_FILENAME] = table_bytes(categories)
        table = with_categories_of(with_own_categories(table), categories)
    return DataConnector(table)


def _opened(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def _joined(known: pa.Table | None, found: pa.Table) -> pa.Table:
    """Return categories with those behind them that were found and are not known."""
    columns = {} if known is None else dict(zip(known.column_names, known.columns, strict=True))
    for name in found.column_names:
        if name in columns:
            first, values = (
                each.chunk(0).flatten() for each in (columns[name], found.column(name))
            )
            # Behind the known ones: codes that rows have been given stay what they are.
            new = values.filter(pc.invert(pc.is_in(values, value_set=first.cast(values.type))))
            values = pa.concat_arrays([first.cast(values.type), new])
            columns[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)]), values)
        else:
            columns[name] = found.column(name)
    return pa.table(columns)
