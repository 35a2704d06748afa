"""Excel workbooks as sources: sheets, headers, types by values, and what is refused."""

import base64
import datetime as dt
import logging
import sys
import zipfile
import zlib

import pyarrow as pa
import pytest
import xlsxwriter
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import SourceError
from partwise.sources.files import excel_files
from partwise.sources.files.file_set import Files
from partwise.sources.opening import open_source
from partwise.testing import SourceContract
from tests.sources.reopening import reopened

EPOCH = dt.datetime(2020, 1, 1)  # noqa: DTZ001
TEXTS = st.text("abc é€☃ .-#'\"&<>", min_size=1, max_size=9).filter(lambda text: text.strip())
DAYS = st.integers(0, 9999).map(lambda number: (EPOCH + dt.timedelta(number)).date())
SHARES = st.integers(-(10**9), 10**9).map(lambda number: number + 0.125)
VALUES = [TEXTS, st.integers(-(2**50), 2**50), SHARES, st.booleans(), DAYS]


OLD_WORKBOOK = (
    # Of xlwt: sheets "2026" of three columns and "notes". Nothing here writes this format.
    "c-rk)O=uHA6#izjX_J!X&sJ!K5(-wWt!NeT(nbr~gIKB;#R{65JxH5PNpp!8t2IYK5Cn^tLOpn?dhrJp^yWc`=s^"
    "&KM30^X6%TFK_g*$Jtq~f~U}e8$-n@A;U*=`r{O!KVh4ORv+6!2P0l2VidC^c|Q<S`=LJ(AMS*(_F4<*aNx`Nk3f"
    "oyQ&ar4VYjv>dp01bEb=Olp-lult1!%5SK)DeT?Lrk#`{Ys~~r{N|gKib5vu*kC_H;B9=ZJ&tTFP1AJ`>AbSokT7"
    "=+`Z49$0xK-sq>Rmcp#j2V%ddOyx@6!;i@XOb>l$lTx?>URdnb+%!5KYWSB;Z%K_X%6ObYFCKA2zcpfbj?s<H*BE"
    "Xl@x_%aM?De%Pkp25gd*g5H9tz@W`!!7mreU2?JejlbVTaB&I{J3@?aiVYLD|LKFq3IxY7u*6l{bh9Q|V;NZ~^gH"
    "hD)&tV~W^^zfG8w4JJ*KtVUuoooV9TUv`V&iru1F){u{690AcovXX-2?BeauuaAt4L{E!lT26@KIkK6ZhJ}mFAhK"
    "U-TxHoUjO`*X$**n_y<KDrc}{uPNUN<Jnvph_rM8Ru*)4bz-BO`%B|ZD;=);ce$LKcF7lsPwTNd6%=g>*#TAcX&%"
    "%Dg0sM#BgN6}KQ>>cO5$hKd0ACDHaeYfnxGJqvsZ-kJ@Vu?pbl}nmER?Jpa*h<(u9#5%%_AZR;IcAM&%x0ceg{KK"
    "mw|ScIW`$SmbwCT_J~yJB@+ayMVO5svHNvWDgx!2+;!#DlQFY+JfddB)960!QpyWPSymRZtHv+lyHQL{GmMASdpG"
    "p2(97B?xG`&(Dgh_b{nVRO$Mz~e!x6~RrrSFA|<J5Z!;}{b^#%rFxbZ1wU|7Xp_;GbJUwf4VUi=ThF{~wB+2$2"
)
OPEN_DOCUMENT = """<office:document-content
 xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">
<office:body><office:spreadsheet><table:table table:name="2026">
<table:table-row>
<table:table-cell office:value-type="string"><text:p>store</text:p></table:table-cell>
<table:table-cell office:value-type="string"><text:p>day</text:p></table:table-cell>
<table:table-cell office:value-type="string"><text:p>sales</text:p></table:table-cell>
</table:table-row>
<table:table-row table:number-rows-repeated="REPEATED">
<table:table-cell office:value-type="string"><text:p>Köln</text:p></table:table-cell>
<table:table-cell office:value-type="date" office:date-value="2026-01-31"/>
<table:table-cell office:value-type="float" office:value="1.5"/>
<table:table-cell table:number-columns-repeated="16380"/>
</table:table-row>
<table:table-row table:number-rows-repeated="1048570"><table:table-cell/></table:table-row>
</table:table></office:spreadsheet></office:body></office:document-content>"""


