"""What Arrow refuses in a CSV file is named by its line."""

import gzip
import io
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import SourceError
from partwise.sources.files import csv_files
from partwise.sources.files.csv_lines import line_of_row, with_line
from partwise.sources.opening import open_source

FIELDS = st.sampled_from(
    ["a", "bc", '"q"', '"x\ny"', '"two\n\n3,"', '"say ""hi"""', '5" pipe', '""', "é"]
)
PLAIN = st.sampled_from(["a", "bc", "a long value of some text"])


@dataclass(frozen=True)
class Text:
    """A CSV file with one row that does not fit, and the line in which that begins."""

    content: str
    line: int


@st.composite
def texts(draw, fields, end: str, bad: str) -> Text:
    header = "k,v"
    lines = [header]
    before = draw(st.lists(st.none() | st.tuples(fields, fields), max_size=40))
    after = draw(st.lists(st.tuples(fields, fields), max_size=3))
    lines += ["" if row is None else ",".join(row) for row in before]
    line = sum(text.count("\n") + 1 for text in lines) + 1
    lines += [bad, *(",".join(row) for row in after)]
    content = "\n".join(lines).replace("\n", end)
    return Text(content + draw(st.sampled_from(["", end])), line)


@given(
    packed=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    block=st.sampled_from([160, 8 << 20]),
    data=st.data(),
)
@settings(max_examples=150)
def test_a_row_of_other_columns_is_named_by_its_line(packed, end, block, data, tmp_path_factory):
    bad = data.draw(st.sampled_from(["one", "a,b,c", '"x\ny"', '"x\ny",2,3']))
    text = data.draw(texts(FIELDS if block > 160 else PLAIN, end, bad))
    content = data.draw(st.sampled_from(["", "\ufeff"])) + text.content
    path = tmp_path_factory.mktemp("csv") / ("x.csv.gz" if packed else "x.csv")
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    before = csv_files._BLOCK_BYTES
    csv_files._BLOCK_BYTES = block
    try:
        with pytest.raises(SourceError, match=rf"line {text.line}: Expected 2 columns") as caught:
            list(open_source(path).batches())
    finally:
        csv_files._BLOCK_BYTES = before
    assert str(path) in str(caught.value)


def test_a_value_that_does_not_convert_is_named_by_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 200)
    path = tmp_path / "x.csv"
    rows = ["k,v", '"x\ny",1', "", *("a,1" for _ in range(300)), "a,oops", "a,2"]
    path.write_text("\n".join(rows))
    with pytest.raises(SourceError, match=r"x\.csv'.*line 305: CSV conversion error.*'oops'"):
        list(open_source(path).batches())
    assert len(list(open_source(path, columns=["k"]).batches())) > 1


def test_other_messages_and_ends_of_lines():
    assert with_line("no row here", io.BytesIO()) == "no row here"
    assert line_of_row(io.BytesIO(b"a,b\r1,2\r3"), 3) == 3
    assert line_of_row(io.BytesIO(b'a\n"open\n1'), 9) == 3, "the file ends before"
