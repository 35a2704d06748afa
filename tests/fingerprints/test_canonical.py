import array
import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
import re
import threading
import types
import typing
import uuid
import zoneinfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from partwise.fingerprints.canonical import canonical_bytes


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point(typing.NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    start: int
    stop: int = 0


class Other(Span):
    pass


class Settings(BaseModel):
    rate: float = 0.1
    names: tuple[str, ...] = ()


class Plain:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("__private", "value")

    def __init__(self, value):
        self.value = value
        self.__private = value


DAY = datetime.datetime(2026, 3, 1, 12)  # noqa: DTZ001
DISTINCT = [
    *[None, True, False, 0, 1, -1, 255, 256, -128, 2**64, 0.0, -0.0, 1.0, 1j, float("nan"), ...],
    *["", "1", "True", "None", "\udc80", b"", b"1", bytearray(b"1"), memoryview(b"1")],
    *[(), [], {}, set(), frozenset(), (1,), [1], {1}, frozenset({1}), {1: None}, {None: 1}],
    *[("a", "bc"), ("ab", "c"), (("a",), "b"), ("a", ("b",)), {"a": {"b": 1}}, {"a": ("b", 1)}],
    *[range(3), slice(3), slice(0, 3), array.array("i", [1]), array.array("l", [1])],
    *[DAY, DAY.replace(tzinfo=datetime.UTC), DAY.replace(tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))],
    *[DAY.replace(fold=1), DAY.date(), DAY.time(), datetime.timedelta(1), datetime.UTC],
    *[decimal.Decimal("1.0"), decimal.Decimal("1.00"), uuid.UUID(int=1), pathlib.Path("1")],
    *[re.compile("a"), re.compile("a", re.IGNORECASE), re.compile(b"a")],
    *[Color.RED, Color.BLUE, Color, Point(1, 2), (1, 2), Span(1), Span(1, 1), Other(1)],
    *[Settings(), Settings(rate=0.2), Plain(1), Plain(2), Slotted(1), Slotted(2), object()],
    *[types.SimpleNamespace(a=1), collections.OrderedDict(a=1), {"a": 1}],
    *[collections.defaultdict(int, a=1), collections.defaultdict(str, a=1)],
    *[collections.deque([1]), collections.deque([1], 5), ValueError(1), TypeError(1)],
    *[int, np.int64, list[int], list[str], int | None, typing.Any, typing.Literal["a"]],
    *[np.int64(1), np.int32(1), np.float64(1), np.bool_(True), np.dtype("i4"), np.dtype("i8")],
    *[np.array([1, 2]), np.array([[1, 2]]), np.array([1, 2], "i4"), np.array([1.0, 2.0])],
    *[np.array([1, "1"], object), np.array([1, 1], object), np.array(["1", "2"]), np.zeros(0)],
    *[np.array(["2026-01-01"], "M8[D]"), np.array(["2026-01-01"], "M8[s]")],
    *[np.array([(1, 2.0)], "i4,f8"), np.random.default_rng(0), np.random.default_rng(1)],
    *[pa.array([1, None]), pa.array([1, 2]), pa.array([1, 2], pa.int32()), pa.array(["1", "2"])],
    *[pa.table({"a": [1]}), pa.table({"b": [1]}), pa.scalar(1), pa.int64(), pa.schema({"a": "i8"})],
    *[pa.table({"a": [1]}, metadata={"a": "b"}), pa.field("a", "i8", metadata={"a": "b"})],
    *[pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}, index=[1]), pd.DataFrame({"b": [1]})],
    *[pd.Series([1]), pd.Series([1], name="a"), pd.Series([1.0]), pd.Series(["1"])],
    *[pd.Categorical(["a"], ["a", "b"]), pd.Categorical(["a"], ["a", "b"], ordered=True)],
    *[pd.CategoricalDtype(["a", "b"]), pd.CategoricalDtype(["a", "b"], ordered=True)],
    *[collections.OrderedDict(b=1, a=2), collections.OrderedDict(a=2, b=1)],
    *[pd.Series(["a"], dtype="category"), pd.Series([[1], {"a": 2}]), pd.Index([1])],
    *[pd.MultiIndex.from_tuples([(1, "a")]), pd.Timestamp(DAY), pd.Timestamp(DAY, tz="UTC")],
    *[pd.Timestamp(1), pd.Timedelta(1), pd.NaT, pd.NA, pd.Period("2026-01"), pd.Interval(0, 1)],
    *[pd.Series(["x", null], dtype=object) for null in (None, float("nan"), pd.NA, pd.NaT)],
    *[pd.Index([None, None], dtype=object), pd.Index([None, float("nan")], dtype=object)],
    *[pl.DataFrame({"a": [1]}), pl.Series("a", [1]), pl.Series("b", [1])],
]