MANIFEST = """<?xml version="1.0"?>
<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">
<manifest:file-entry manifest:full-path="/"
 manifest:media-type="application/vnd.oasis.opendocument.spreadsheet"/></manifest:manifest>"""


def write_open_document(path, repeated):
    content = OPEN_DOCUMENT.replace("\n", "").replace("REPEATED", str(repeated))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        parts.writestr("content.xml", content)
        parts.writestr("META-INF/manifest.xml", MANIFEST)
    return path


def column(values):
    return st.lists(st.none() | values, min_size=5, max_size=5)


def write(path, sheets):
    """Write a workbook: by the name of a sheet its rows, or cells as (row, column, value)."""
    with xlsxwriter.Workbook(path) as book:
        formats = {
            dt.datetime: book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}),
            dt.date: book.add_format({"num_format": "yyyy-mm-dd"}),
            dt.time: book.add_format({"num_format": "hh:mm:ss"}),
            dt.timedelta: book.add_format({"num_format": "[h]:mm:ss"}),
        }
        for name, content in sheets.items():
            sheet = book.add_worksheet(name)
            sheet.default_date_format = None
            for place, row in enumerate(content):
                cells = [row] if isinstance(row, tuple) else [(place, *c) for c in enumerate(row)]
                for at, column, value in cells:
                    if value is None:
                        continue
                    if type(value) is str and not value.startswith("="):
                        sheet.write_string(at, column, value)
                    else:
                        sheet.write(at, column, value, formats.get(type(value)))
    return path


def rows(path, types=None, **options):
    source = open_source(Files(path, excel=options, types=types or {}))
    batches = list(source.batches())
    assert all(batch.schema.equals(source.schema) for batch in batches)
    return pa.Table.from_batches(batches, source.schema).to_pylist()


class TestExcel(SourceContract):
    def data(self, table, folder):
        columns = table.to_pydict().values()
        content = [table.column_names, *map(list, zip(*columns, strict=True))]
        return write(folder / "x.xlsx", {"s": content})


