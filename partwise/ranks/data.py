"""The rows of one rank as a connector, with categories whose codes mean the same on every rank."""

import pyarrow as pa

from partwise.connector.categories import with_categories_once
from partwise.connector.data_connector import DataConnector
from partwise.ranks.global_categories import global_categories
from partwise.ranks.protocols import Exchange, Share
from partwise.runs.bundle import CATEGORIES_FILENAME
from partwise.tables.categories import (
    categories_of_rows,
    with_categories_of,
    with_own_categories,
    without_order,
)
from partwise.tables.ipc_streams import table_bytes


def rank_data(exchange: Exchange, files: dict[str, bytes], share: Share) -> DataConnector:
    """Return the rows of a rank; every rank has to call it alike.

    Categories of what was read first come first; those that only a later source has, such as rows
    to evaluate on, stand behind them. The run keeps them all, for rows that its model meets later.
    """
    table = with_categories_once(pa.Table.from_batches(share.batches(), share.schema))
    coded = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    if not coded:
        return DataConnector(table)
    known = _known(files)
    found: dict[str, pa.ChunkedArray] = {}
    for name, column in global_categories(exchange, share, coded).values.items():
        # Behind the known ones: codes that rows have been given stay what they are.
        own = pa.table({name: column})
        own = with_categories_of(own, pa.table({name: known[name]})) if name in known else own
        lists = categories_of_rows(own, ())
        found |= {} if lists is None else {name: lists.column(name)}
        place = table.schema.get_field_index(name)
        if (field := table.schema.field(place)).type.ordered and not own.column(0).type.ordered:
            column = without_order(table.column(place))
            table = table.set_column(place, field.with_type(column.type), column)
    if found:
        categories = pa.table(known | found)
        files[CATEGORIES_FILENAME] = table_bytes(categories)
        table = with_categories_of(with_own_categories(table), categories)
    return DataConnector(table)


def _known(files: dict[str, bytes]) -> dict[str, pa.ChunkedArray]:
    """Return the categories that the run keeps by now, by column."""
    content = files.get(CATEGORIES_FILENAME)
    if content is None:
        return {}
    kept = pa.ipc.open_stream(content).read_all()
    return dict(zip(kept.column_names, kept.columns, strict=True))
