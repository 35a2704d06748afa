"""Every type of every library that rows can come from: what it holds, and how it is written.

One `Case` for each (library, type). `test_every_type.py` takes each across the borders of partwise.
"""

from tests.borders.frame_types import duckdb_cases, pandas_cases, polars_cases
from tests.borders.log_table_types import log_table_cases
from tests.borders.text_types import csv_cases, excel_cases, json_cases, sqlite_cases
from tests.borders.type_cases import Case, arrow_cases, file_cases


def all_cases() -> list[Case]:
    """The whole table."""
    libraries = (
        *(arrow_cases, file_cases, pandas_cases, polars_cases, duckdb_cases),
        *(csv_cases, json_cases, excel_cases, sqlite_cases, log_table_cases),
    )
    return [case for cases in libraries for case in cases()]