@given(
    columns=st.lists(st.sampled_from(VALUES).flatmap(column), min_size=1, max_size=5),
    above=st.integers(0, 3),
    left=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(columns, above, left, tmp_path_factory):
    names = [f"column {place}" for place in range(len(columns))]
    cells = [
        (above + at, left + place, value)
        for place, (name, values) in enumerate(zip(names, columns, strict=True))
        for at, value in enumerate([name, *values])
    ]
    path = write(tmp_path_factory.mktemp("excel") / "x.xlsx", {"s": cells})
    # Rows without a value are none.
    expected = [row for row in zip(*columns, strict=True) if any(v is not None for v in row)]
    if expected:
        assert [tuple(row.values()) for row in rows(path, skip_rows=above)] == expected
        assert list(rows(path)[0]) == names


def test_types_by_the_values_of_a_column(tmp_path):
    noon, midnight = EPOCH.replace(hour=12), EPOCH
    path = write(
        tmp_path / "x.xlsx",
        {
            "s": [
                ["at", "day", "time", "took", "n", "x", "mixed", "none", "flag", "error"],
                [
                    noon,
                    EPOCH.date(),
                    dt.time(3, 4),
                    dt.timedelta(hours=30),
                    3,
                    1,
                    "a",
                    None,
                    True,
                    1,
                ],
                [midnight, None, None, None, 4, 1.5, 2, None, None, "=NA()"],
                [None, None, None, None, None, None, EPOCH.date(), None, False, None],
            ]
        },
    )
    source = open_source(path)
    assert [str(field.type) for field in source.schema] == [
        *("timestamp[us]", "date32[day]", "time64[us]", "duration[us]", "int64", "double"),
        *("string", "null", "bool", "int64"),
    ]
    first, second, third = rows(path)
    assert list(first.values()) == [
        *(noon, EPOCH.date(), dt.time(3, 4), dt.timedelta(hours=30)),
        *(3, 1.0, "a", None, True, 1),
    ]
    assert (second["at"], second["mixed"], third["mixed"]) == (midnight, "2", "2020-01-01")
    texts = rows(path, types={"n": "string", "x": "string", "flag": "string"})
    assert [texts[1]["n"], texts[1]["x"], texts[0]["flag"]] == ["4", "1.5", "true"]
    assert rows(path, types={"n": "double"})[0]["n"] == 3.0


def test_a_sheet_by_name_and_what_was_chosen_is_told(tmp_path, caplog):
    path = write(tmp_path / "x.xlsx", {"notes": [["a"], [1]], "2026": [["b"], [2]]})
    with caplog.at_level(logging.INFO):
        assert rows(path) == [{"a": 1}]
        assert rows(path, sheet="2026") == [{"b": 2}]
    assert {record.getMessage() for record in caplog.records} == {
        f"Reading {str(path)!r} from its first sheet, 'notes'."
    }
    with pytest.raises(SourceError, match=r"has no sheet '2025': there are 'notes', '2026'"):
        open_source(Files(path, excel={"sheet": "2025"}))
    recipe = open_source(Files(path, excel={"sheet": "2026"})).description().recipe
    assert reopened(recipe).schema.names == ["b"]


def test_titles_above_the_header_and_names_in_its_place(tmp_path):
    path = write(
        tmp_path / "x.xlsx", {"s": [["Sales of 2026"], [], ["k", "n"], ["a", 1], [], ["-", 2]]}
    )
    with pytest.raises(SourceError, match=r"Sheet 's' of .* values in column B.*--excel-skip-rows"):
        open_source(path)
    for above in (1, 2):
        assert rows(path, skip_rows=above) == [{"k": "a", "n": 1}, {"k": "-", "n": 2}]
    named = rows(path, skip_rows=3, column_names=["key", "x"], null_words=["-"])
    assert named == [{"key": "a", "x": 1}, {"key": None, "x": 2}]
    with pytest.raises(SourceError, match="has 2 columns, and column_names has 1"):
        rows(path, skip_rows=3, column_names=["key"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no workbook", "x.xlsx' cannot be read as excel"),
        (b"\xd0\xcf\x11\xe0 and more", "if it has a password, save it without one"),
        ([["a", "a"], [1, 2]], "more than one column named 'a'"),
        ([], "Sheet 's' of file .* is empty"),
        ([["a"]], "The source has no rows"),
    ],
)
def test_workbooks_that_cannot_be_read(content, message, tmp_path):
    path = tmp_path / "x.xlsx"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        write(path, {"s": content})
    with pytest.raises(SourceError, match=message):
        open_source(path)


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    far = write(tmp_path / "far.xlsx", {"a": [["a"], [1]], "b": [["k"], (1_048_575, 100, 1)]})
    assert rows(far, sheet="a") == [{"a": 1}]
    with pytest.raises(SourceError, match=r"far\.xlsx' is too large .* 16,777,216 cells"):
        rows(far, sheet="b")
    packed = tmp_path / "packed.xlsx"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("xl/worksheets/sheet1.xml", bytes(300 << 20))
    with pytest.raises(SourceError, match=r"packed\.xlsx' is too large .* 256 MiB unpacked"):
        rows(packed)
    monkeypatch.setattr(excel_files, "MOST_BYTES", 100)
    with pytest.raises(SourceError, match="is too large"):
        rows(far)


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "x.xlsx", {"s": [["a"], [1]]})
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(SourceError, match=r"pip install 'partwise\[excel\]', here and on the work"):
        open_source(path)


def test_a_folder_with_a_workbook_that_is_open(tmp_path):
    for number in range(2):
        write(tmp_path / f"{number}.xlsx", {"s": [["k", "n"], ["a", number or None]]})
    (tmp_path / "~$0.xlsx").write_bytes(b"owner")
    assert rows(tmp_path) == [{"k": "a", "n": None}, {"k": "a", "n": 1}]


def test_workbooks_of_older_excel_and_of_opendocument_are_read_as_well(tmp_path):
    first = {"store": "Köln", "day": dt.date(2026, 1, 31), "sales": 1.5}
    old = tmp_path / "old.xls"
    old.write_bytes(zlib.decompress(base64.b85decode(OLD_WORKBOOK)))
    assert rows(old) == [first, {"store": "Bonn", "day": dt.date(2026, 2, 1), "sales": 2.0}]
    with pytest.raises(SourceError, match="no sheet '2025': there are '2026', 'notes'"):
        rows(old, sheet="2025")
    # What LibreOffice repeats to the end of a sheet is empty, and no row.
    assert rows(write_open_document(tmp_path / "x.ods", 2)) == [first, first]
    with pytest.raises(SourceError, match=r"far\.ods' is too large"):
        rows(write_open_document(tmp_path / "far.ods", 10_000_000))
