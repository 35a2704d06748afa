"""CSV files as people have them: other delimiters, quotes, encodings, decimals, dates and nulls."""

import bz2
import codecs
import csv
import datetime as dt
import gzip
import json
import logging
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError, InputError, SourceError
from partwise.sources.files import csv_files
from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.opening import data_of_recipe, open_source
from tests.sources.reopening import reopened

ENCODINGS = ["", "utf-8", "utf-8-sig", "latin-1", "cp1252", "cp437"]
ENCODINGS += ["utf-16", "utf-16-le", "utf-32"]
NAMES = st.text("abéß _", min_size=1).map(str.strip).filter(bool)
LETTERS = "abcé äß€☃,;|\t\"'.-\n"


def rows(path, **options):
    source = open_source(Files(path, csv=CsvOptions(**options)))
    batches = list(source.batches())
    assert all(batch.schema.equals(source.schema) for batch in batches)
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def put(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@st.composite
def written(draw):
    """Rows, the bytes of a CSV file of them, and the options that read it."""
    options = {
        "delimiter": draw(st.sampled_from([",", ";", "\t", "|", ":", "~"])),
        "quote": draw(st.sampled_from(['"', "'"])),
        "encoding": draw(st.sampled_from(ENCODINGS)),
        "decimal": draw(st.sampled_from([".", ","])),
        "skip_rows": draw(st.integers(0, 3)),
        "null_words": tuple(draw(st.sets(st.sampled_from(["-", "n. v.", "NA"]), max_size=2))),
    }
    between = [each for each in ["", ".", ",", " ", "'"] if each != options["decimal"]]
    options["thousands"] = draw(st.sampled_from(between))
    encoding = options["encoding"] or "utf-8"
    text = st.text(LETTERS, min_size=1, max_size=8).filter(
        lambda value: value not in options["null_words"] and can(value, encoding)
    )
    null = st.none() if options["null_words"] else st.nothing()
    found = draw(
        st.lists(
            st.tuples(
                text | null,
                st.floats(-1e6, 1e6, allow_nan=False) | st.none(),
                st.integers(-(10**12), 10**12) | st.none(),
            ),
            min_size=1,
            max_size=20,
        )
    )
    # Columns have a type only where they have a value.
    found.append(("x1", 0.5, 7))
    header = draw(st.booleans())
    names = ["text", "share", "count"]
    if not header:
        options["column_names"] = tuple(names)
    return found, contents(draw, found, names if header else None, options), options


def can(value, encoding):
    try:
        return value.encode(encoding) is not None
    except UnicodeEncodeError:
        return False


def contents(draw, found, header, options):
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = Lines()
    style = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    writer = csv.writer(
        lines,
        delimiter=options["delimiter"],
        quotechar=options["quote"],
        quoting=style,
        lineterminator=end,
    )
    if header:
        writer.writerow(header)
    for text, share, count in found:
        null = options["null_words"][0] if options["null_words"] else ""
        decimal = "" if share is None else grouped(draw, share, options)
        number = null if count is None else grouped(draw, count, options)
        writer.writerow([null if text is None else text, decimal, number])
    above = "".join(f'a title, "{number}{end}' for number in range(options["skip_rows"]))
    return (above + lines.text).encode(options["encoding"] or "utf-8")


def grouped(draw, number, options):
    whole, point, decimals = repr(number).partition(".")
    if options["thousands"] and "e" not in whole and draw(st.booleans()):
        sign = "-" if whole.startswith("-") else ""
        whole = sign + f"{int(whole.lstrip('-')):,}".replace(",", options["thousands"])
    return f"{whole}{options['decimal'] if point else ''}{decimals}"


class Lines:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


@given(case=written())
@settings(max_examples=80, deadline=None)
def test_what_is_written_with_options_is_read_with_them(case, tmp_path_factory):
    found, content, options = case
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(content)
    for given_options in (options, json.loads(CsvOptions(**options).model_dump_json())):
        seen = rows(path, **given_options)
        assert [tuple(row.values()) for row in seen] == found
        assert list(seen[0]) == ["text", "share", "count"]
    source = open_source(Files(path, csv=options))
    again = reopened(source.description().recipe)
    fragments = pickle.loads(pickle.dumps(source.fragments()))
    assert again.description().fingerprint == source.description().fingerprint
    assert [b for f in fragments for b in f.batches()] == list(again.batches())


@given(
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    mark=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    names=st.lists(NAMES, min_size=2, unique=True),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_a_header_and_a_byte_order_mark_say_is_found_out(
    delimiter, mark, names, tmp_path_factory, caplog
):
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(f"{delimiter.join(names)}\n{delimiter.join('x' * len(names))}\n".encode(mark))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert rows(path) == [dict.fromkeys(names, "x")]
    said = [] if delimiter == "," else [f"with the delimiter {delimiter!r} of its header"]
    said += [f"as {mark}, by its byte order mark"] * (mark in ("utf-16", "utf-32"))
    told = [f"Reading {str(path)!r} {' and '.join(said)}."] if said else []
    assert [record.getMessage() for record in caplog.records] == told


def test_files_that_are_alike_are_told_of_in_one_line(tmp_path, caplog):
    for number in range(3):
        put(tmp_path / f"{number}.csv", "k;x\n1;2\n")
    put(tmp_path / "4.csv", "k,x\n1,2\n")
    with caplog.at_level(logging.INFO):
        assert rows(tmp_path) == [{"k": 1, "x": 2}] * 4
    (told,) = caplog.records
    assert told.getMessage().endswith("0.csv' and 2 more with the delimiter ';' of its header.")


@pytest.mark.parametrize(
    "header", ["name;price, EUR;x", "a;b|c", "a,b;c", "id;price, EUR", "a\tb;c"]
)
def test_a_delimiter_that_may_be_one_or_another_is_not_guessed(header, tmp_path):
    path = put(tmp_path / "x.csv", f"{header}\n1;2;3\n")
    with pytest.raises(SourceError, match=r"The header of file .*x\.csv' has .* and .*: say which"):
        open_source(path)
    assert rows(put(path, f"{header}\n"), delimiter="~") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a;b",c\n1,2\n', {"a;b": 1, "c": 2}),
        ('a,"b;c;d;e"\n1,2\n', {"a": 1, "b;c;d;e": 2}),
        ("id,amount|usd,x\n1,2,3\n", {"id": 1, "amount|usd": 2, "x": 3}),
        ('"say ""a;b;c""",d\n1,2\n', {'say "a;b;c"': 1, "d": 2}),
        ('"first\nline;",b\n1,2\n', {"first\nline;": 1, "b": 2}),
        ('5" pipe;b\n1;"2"\n', {'5" pipe': 1, "b": 2}),
        ("\n\n\nalone\n1\n", {"alone": 1}),
        ("sep=~\r\na~b;c\r\n1~2\r\n", {"a": 1, "b;c": 2}),
    ],
)
def test_headers_with_a_delimiter_that_is_none(text, expected, tmp_path):
    assert rows(put(tmp_path / "x.csv", text)) == [expected]


