"""One sequence of bytes for equal values, the same in every process.

`pickle` writes sets in the order in which they were filled and arrays as they lie in memory, so its
bytes do not show whether a value has changed. These do: typed and length-prefixed, so that 1, "1",
1.0 and True differ, with sets sorted and arrays by their content. The order of a dict's entries
counts, as code can see it.
"""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import hashlib
import pathlib
import re
import struct
import types
import uuid
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from partwise.fingerprints.first_places import first_place
from partwise.renamed import first_names

_ABSENT = object()
# CPython's Py_TPFLAGS_HEAPTYPE, which classes have that are not static ones of C.
_HEAP_TYPE = 1 << 9


def canonical_bytes(value: Any) -> bytes:
    """Return bytes that are equal for equal values in any process, and differ for others.

    There are such bytes for numbers, strings, dates, containers, dataclasses, pydantic models,
    arrays, frames and tables of numpy, pyarrow, pandas and polars, classes (by name), and objects
    of Python classes whose attributes have them. Order matters, but for sets.

    Raises:
        TypeError: If a value in it has none, as a function, lock or open file; it names the type.

    Example:
        >>> canonical_bytes({"a", "b"}) == canonical_bytes({"b", "a"})
        True
    """
    try:
        return CanonicalEncoder().encode(value)
    except RecursionError:
        raise TypeError("The value is nested too deeply to be compared.") from None


def frame(tag: str, *parts: bytes | str) -> bytes:
    """Join parts so that no other parts give the same bytes."""
    pieces = [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]
    lengths = struct.pack(f">{len(pieces) + 1}Q", len(pieces), *map(len, pieces))
    return b"".join([tag.encode(), b"\0", lengths, *pieces])


