"""Times and whole numbers of JSON lines: as they were written, or refused."""

import datetime as dt
from decimal import Decimal

import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError
from partwise.sources.files import formats

UTC = dt.UTC
WHEN = dt.datetime(2024, 6, 30, 23, 30)  # noqa: DTZ001


def read(tmp_path, *values, name="t"):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"{name}": {value}}}\n' for value in values))
    return DataConnector.from_sources(str(path)).to_arrow()[name]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2024-07-01T01:30:00+02:00", "2024-06-30T23:30:00Z"], [WHEN.replace(tzinfo=UTC)] * 2),
        (["2024-06-30 23:30:00"], [WHEN]),
        (["2024-06-30"], [dt.datetime(2024, 6, 30)]),  # noqa: DTZ001
        (["2024-06-30 23:30:00", "2024-06-30T23:30:00Z"], None),
    ],
)
def test_times_keep_their_zone_and_both_kinds_are_text(tmp_path, texts, expected):
    assert read(tmp_path, *(f'"{text}"' for text in texts)).to_pylist() == (expected or texts)


def test_times_within_lists_and_structs_keep_their_zone(tmp_path):
    column = read(tmp_path, '{"a": [{"b": "2024-07-01T01:30:00+02:00"}], "c": "x"}', "null")
    assert column.to_pylist() == [{"a": [{"b": WHEN.replace(tzinfo=UTC)}], "c": "x"}, None]


def test_a_zone_in_a_later_block_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_TEXT_BLOCK_BYTES", 64)
    with pytest.raises(ColumnError, match=r"'t' .* does not fit timestamp\[s\]: .* no zone offset"):
        read(tmp_path, *['"2024-06-30 23:30:00"'] * 9, '"2024-06-30T23:30:00Z"')


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([2**64 - 1, 2**64 - 2, 7], int),
        ([2**64, -(2**63) - 1, None], Decimal),
        ([2**63, 1.5], float),
        ([1e300, 2.0], float),
    ],
)
def test_whole_numbers_beyond_int64_stay_exact(tmp_path, numbers, kind):
    texts = ["null" if number is None else repr(number) for number in numbers]
    found = read(tmp_path, *texts).to_pylist()
    assert found == [None if number is None else kind(number) for number in numbers]
    assert {type(value) for value in found if value is not None} == {kind}