def test_rows_without_a_header_say_their_delimiter_by_the_number_of_names(tmp_path):
    path = put(tmp_path / "x.csv", "1,5;2,25\n3,0;4,0\n")
    assert rows(path, column_names=["a", "b"], decimal=",") == [
        {"a": 1.5, "b": 2.25},
        {"a": 3.0, "b": 4.0},
    ]
    with pytest.raises(SourceError, match=r"The first row of file .* has ',' and ';' between"):
        rows(put(path, "1,5;2\n"), column_names=["a", "b"], decimal=",")
    with pytest.raises(SourceError, match="Expected 3 columns, got 2"):
        rows(put(path, "1,2\n"), column_names=["a", "b", "c"])


@pytest.mark.parametrize("name", ["x.tsv", "x.TSV.gz", "x.csv.gz", "x.csv.bz2", "x.csv.zst"])
def test_endings_say_delimiter_and_compression(name, tmp_path):
    delimiter = "\t" if "tsv" in name.lower() else ","
    content = f"k{delimiter}note\na{delimiter}x;y\n".encode() * 2
    path = tmp_path / name
    match path.suffix:
        case ".gz":
            # Two members are one file.
            content = gzip.compress(content[:5]) + gzip.compress(content[5:])
        case ".bz2":
            content = bz2.compress(content[:5]) + bz2.compress(content[5:])
        case ".zst":
            content = pa.Codec("zstd").compress(content, asbytes=True)
    path.write_bytes(content)
    again = {"k": "k", "note": "note"}
    row = {"k": "a", "note": "x;y"}
    assert rows(path) == rows(tmp_path) == [row, again, row]
    path.write_bytes(content[:-4] if path.suffix != ".TSV" else content)
    if path.suffix in (".gz", ".bz2", ".zst"):
        with pytest.raises(SourceError, match=r"cannot be read as csv: .*[Tt]runcated"):
            list(open_source(path).batches())


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("k,x\ncafé,1\n".encode("latin-1"), {}, r"not UTF-8, such as byte 0xe9 in line 2: say its"),
        ("café,x\na,1\n".encode("cp1252"), {}, r"not UTF-8.* in line 1: .*--csv-encoding"),
        (b"k,x\nb\x81,1\n", {"encoding": "cp1252"}, "is not text in cp1252 .*another encoding"),
        (b"k,x\na,1\n", {"encoding": "utf-16"}, r"is not text in utf-16 .*--csv-encoding"),
        ("k,x\na,1\n".encode("utf-16-le"), {}, "NUL characters.*--csv-encoding utf-16-le"),
        ("k,x\na,1\n".encode("utf-16"), {"encoding": "latin-1"}, "byte order mark of utf-16, but"),
        (codecs.BOM_UTF8 + b"k,x\n", {"encoding": "cp1252"}, "byte order mark of utf-8, but"),
    ],
)
def test_bytes_of_another_encoding_are_refused_by_the_options_name(
    content, options, message, tmp_path
):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(SourceError, match=rf"x\.csv' .*{message}"):
        rows(tmp_path / "x.csv", **options)