class CanonicalEncoder:
    """Encodes values; a subclass says what becomes of classes and of what is not a plain value."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def encode(self, value: Any) -> bytes:
        """Return the canonical bytes of a value."""
        plain = _plain(value)
        if plain is not None:
            return plain
        # A value that contains itself is named by how far up it stands: its address differs in
        # every process.
        for distance, outer in enumerate(reversed(self._open)):
            if outer is value:
                return frame("back", str(distance))
        self._open.append(value)
        try:
            return self._nested(value)
        finally:
            self._open.pop()

    def reference(self, cls: type) -> bytes:
        """Encode a class."""
        return frame("class", first_place(cls.__module__), cls.__qualname__)

    def other(self, value: Any) -> bytes:
        """Encode, or refuse, what has no content of its own that could be compared."""
        raise TypeError(f"A value of type {type_name(value)} cannot be compared between processes.")

    def instance(self, value: Any) -> bytes:
        """Encode an object whose state is all in Python attributes."""
        return frame("instance", self.encode(type(value)), *self._members(_state(value)))

    def member(self, name: str, value: Any) -> bytes:
        """Encode one attribute of an object."""
        del name
        return self.encode(value)

    def _nested(self, value: Any) -> bytes:
        kind = type(value)
        if isinstance(value, type):
            return self.reference(value)
        if kind in (list, tuple):
            return frame(kind.__name__, *map(self.encode, value))
        if kind in (set, frozenset):
            # By their bytes: the elements need no order of their own, and text hashes differently
            # in every process.
            return frame(kind.__name__, *sorted(map(self.encode, value)))
        if kind is dict or kind is types.MappingProxyType:
            return frame("dict", *self._entries(value))
        if kind is slice:
            return frame("slice", *map(self.encode, (value.start, value.stop, value.step)))
        if isinstance(value, enum.Enum):
            return frame("enum", self.encode(kind), value.name or "", self.encode(value.value))
        if isinstance(value, types.GenericAlias | types.UnionType) or kind.__module__ == "typing":
            return self._annotation(value)
        match kind.__module__.partition(".")[0]:
            case "numpy":
                return self._numpy(value)
            case "pyarrow":
                return self._arrow(value)
            case "pandas":
                return self._pandas(value)
            case "polars":
                return self._polars(value)
        return self._structured(value)

    def _structured(self, value: Any) -> bytes:
        kind = type(value)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            values = {name: getattr(value, name, _ABSENT) for name in names}
            values = _by_first_names(kind, values)
            return frame("dataclass", self.encode(kind), *self._members(values))
        if isinstance(value, BaseModel):
            fields = {name: value.__dict__.get(name, _ABSENT) for name in kind.model_fields}
            # A setting that a later version added, and nobody gave, is as if it were not there.
            for name, default in getattr(kind, "ADDED_SETTINGS", {}).items():
                if fields.get(name) == default:
                    del fields[name]
            fields = _by_first_names(kind, fields)
            fields |= (value.__pydantic_extra__ or {}) | (value.__pydantic_private__ or {})
            return frame("model", self.encode(kind), *self._members(fields))
        if isinstance(value, BaseException):
            return frame("exception", self.encode(kind), self.encode(value.args))
        if kind is types.SimpleNamespace:
            return frame("namespace", *self._members(vars(value)))
        if isinstance(value, collections.deque):
            return frame("deque", self.encode(value.maxlen), *map(self.encode, value))
        base: Any
        for base in (dict, list, tuple, set, frozenset, str, bytes, int, float):
            if isinstance(value, base):
                content = self.encode(base(value))
                state = dict(getattr(value, "__dict__", {}))
                if isinstance(value, collections.defaultdict):
                    state["default_factory"] = value.default_factory
                return frame("derived", self.encode(kind), content, *self._members(state))
        if kind is object:
            return frame("object")
        if _has_hidden_state(kind):
            return self.other(value)
        return self.instance(value)

    def _entries(self, value: Any) -> list[bytes]:
        return [frame("", self.encode(key), self.encode(item)) for key, item in value.items()]

    def _members(self, values: dict[str, Any]) -> list[bytes]:
        return [
            frame(name, self.member(name, value))
            for name, value in values.items()
            if value is not _ABSENT
        ]

    def _annotation(self, value: Any) -> bytes:
        arguments = getattr(value, "__args__", None)
        if isinstance(arguments, tuple):
            origin = getattr(value, "__origin__", type(value))
            metadata = getattr(value, "__metadata__", ())
            return frame("type", *map(self.encode, (origin, *arguments, *metadata)))
        return frame("type", repr(value))

    def _numpy(self, value: Any) -> bytes:
        import numpy as np

        if isinstance(value, np.generic):
            return self._numpy(np.asarray(value))
        if isinstance(value, np.dtype):
            return frame("dtype", repr(np.lib.format.dtype_to_descr(value)))
        if isinstance(value, np.random.Generator):
            return frame("generator", self.encode(dict(value.bit_generator.state)))
        if type(value) not in (np.ndarray, np.memmap):
            return self._structured(value)
        # Sums differ in their last bits with the order in memory; copies keep that of columns.
        by_column = ["by column"] if value.flags.fnc else []
        dtype = repr(np.lib.format.dtype_to_descr(value.dtype))
        head = (dtype, repr(value.shape), *by_column)
        if value.dtype.hasobject:
            return frame("array", *head, *map(self.encode, value.ravel().tolist()))
        content: Any = (
            np.ascontiguousarray(value).reshape(-1).view(np.uint8) if value.nbytes else b""
        )
        return frame("array", *head, hashlib.sha256(content).digest())

    def _arrow(self, value: Any) -> bytes:
        import pyarrow as pa

        if isinstance(value, pa.Table | pa.RecordBatch):
            columns = map(self.encode, value.columns)
            return frame("table", self._arrow(value.schema), *columns)
        if isinstance(value, pa.Array | pa.ChunkedArray):
            return frame("column", *_column_digests(value))
        if isinstance(value, pa.Scalar):
            return frame("scalar", str(value.type), self.encode(value.as_py()))
        if isinstance(value, pa.DataType):
            return frame("arrow", "type", str(value))
        if isinstance(value, pa.Field):
            notes = self.encode(dict(value.metadata or {}))
            return frame("arrow", value.name, str(value.type), str(value.nullable), notes)
        if isinstance(value, pa.Schema):
            notes = self.encode(dict(value.metadata or {}))
            return frame("arrow", "schema", *map(self._arrow, value), notes)
        return self.other(value)

    def _pandas(self, value: Any) -> bytes:
        import pandas as pd

        if isinstance(value, pd.DataFrame):
            columns = [value.iloc[:, place].array for place in range(value.shape[1])]
            parts = (value.columns, value.index, *columns)
            return frame("frame", *map(self._pandas_values, parts), self.encode(value.attrs))
        if isinstance(value, pd.Series):
            parts = (self.encode(value.name), self._pandas_values(value.index))
            return frame("series", *parts, self._pandas_values(value.array))
        if isinstance(value, pd.Index | pd.api.extensions.ExtensionArray):
            return self._pandas_values(value)
        if value is pd.NA or value is pd.NaT:
            return frame("pandas", str(value))
        if isinstance(value, pd.Timestamp | pd.Timedelta | pd.Period | pd.Interval):
            unit = getattr(value, "unit", None) or getattr(value, "freqstr", "")
            return frame("pandas", type(value).__name__, str(value), str(unit))
        if isinstance(value, pd.CategoricalDtype):
            categories: Any = value.categories
            known = b"" if categories is None else self._pandas_values(categories)
            return frame("pandas", "category", known, str(value.ordered))
        if isinstance(value, pd.api.extensions.ExtensionDtype):
            return frame("pandas", repr(value))
        return self._structured(value)

    def _pandas_values(self, values: Any) -> bytes:
        import pandas as pd
        import pyarrow as pa

        if isinstance(values, pd.MultiIndex):
            levels = [values.get_level_values(place) for place in range(values.nlevels)]
            return frame("levels", *map(self._pandas_values, levels))
        head: list[bytes | str] = [str(values.dtype)]
        if isinstance(values, pd.Index):
            head.append(self.encode(values.name))
            values = values.array
        if isinstance(values, pd.Categorical):
            return frame("values", *head, self.encode(values.dtype), self.encode(values.codes))
        if head[0] == "object":
            # For Arrow these are the same null as NaN, and code can tell them apart.
            nulls = {n: str(each) for n, each in enumerate(values) if each is None or each is pd.NA}
            head += [self.encode(nulls)] if nulls else []
        try:
            return frame("values", *head, *_column_digests(pa.array(values, from_pandas=True)))
        except (pa.ArrowException, TypeError, ValueError):
            return frame("values", *head, *map(self.encode, values))

    def _polars(self, value: Any) -> bytes:
        import polars as pl

        if isinstance(value, pl.DataFrame):
            return frame("polars", self._arrow(value.to_arrow()))
        if isinstance(value, pl.Series):
            return frame("polars", value.name, self._arrow(value.to_arrow()))
        return self.other(value)


def type_name(value: Any) -> str:
    """Name the type of a value as a person would import it."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _plain(value: Any) -> bytes | None:
    """Encode a value that holds no other; None if it does."""
    kind = type(value)
    if kind in (bool, types.NoneType, types.EllipsisType, types.NotImplementedType):
        return frame(str(value))
    if kind is str:
        return frame("str", value)
    if kind is int:
        return frame("int", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind is float:
        return frame("float", struct.pack(">d", value) if value == value else "nan")
    if kind is complex:
        return frame("complex", repr(value))
    if kind in (bytes, bytearray):
        return frame(kind.__name__, bytes(value))
    if kind is memoryview or kind is array.array:
        return frame(kind.__name__, repr(getattr(value, "typecode", "")), value.tobytes())
    if kind in (datetime.datetime, datetime.time):
        zone = getattr(value.tzinfo, "key", None) or value.tzname() or ""
        return frame(kind.__name__, value.isoformat(), str(value.fold), zone)
    if kind in (datetime.date, datetime.timedelta, datetime.timezone, range, uuid.UUID):
        return frame(kind.__name__, repr(value))
    if kind in (decimal.Decimal, fractions.Fraction) or isinstance(value, pathlib.PurePath):
        return frame(kind.__name__, str(value))
    if kind is re.Pattern:
        return frame("pattern", repr(value.pattern), str(value.flags))
    return None


def _column_digests(column: Any) -> Iterable[bytes]:
    """Hash an Arrow column by its type and values, however they are chunked."""
    import numpy as np
    import pyarrow as pa

    yield str(column.type).encode()
    if pa.types.is_dictionary(column.type):
        # Codes are values too. Of several chunks these are those of one dictionary for all.
        whole = column.unify_dictionaries() if isinstance(column, pa.ChunkedArray) else column
        chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
        indices = pa.chunked_array([chunk.indices for chunk in chunks], column.type.index_type)
        dictionary = chunks[0].dictionary if chunks else pa.array([], column.type.value_type)
        yield from _column_digests(dictionary)
        yield from _column_digests(indices)
        return
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    whole = pa.chunked_array(chunks, type=column.type).combine_chunks()
    for chunk in whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]:
        try:
            # Taking rows writes zeros under the nulls.
            clean = chunk.take(pa.array(np.arange(len(chunk)))) if chunk.null_count else chunk
        except pa.ArrowNotImplementedError:
            # Of views, also within others, Arrow takes none.
            yield hashlib.sha256(repr(chunk.to_pylist()).encode()).digest()
            continue
        batch = pa.RecordBatch.from_arrays([clean], names=[""])
        yield hashlib.sha256(batch.serialize()).digest()


def _by_first_names(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an object of partwise's own by the names that its fields had first."""
    first = first_names(kind.__name__) if kind.__module__.startswith("partwise.") else {}
    return {first.get(name, name): value for name, value in values.items()}


def _has_hidden_state(kind: type) -> bool:
    """Tell whether a class holds something that is neither in its `__dict__` nor in its slots."""
    for base in kind.__mro__:
        # A class written in C is static, or has methods of its own that are written in C.
        if base is not object and (
            not base.__flags__ & _HEAP_TYPE
            or isinstance(vars(base).get("__new__"), types.BuiltinFunctionType)
            or any(getattr(item, "__objclass__", None) is base for item in _methods_in_c(base))
        ):
            return True
    return False


def _methods_in_c(kind: type) -> list[Any]:
    kinds = (types.MethodDescriptorType, types.WrapperDescriptorType)
    return [item for item in vars(kind).values() if isinstance(item, kinds)]


def _state(value: Any) -> dict[str, Any]:
    state = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                place = f"_{base.__name__.lstrip('_')}{name}" if private else name
                state[place] = getattr(value, place, _ABSENT)
    return state