def test_different_values_have_different_bytes():
    seen = {}
    for value in DISTINCT:
        encoded = canonical_bytes(value)
        assert encoded == canonical_bytes(value)
        assert encoded not in seen, (value, seen[encoded])
        seen[encoded] = value


@given(st.dictionaries(st.integers() | st.text(), st.lists(st.floats()) | st.none()))
def test_the_order_of_a_dict_counts(value):
    turned = dict(reversed(value.items()))
    assert (canonical_bytes(turned) == canonical_bytes(value)) == (len(value) < 2)
    assert canonical_bytes(dict(value)) == canonical_bytes(value)


@given(st.lists(st.text()))
def test_the_order_of_a_set_does_not_count(values):
    roomy = {f"{number} of many" for number in range(1000)}
    filler = roomy - set(values)
    roomy.update(reversed(values))
    roomy -= filler  # equal to the other set, and laid out in another way
    assert canonical_bytes(roomy) == canonical_bytes(set(values))


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    ),
)
def test_equal_bytes_mean_equal_values(one, other):
    assert (canonical_bytes(one) == canonical_bytes(other)) == (
        one == other and _shape(one) == _shape(other)
    )


def _shape(value):
    match value:
        case dict():
            return {key: _shape(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(_shape, value))
    return type(value)


@given(st.lists(st.none() | st.text(), min_size=1), st.data())
def test_arrow_is_compared_by_value(values, data):
    cut = data.draw(st.integers(0, len(values)))
    column = pa.array(values, pa.string())
    padded = pa.array(["x", *values, "y"], pa.string())
    expected = canonical_bytes(column)
    assert canonical_bytes(padded.slice(1, len(values))) == expected
    assert canonical_bytes(padded.take(pa.array(range(1, len(values) + 1)))) == expected
    table = pa.table({"a": column})
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert canonical_bytes(pieces) == canonical_bytes(table)


def test_the_codes_of_arrow_dictionaries_count_and_their_chunks_do_not():
    one = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), ["a", "b"])
    other = pa.DictionaryArray.from_arrays(pa.array([2, 0, None]), ["b", "unused", "a"])
    assert canonical_bytes(one) != canonical_bytes(other)
    chunks = pa.chunked_array([one, one.slice(1)])
    assert canonical_bytes(pa.chunked_array([one.slice(0, 2), one.slice(2), one.slice(1)])) == (
        canonical_bytes(chunks)
    )


@pytest.mark.parametrize("kind", [pa.string_view(), pa.list_(pa.string_view())])
def test_views_with_nulls_are_compared_by_value(kind):
    values = ["a", None, "a text of more than twelve bytes"]
    rows = [values, None, []] if pa.types.is_list(kind) else values
    column = pa.array(rows, kind)
    pieces = pa.chunked_array([column.slice(0, 1), pa.array(rows[1:], kind)])
    assert canonical_bytes(column) == canonical_bytes(pieces.combine_chunks())
    assert canonical_bytes(column) == canonical_bytes(pieces)
    assert canonical_bytes(column) != canonical_bytes(pa.array([*rows[:2], None], kind))


def test_what_lies_under_nulls_does_not_count():
    buffers = [pa.array([1, None, 3]).buffers()[0]]
    one = pa.Array.from_buffers(pa.int64(), 3, [*buffers, pa.py_buffer(np.array([1, 2, 3]))])
    other = pa.Array.from_buffers(pa.int64(), 3, [*buffers, pa.py_buffer(np.array([1, 9, 3]))])
    assert canonical_bytes(one) == canonical_bytes(other)


def test_arrays_are_compared_by_content_and_order_in_memory():
    array_ = np.arange(6).reshape(2, 3)
    assert canonical_bytes(np.asfortranarray(array_)) != canonical_bytes(array_)
    assert canonical_bytes(np.arange(12).reshape(2, 6)[:, ::2] // 2) == canonical_bytes(array_)


def test_a_value_may_contain_itself():
    def ring(value):
        ring = [value]
        ring.append(ring)
        return ring

    assert canonical_bytes(ring(1)) == canonical_bytes(ring(1)) != canonical_bytes(ring(2))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda: None, "function"),
        ([threading.Lock()], "_thread.lock"),
        ({"a": threading.RLock()}, "_thread.RLock"),
        (Plain(iter([])), "list_iterator"),
        (np.random.RandomState(0), "numpy.random.mtrand.RandomState"),
        (np.ma.array([1], mask=[True]), "numpy.ma.MaskedArray"),
        (pl.col("a"), "polars.expr.expr.Expr"),
        (pl.LazyFrame({"a": [1]}), "polars.lazyframe.frame.LazyFrame"),
    ],
)
def test_the_type_without_canonical_bytes_is_named(value, name):
    with pytest.raises(TypeError, match=f"A value of type {re.escape(name)} cannot be compared"):
        canonical_bytes(value)


def test_endless_nesting_is_refused():
    value: list = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(TypeError, match="nested too deeply"):
        canonical_bytes(value)