@pytest.mark.parametrize("encoding", ["", "cp1252"])
def test_bytes_of_another_encoding_further_below(encoding, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 512)
    monkeypatch.setattr(csv_files, "_START_BYTES", 64)
    (tmp_path / "x.csv").write_bytes(b"k,x\n" + b"a,1\n" * 1000 + b"caf\x81,1\n")
    with pytest.raises(SourceError, match=r"x\.csv' .*(not UTF-8|not text in cp1252).*--csv-enc"):
        rows(tmp_path / "x.csv", encoding=encoding)


def test_dates_of_other_formats(tmp_path):
    path = put(
        tmp_path / "x.csv",
        "day,at,iso\n31.12.2025,12/31/2025 1:05 PM,2025-12-31\n,,2025-01-01\n",
    )
    formats = ["%d.%m.%Y", "%m/%d/%Y %I:%M %p"]
    noon = dt.datetime(2025, 12, 31, 13, 5)  # noqa: DTZ001
    day = dt.date(2025, 12, 31)
    assert rows(path)[0] == {"day": "31.12.2025", "at": "12/31/2025 1:05 PM", "iso": day}
    midnight = dt.datetime(2025, 12, 31)  # noqa: DTZ001
    assert rows(path, date_formats=formats)[0] == {"day": midnight, "at": noon, "iso": day}
    files = Files(path, csv={"date_formats": formats}, types={"day": "date32", "iso": "date32"})
    found = [row for batch in open_source(files).batches() for row in batch.to_pylist()]
    assert found[0] == {"day": day, "at": noon, "iso": day}
    assert found[1] == {"day": None, "at": None, "iso": dt.date(2025, 1, 1)}


