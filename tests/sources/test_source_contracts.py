"""Every kind of source keeps to what sources promise."""

import csv
import gzip
import json

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.orc as paorc
import pyarrow.parquet as pq

from partwise.sources.files.file_set import Files
from partwise.testing import SourceContract


def json_lines(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


class TestParquet(SourceContract):
    def data(self, table, folder):
        pq.write_table(table, folder / "x.parquet", row_group_size=7)
        return folder


class TestCsv(SourceContract):
    def data(self, table, folder):
        pacsv.write_csv(table, folder / "x.csv")
        return folder / "x.csv"

    def expected(self, table):
        # CSV knows no null text.
        text = table["text"].fill_null("")
        return table.set_column(table.column_names.index("text"), "text", text)


class TestEuropeanCsv(SourceContract):
    def data(self, table, folder):
        with (folder / "x.csv").open("w", encoding="utf-16", newline="") as file:
            writer = csv.writer(file, delimiter=";", quotechar="'")
            file.write("a title\r\n")
            for row in table.to_pylist():
                writer.writerow(
                    "-" if v is None else str(v).replace(".", ",") for v in row.values()
                )
        options = {"skip_rows": 1, "decimal": ",", "quote": "'", "null_words": ["-"]}
        return Files(folder, csv={**options, "column_names": table.column_names})


class TestJsonLines(SourceContract):
    def data(self, table, folder):
        (folder / "x.ndjson.gz").write_bytes(gzip.compress(json_lines(table)))
        return str(folder / "*.gz")


class TestOrc(SourceContract):
    def data(self, table, folder):
        paorc.write_table(table, folder / "x.orc")
        return folder


class TestArrowFile(SourceContract):
    def data(self, table, folder):
        with pa.OSFile(str(folder / "x"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table, max_chunksize=9)
        return Files(folder, format="ipc")


class TestArrowStreamFile(SourceContract):
    def data(self, table, folder):
        path = folder / "x.arrows"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table, max_chunksize=9)
        return path


class TestTable(SourceContract):
    def data(self, table, folder):
        return table


class TestPandas(SourceContract):
    def data(self, table, folder):
        return table.to_pandas(types_mapper=pd.ArrowDtype)


class TestPolars(SourceContract):
    def data(self, table, folder):
        return pl.from_arrow(table)


class TestPolarsLazyFrame(SourceContract):
    def data(self, table, folder):
        return pl.from_arrow(table).lazy()


class TestDuckDB(SourceContract):
    def data(self, table, folder):
        return duckdb.connect().from_arrow(table)


class TestDataset(SourceContract):
    def data(self, table, folder):
        pq.write_table(table.slice(0, 20), folder / "1.parquet", row_group_size=7)
        pq.write_table(table.slice(20), folder / "2.parquet", row_group_size=7)
        return pads.dataset(folder)


class TestReader(SourceContract):
    once = True

    def data(self, table, folder):
        return table.to_reader(max_chunksize=11)


class TestStream(SourceContract):
    def data(self, table, folder):
        class Stream:
            def __arrow_c_stream__(self, requested_schema=None):
                return table.__arrow_c_stream__(requested_schema)

        return Stream()


class TestSeveralKinds(SourceContract):
    def data(self, table, folder):
        pq.write_table(table.slice(0, 20), folder / "1.parquet")
        (folder / "2.jsonl").write_bytes(json_lines(table.slice(20, 20)))
        rest = pl.from_arrow(table.slice(40))
        return [folder / "1.parquet", Files(folder / "2.jsonl"), rest.lazy()]
