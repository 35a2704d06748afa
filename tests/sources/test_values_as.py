"""Rows of an inference have the values that the training run would read of the same file."""

import logging

import pyarrow as pa
import pytest

from partwise.errors import InputError
from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions, values_as
from partwise.sources.opening import open_source
from partwise.sources.opening import values_as as rows_as

EUROPEAN = CsvOptions(delimiter=";", decimal=",", thousands=".", null_words=("none",))


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.csv").write_text("k;v\na;4.057\nb;1,5\nc;none\n")
    return str(tmp_path / "a.csv")


def read(source):
    return [value for batch in source.batches() for value in batch["v"].to_pylist()]


def test_options_that_decide_values_are_those_of_training(path, caplog):
    recipe = open_source(Files(path, csv=EUROPEAN)).description().recipe
    with caplog.at_level(logging.INFO, "partwise"):
        source = rows_as(open_source(path), recipe)
    assert read(source) == [4057.0, 1.5, None]
    assert "decimal=',', thousands='.', null_words=['none'], as in the training" in caplog.text
    # A resume of the inference sees what its rows were read with.
    assert source.description().recipe["csv"]["decimal"] == ","
    more = pa.table({"k": ["d"], "v": ["none"]})
    assert read(rows_as(open_source([path, more]), {"paths": [], "csv": {"null_words": ["none"]}}))[
        2:
    ] == [None, "none"]


def test_what_is_given_counts_and_is_said(path, caplog):
    recipe = open_source(Files(path, csv=EUROPEAN)).description().recipe
    own = Files(path, csv=CsvOptions(thousands=",", null_words=("1,5", "none")))
    with caplog.at_level(logging.WARNING, "partwise"):
        assert read(rows_as(open_source(own), recipe)) == [4.057, None, None]
    assert [record.getMessage().partition(" is read with ")[2] for record in caplog.records] == [
        "thousands=',', and the rows of the training run were read with '.'.",
        "null_words=('1,5', 'none'), and the rows of the training run were read with ['none'].",
    ]


def test_the_default_counts_as_not_given_as_from_a_shell_or_a_recipe(path):
    recipe = open_source(Files(path, csv=EUROPEAN)).description().recipe
    own = open_source(Files(path, csv=CsvOptions(decimal=".")))
    assert read(rows_as(own, recipe)) == [4057.0, 1.5, None]


def test_where_nothing_is_known_nothing_changes(path):
    source = open_source(path)
    assert rows_as(source, None) is source
    assert rows_as(source, {"query": {"sql": "select 1"}}).schema == source.schema
    assert rows_as(source, {"sources": [{"query": "select 1"}]}).schema == source.schema


COMMA, NONE, WORDS = {"decimal": ","}, {}, {"decimal": ",", "null_words": ["1,5"]}
LISTS = [
    # How the files of training were read; which file this one is; what it is read with.
    ([COMMA], None, 0, COMMA),
    ([COMMA, COMMA], None, 1, COMMA),
    ([NONE, NONE], None, 0, NONE),
    ([COMMA, None], None, 1, COMMA),
    ([COMMA | {"delimiter": ";"}, COMMA], None, 5, COMMA),
    ([COMMA, NONE], 0, 1, COMMA),
    ([NONE, COMMA], 0, 1, NONE),
    ([WORDS, NONE, COMMA], None, 2, COMMA),
    ([WORDS, COMMA], None, 0, WORDS),
    ([WORDS, COMMA], None, 2, None),
    ([None, COMMA, NONE], None, 0, None),
]


@pytest.mark.parametrize(("trained", "same", "place", "expected"), LISTS)
def test_of_a_list_of_sources_the_files_that_are_like_these_say_it(
    path, trained, same, place, expected, caplog
):
    """None stands for a Parquet file; a place beyond the list, for a file that is not a list."""
    recipes = [
        {"paths": ["/x.parquet"]} if options is None else {"paths": [f"/{number}.csv"]}
        for number, options in enumerate(trained)
    ]
    for recipe, options in zip(recipes, trained, strict=True):
        recipe |= {"csv": options} if options else {}
    if same is not None:
        recipes[same]["paths"] = [path]
    table = pa.table({"k": ["d"], "v": ["x"]})
    data = [table] * len(trained)
    data[place % len(trained)] = path
    source = rows_as(open_source(data if place < len(trained) else path), {"sources": recipes})
    wanted = [str(value) for value in read(open_source(Files(path, csv=expected or {})))]
    assert [str(value) for value in read(source) if value != "x"] == wanted
    assert ("others without: say how" in caplog.text) == (expected is None)


def test_lists_within_lists_say_it_too(path):
    inner = {"sources": [{"paths": ["/1.csv"], "csv": COMMA}, {"paths": ["/2.parquet"]}]}
    recipe = {"sources": [{"query": "select 1"}, inner]}
    assert read(rows_as(open_source(path), recipe)) == ["4.057", "1,5", "none"]
    # No number with a decimal comma has a dot between thousands, unless somebody says so.
    inner["sources"][0]["csv"] = COMMA | {"thousands": "."}
    assert read(rows_as(open_source(path), recipe))[:1] == ["4.057"]


def test_layout_is_of_each_file_and_workbooks_have_words_for_null():
    assert values_as(CsvOptions(), {"delimiter": ";", "skip_rows": 2}) == (CsvOptions(), {}, [])
    asked, taken, _ = values_as(ExcelOptions(sheet="b"), {"sheet": "a", "null_words": ["-"]})
    assert (asked, taken) == (ExcelOptions(sheet="b", null_words=("-",)), {"null_words": ["-"]})


@pytest.mark.parametrize("csv", [["decimal"], {"decimal": "x"}, {"null_words": 3}, "text"])
def test_a_recipe_that_somebody_changed_is_refused_in_a_sentence(path, csv):
    with pytest.raises(InputError, match="the training run were read cannot be read from its call"):
        rows_as(open_source(path), {"paths": [path], "csv": csv})