def test_words_for_null_and_what_is_null_without_them(tmp_path):
    path = put(tmp_path / "x.csv", 'n,t\n1,x\n,\nNA,NA\n-,-\n"","-"\n')
    plain = rows(put(tmp_path / "y.csv", "n,t\n1,x\n,\nNA,NA\n"))
    assert plain == [{"n": 1, "t": "x"}, {"n": None, "t": ""}, {"n": None, "t": "NA"}]
    assert [row["n"] for row in rows(path)] == ["1", "", "NA", "-", ""]
    assert [tuple(row.values()) for row in rows(path, null_words=["-"])] == [
        (1, "x"),
        (None, ""),
        (None, "NA"),
        (None, None),
        (None, None),
    ]
    assert [row["t"] for row in rows(path, null_words=["-", "", "NA"])] == ["x"] + [None] * 4


def test_a_decimal_comma_that_comes_late_is_refused_by_the_options_name(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 64)
    path = put(tmp_path / "x.csv", "k;x\n" + "a;1\n" * 100 + "a;1,5\n")
    with pytest.raises(SourceError, match=r"line 102: .*'1,5'; numbers with .*--csv-decimal ,"):
        rows(path)


def test_the_line_of_a_row_below_rows_that_are_skipped(tmp_path):
    text = "a \"title\n\n\nk;x\n\n'q\nr';1\nb;2;3\n"
    path = put(tmp_path / "x.csv", text, "utf-16")
    with pytest.raises(SourceError, match="line 8: Expected 2 columns, got 3"):
        rows(path, skip_rows=2, quote="'")
    with pytest.raises(SourceError, match=r"line 4: Expected 1 columns, got 2.*--csv-skip-rows"):
        rows(path, quote="", delimiter=";")
    unquoted = CsvOptions(delimiter=",", quote="")
    path = put(path, 'k,x\n"a,1\n"b,2,3\n')
    with pytest.raises(SourceError, match="line 3: Expected 2 columns, got 3"):
        rows(path, **unquoted.model_dump())


