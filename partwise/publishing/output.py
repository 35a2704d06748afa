"""Where the rows of a run go besides the run: a table of a database, or a dataset."""

from collections.abc import Sequence

import pyarrow as pa

from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table, check_table

Output = Table | DatasetOutput


def check_output(output: Output | None, columns: Sequence[pa.Field]) -> None:
    """See before any work that rows can go where they are wanted.

    `columns` are those of the rows that are known already.
    """
    if isinstance(output, Table):
        check_table(output, columns)
