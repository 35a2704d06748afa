"""Files that are described by a value, a block, a form or options of the command line."""

import io
import json
import logging
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xlsxwriter
from prefect.utilities.callables import parameter_schema
from pydantic import SecretStr

from partwise.blocks import FilesBlock
from partwise.calls.intent import describe_intent
from partwise.calls.partitions import TrainCall
from partwise.calls.reading import read_arguments
from partwise.datasets.dataset import Dataset
from partwise.errors import InputError
from partwise.flows import map_partitions
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.main import main
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_output, open_rows
from partwise.flows.running.sent_parameters import sent_parameters
from partwise.renamed import RENAMED
from partwise.runs.run import Run
from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions
from partwise.sources.opening import open_source
from partwise.store.credentials import credentials_of, set_credentials
from tests.lazily import Lazily
from tests.sources.log_tables import write_delta

dd, validation = Lazily("dask.dataframe"), Lazily("prefect.utilities.schema_tools.validation")

SECRET = "a-very-secret-half"


def count(data, context):
    return pa.table({"rows": [data.num_rows], "total": [float(np.nansum(data.to_numpy("x")))]})


def partwise(*words) -> tuple[int, str]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
        code = main([str(word) for word in words])
    return code, err.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Files whose names say no format, of which one lacks a column."""
    (tmp_path / "data").mkdir()
    for name, content in {"a": "x,y\n1,1\n2,1\n", "b": "x\n3.5\n", "c": "x,y\n4,1\n"}.items():
        (tmp_path / "data" / f"{name}.txt").write_text(content)
    return tmp_path / "data"


def test_each_file_is_a_partition_and_a_resume_reads_them_alike(folder, tmp_path, cluster):
    store = tmp_path / "store"
    words = [
        "map",
        folder,
        "--file-format",
        "csv",
        "--schema",
        "union",
        "--types",
        "x=double,y=int8",
    ]
    words += ["--file-column", "file", "-p", "file", "--run-id", "m", "--store", store]
    words += ["--function", f"{__name__}:count", "--n-shards", "2"]
    words += ["--address", cluster.address, "--shares-filesystem"]
    code, err = partwise(*words)
    assert code == 0, err
    run = Run.open("m", store)
    found = run.predictions().select(["file", "rows", "total"]).sort_by("file").to_pylist()
    assert found == [
        {"file": "a.txt", "rows": 2, "total": 3.0},
        {"file": "b.txt", "rows": 1, "total": 3.5},
        {"file": "c.txt", "rows": 1, "total": 4.0},
    ]
    call = run.read_generation_document().call
    expected = Files(
        folder, format="csv", schema="union", types={"x": "double", "y": "int8"}, file_column="file"
    )
    assert read_arguments(call)[1]["data"] == expected
    (folder / "b.txt").write_text("x\n9.5\n")
    resumed = ["runs", "resume", "m", "--store", store, "--address", cluster.address]
    code, err = partwise(*resumed, "--shares-filesystem")
    assert code == 0, err
    again = Run.open("m", store)
    assert (again.executed, again.counts) == (1, {"DONE": 3})
    assert again.predictions().sort_by("file")["total"].to_pylist() == [3.0, 9.5, 4.0]


def test_a_european_file_is_read_by_workers_and_a_resume_reads_it_alike(tmp_path, cluster):
    path, store = tmp_path / "sales.csv", tmp_path / "store"
    lines = ["Umsätze", "", "k;day;x", "ä;31.12.2025;1,5", "ä;01.01.2026;k. A.", "ß;;2,25"]
    path.write_bytes("\r\n".join(lines).encode("cp1252"))
    words = ["map", path, "-p", "k", "--run-id", "m", "--store", store, "--n-shards", "2"]
    words += ["--function", f"{__name__}:count", "--address", cluster.address]
    words += ["--shares-filesystem", "--csv-encoding", "cp1252", "--csv-skip-rows", "2"]
    words += ["--csv-null-words", "k. A.", "--csv-date-formats", "%d.%m.%Y"]
    told = f"Reading {str(path)!r} with the delimiter ';' of its header.\n"
    code, err = partwise(*words)
    assert (code, err.count(told)) == (1, 1), err
    trained = ["train", *words[1:4], "--trainer", "lightgbm", "--label", "x", *words[12:]]
    code, err = partwise(*trained, "--run-id", "t", "--store", store)
    assert (code, "label 'x' is string" in err, "--csv-decimal ," in err) == (2, True, True), err
    resumed = ["--on-existing-artifacts", "resume"]
    code, err = partwise(*words, "--csv-decimal", ",", *resumed)
    assert (code, err.count(told)) == (0, 1), err
    again = Run.open("m", store)
    found = again.predictions().select(["k", "total"]).sort_by("k").to_pylist()
    assert found == [{"k": "ß", "total": 2.25}, {"k": "ä", "total": 1.5}]
    call = again.read_generation_document().call
    options = CsvOptions(
        encoding="cp1252",
        skip_rows=2,
        decimal=",",
        null_words=("k. A.",),
        date_formats=("%d.%m.%Y",),
    )
    assert read_arguments(call)[1]["data"] == Files(path, csv=options)
    address = ["--address", cluster.address, "--shares-filesystem"]
    code, err = partwise("runs", "resume", "m", "--store", store, *address)
    assert (code, Run.open("m", store).executed) == (0, 0), err


def test_what_is_found_out_about_a_file_is_in_the_log_of_the_flow(tmp_path, cluster, caplog):
    (tmp_path / "x.csv").write_bytes("k;x\na;1\n".encode("utf-16"))
    with caplog.at_level(logging.INFO, "prefect.flow_runs"):
        map_partitions(
            tmp_path / "x.csv", "k", count, run_id="log", store=tmp_path / "s", cluster=cluster
        )
    (line,) = [record for record in caplog.records if "Reading" in record.getMessage()]
    assert line.getMessage().endswith(" of its header and as utf-16, by its byte order mark.")
    sources = logging.getLogger("partwise.sources")
    assert (sources.handlers, sources.propagate, sources.level) == ([], True, logging.NOTSET)


def test_a_workbook_of_options_of_the_command_line(tmp_path, cluster):
    with xlsxwriter.Workbook(tmp_path / "x.xlsx") as book:
        book.add_worksheet("notes")
        sheet = book.add_worksheet("2026")
        for place, row in enumerate([["k", "x"], ["a", 1], ["b", 2.5], ["a", "-"]]):
            sheet.write_row(place + 1, 0, row)
    words = ["map", tmp_path / "x.xlsx", "-p", "k", "--run-id", "m", "--store", tmp_path / "s"]
    words += ["--function", f"{__name__}:count", "--address", cluster.address]
    words += ["--shares-filesystem", "--excel-sheet", "2026", "--excel-null-words=-"]
    code, err = partwise(*words, "--excel-column-names", "k,x", "--excel-skip-rows", "2")
    assert code == 0, err
    found = Run.open("m", tmp_path / "s").predictions().sort_by("k")["total"].to_pylist()
    assert found == [1.0, 2.5]
    function = f"{__name__}:count"
    code, err = partwise("map", tmp_path / "x.xlsx", "-p", "k", "--function", function)
    assert code == 2
    assert "Sheet 'notes' of file" in err


def test_sources_of_several_kinds_are_one_run(folder, tmp_path, cluster):
    frame = dd.from_pandas(pd.DataFrame({"x": range(10, 16), "y": 1}), npartitions=3)
    rest = pl.LazyFrame({"y": [2, 1], "x": [30, 31]})
    given = [Files(folder / "a.txt", format="csv"), frame, rest, pa.table({"x": [40], "y": [2]})]
    store = str(tmp_path / "store")
    run = map_partitions(given, "y", count, run_id="several", store=store, cluster=cluster)
    found = run.predictions().select(["y", "rows", "total"]).sort_by("y").to_pylist()
    assert found == [
        {"y": 1, "rows": 9, "total": 1 + 2 + sum(range(10, 16)) + 31.0},
        {"y": 2, "rows": 2, "total": 70.0},
    ]
    assert run.read_generation_document().call is None, "frames cannot be made again elsewhere"


def test_calls_of_before_are_read():
    old = {
        "flow": "train_models",
        "data": {"paths": ["/data/x.csv"], "columns": ["a"], "filter": None},
        "arguments": {"seed": 1},
        "version": None,
    }
    assert read_arguments(old)[1] == {
        "seed": 1, "version": None, "data": ["/data/x.csv"], "columns": ["a"], "filter": None,
    }  # fmt: skip


def test_a_call_with_files_is_read_back(folder):
    files = Files(folder / "a.txt", format="csv", file_column="file")
    source = open_source([files, files], columns=["x", "file"])
    intent = describe_intent(
        TrainCall(files, "x", count, serde=None, params=None), source.description()
    )
    read = read_arguments(json.loads(json.dumps(intent.call)))[1]
    assert read["data"] == [files, files]
    assert (read["columns"], read["filter"]) == (["x", "file"], None)


def test_a_block_is_opened_and_its_keys_stay_here(prefect_server):
    block = FilesBlock(
        paths=["s3://a-bucket/x", "s3://a-bucket/y"],
        format="csv",
        schema_policy="union",
        types={"zip": "string"},
        file_column="file",
        endpoint_url="http://127.0.0.1:1",
        access_key_id=SecretStr("an-id"),
        secret_access_key=SecretStr(SECRET),
    )
    block.save("sales", overwrite=True)
    try:
        for given in (block, "files-block/sales", ["files-block/sales"]):
            opened = open_rows(given)
            opened = opened[0] if isinstance(opened, list) else opened
            assert opened == Files(
                ["s3://a-bucket/x", "s3://a-bucket/y"],
                format="csv",
                schema="union",
                types={"zip": "string"},
                file_column="file",
                endpoint_url="http://127.0.0.1:1",
            )
            assert SECRET not in repr(opened) + json.dumps(opened.recipe())
        keys = {"key": "an-id", "secret": SECRET}
        assert credentials_of("s3://a-bucket") == keys
    finally:
        set_credentials("s3://a-bucket", {})
    assert SECRET not in repr(FilesBlock.load("sales"))
    with pytest.raises(InputError, match="No block 'files-block/none' can be loaded"):
        open_rows("files-block/none")
    with pytest.raises(InputError, match=r"\. Did you mean 'files-block/sales'\?"):
        open_rows("files-block/sale")
    with pytest.raises(InputError, match=r"access_key_id was given without .*; give both"):
        FilesBlock(paths=["s3://b"], access_key_id="AKIA")


def test_a_form_may_send_files(folder):
    schema = parameter_schema(map_partitions).model_dump_for_openapi()
    for data in (
        "files-block/sales",
        ["a.csv", "b.csv"],
        {
            "paths": [str(folder)],
            "format": "csv",
            "schema": "union",
            "types": {},
            "file_column": "",
        },
        {
            "paths": [str(folder)],
            "format": "csv",
            "schema": "union",
            # A form sends what it has by default as well.
            "csv": {**CsvOptions().model_dump(mode="json"), "delimiter": ";", "skip_rows": 2},
            "excel": ExcelOptions().model_dump(mode="json"),
        },
    ):
        sent = {"data": data, "partition_by": "file", "function": "mine:count"}
        validation.validate(
            sent, schema, raise_on_error=True, preprocess=False, ignore_required=True
        )
    options = {"delimiter": ";", "skip_rows": 2}
    files = Files(folder, format="csv", schema="union", csv=options)
    assert open_rows(data) == files
    assert sent_parameters({"data": files})["data"] == files.recipe()
    block = FilesBlock(paths=[str(folder)], format="csv", schema_policy="union", csv=options)
    assert open_rows(block) == files
    with pytest.raises(InputError, match=r"Files\(csv.sep=';'\) cannot be used"):
        open_rows(FilesBlock(paths=[str(folder)], csv={"sep": ";"}))


SNAPSHOT = 2**62 + 1


@pytest.mark.parametrize(("version", "given"), [(SNAPSHOT, str(SNAPSHOT)), (0, "0"), (None, "")])
def test_the_version_of_a_table_can_be_said_wherever_files_can(folder, version, given):
    files = Files(folder, version=version)
    schema = parameter_schema(map_partitions).model_dump_for_openapi()
    sent = {
        "data": sent_parameters({"data": files})["data"],
        "partition_by": "x",
        "function": "m:f",
    }
    validation.validate(sent, schema, raise_on_error=True, preprocess=False, ignore_required=True)
    # As JavaScript reads it, all of whose numbers are doubles.
    data = json.loads(json.dumps(sent["data"]), parse_int=float)
    assert open_rows(data) == files
    form = {"paths": [str(folder)], "version": given}
    validation.validate(sent | {"data": form}, schema, raise_on_error=True, preprocess=False)
    assert open_rows(form) == files
    assert open_rows(FilesBlock(paths=[str(folder)], version=given)) == files
    found = FileOptions(table_version=given).of([str(folder)])
    assert (Files(found) if isinstance(found, list) else found) == files


def test_an_older_version_is_read_from_the_command_line(tmp_path):
    root = tmp_path / "sales"
    for number in range(2):
        write_delta(root, pa.table({"x": [number]}))
    store = tmp_path / "store"
    words = ["data", "register", "sales", root, "--store", store, "--json"]
    for version, rows in ((["--table-version", "0"], 1), ([], 2)):
        code, _ = partwise(*words, *version)
        assert code == 0
        assert Dataset.open("sales", store=store).rows == rows
    code, err = partwise(*words, "--table-version", "new")
    assert code == 2
    assert "Files(version='new') is not a version" in err


def test_options_that_say_nothing_leave_paths_as_they_are(folder):
    assert FileOptions().of((str(folder), "b.csv")) == [str(folder), "b.csv"]
    assert FileOptions(file_column="f").of(()) == []
    with pytest.raises(InputError, match=r"--types 'zip' is not of the form column=type"):
        FileOptions(types=("zip",)).of(["x.csv"])
    with pytest.raises(InputError, match=r"'files-block/sales' says itself how its files are read"):
        FileOptions(schema="union").of(["files-block/sales"])
    code, err = partwise(
        "map", folder, "--function", "m:f", "-p", "x", "--types", "x=number", "--file-format", "csv"
    )
    assert code == 2
    assert "declares column 'x' as 'number', which is not a type" in err


@pytest.mark.parametrize(("old", "new"), RENAMED["blocks"].items())
def test_a_block_by_an_old_name_is_no_folder(old: str, new: str) -> None:
    asked = f"{old}/prod"
    opening = {"store-block": open_store, "table-block": open_output}.get(new, open_rows)
    with pytest.raises(InputError, match=f"of the kind {new} now; .* write {new}/prod"):
        opening(asked)