def test_options_count_in_the_fingerprint_and_go_into_the_recipe(tmp_path):
    path = put(tmp_path / "x.csv", "k;x\n1;2\n")
    about = [
        open_source(files).description()
        for files in (
            path,
            Files(path, csv=CsvOptions()),
            Files(path, csv={"delimiter": ";"}),
            Files(path, csv={"delimiter": ";", "null_words": ["2"]}),
        )
    ]
    assert about[0].fingerprint == about[1].fingerprint
    assert len({each.fingerprint for each in about}) == 3
    assert about[1].recipe == {"paths": [str(path)], "columns": None, "filter": None}
    assert about[3].recipe["csv"] == {"delimiter": ";", "null_words": ["2"]}
    options = CsvOptions(delimiter=";", null_words=("2",))
    assert data_of_recipe(about[3].recipe) == Files(path, csv=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "||"}, r"Files\(csv.delimiter='\|\|'\) cannot be used: it has to be one"),
        ({"delimiter": "é"}, "one ASCII character"),
        ({"quote": "\n"}, "not the end of a line"),
        ({"delimiter": '"'}, "delimiter and quote are both"),
        ({"encoding": "klingon"}, "there is no encoding of this name"),
        ({"encoding": "base64"}, "there is no encoding of this name"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"thousands": "_"}, "it has to be a dot, a comma, a space or an apostrophe"),
        ({"decimal": ";"}, "Input should be '.' or ','"),
        ({"skip_rows": -1}, "greater than or equal to 0"),
        ({"date_formats": ["dd.mm.yyyy"]}, "not a format of dates that can be read"),
        ({"date_formats": ["%d.%m.%Y %f"]}, "without fractions of a second"),
        ({"sep": ";"}, r"Files\(csv.sep=';'\) cannot be used: Extra inputs"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Files("x.csv", csv=options)


def test_options_for_files_of_another_format_are_refused(tmp_path):
    path = put(tmp_path / "x.jsonl", '{"a": 1}\n')
    for options in ({"csv": {"delimiter": ";"}}, {"excel": {"sheet": "a"}}):
        with pytest.raises(InputError, match=r"The files are json, and there are options for "):
            open_source(Files(path, **options))


def test_numbers_with_separated_thousands_are_numbers_where_it_is_said(tmp_path):
    text = "k;price;id;count\na;1.234,50;1.2;1.000\nb;;x;12\nc;-1.234.567;3;0\n"
    path = put(tmp_path / "x.csv", text)
    plain = rows(path, decimal=",")
    assert plain[0] == {"k": "a", "price": "1.234,50", "id": "1.2", "count": "1.000"}
    said = rows(path, decimal=",", thousands=".")
    assert [row["price"] for row in said] == [1234.5, None, -1234567.0]
    assert [row["count"] for row in said] == [1000, 12, 0]
    # Groups are of three digits: an ID is not a number with a point too many.
    assert [row["id"] for row in said] == ["1.2", "x", "3"]
    spaces = put(tmp_path / "y.csv", "a;b\n1\u00a0234,5;1\u202f000\n1 000;2\n")
    assert rows(spaces, decimal=",", thousands=" ") == [
        {"a": 1234.5, "b": 1000},
        {"a": 1000, "b": 2},
    ]


def test_a_number_of_another_form_that_comes_late_is_refused_by_the_options_name(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 400)
    path = put(tmp_path / "x.csv", "a;b\n" + "1.000;2\n" * 100 + "1.00;2\n")
    with pytest.raises(ColumnError, match=r"'a' of file .* holds '1\.00': look at --csv-thousands"):
        rows(path, delimiter=";", decimal=",", thousands=".")
    path = put(tmp_path / "y.csv", "a;b\n" + "1.000;2\n" * 100 + "1,5;2\n")
    with pytest.raises(ColumnError, match=r"does not fit int64.*Declare another type with --types"):
        rows(path, delimiter=";", decimal=",", thousands=".")


def test_a_header_with_delimiters_at_its_end_is_refused_in_a_sentence(tmp_path):
    path = put(tmp_path / "x.csv", "a,b,,\n1,2,,\n")
    with pytest.raises(
        SourceError, match=r"no names for its columns 3, 4 of 4: take away .*--csv-column-names"
    ):
        rows(path)
    named = rows(path, column_names=["a", "b", "c", "d"], skip_rows=1)
    assert named == [{"a": 1, "b": 2, "c": None, "d": None}]


@pytest.mark.parametrize("zone", [None, "Europe/Amsterdam"])
def test_a_time_of_the_day_is_not_dropped_where_a_date_is_declared(tmp_path, zone):
    day = put(tmp_path / "day.csv", "a\n31.12.2025\n")
    time = put(tmp_path / "time.csv", "a\n31.12.2025 00:00\n31.12.2025 13:05\n")
    formats = ["%d.%m.%Y", "%d.%m.%Y %H:%M"]

    def read(path):
        options = CsvOptions(date_formats=formats)
        source = open_source(Files(path, csv=options, types={"a": "date32"}))
        return [value for batch in source.batches() for value in batch["a"].to_pylist()]

    assert read(day) == [dt.date(2025, 12, 31)]
    with pytest.raises(ColumnError, match=r"holds 2025-12-31 13:05:00, which has a time"):
        read(time)
    # So it is for files of any format.
    times = pa.array([dt.datetime(2025, 12, 31), None], pa.timestamp("us", zone))  # noqa: DTZ001
    moved = pc.add(times, pa.scalar(dt.timedelta(hours=5)))
    for values, fits in ((times, zone is None), (moved, False)):
        pq.write_table(pa.table({"a": values}), tmp_path / "x.parquet")
        source = open_source(Files(tmp_path / "x.parquet", types={"a": "date32"}))
        if fits:
            assert next(source.batches())["a"].to_pylist() == [dt.date(2025, 12, 31), None]
        else:
            with pytest.raises(ColumnError, match="has a time of the day"):
                list(source.batches())
