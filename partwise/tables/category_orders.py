"""One dictionary of the values of several, in the order that all of them declare.

Files declare ordered categories each for itself: low < high, and low < mid < high. Where their
orders together leave one order of all values, it is that of the joined dictionary. Where they
contradict each other, or do not say which of two values comes first, it has no order.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PAIRS = b"partwise.pairs"
"""Of a field whose dictionary does not have its values in their order: which come before which."""
_BITS = 32
"""Of each of two places that are one number."""


class GrowingDictionary:
    """Distinct values, in the order in which they were met, and what is known of their own order.

    `ordered`: whether the dictionaries that are met are to have an order.
    """

    def __init__(self, values: pa.Array, *, ordered: bool) -> None:
        self.values = values
        self._ordered = ordered
        self._pairs = np.empty(0, np.int64)

    def places(self, dictionary: pa.Array) -> pa.Array:
        """Return where values stand; those that are new are put behind the others."""
        plain = dictionary.cast(self.values.type)
        places = pc.index_in(plain, value_set=self.values)
        if places.null_count:
            new = plain.filter(places.is_null()).drop_null().unique()
            self.values = pa.concat_arrays([self.values, new])
            # A null in a dictionary is a null of the column.
            places = pc.index_in(plain, value_set=self.values, skip_nulls=True)
        return places

    def learn_order(self, places: pa.Array) -> None:
        """Learn that the values at these places follow each other in a dictionary."""
        if self._ordered:
            # One that stands there twice has the first of its places.
            known = places.drop_null().unique().to_numpy().astype(np.int64)
            self._learn(known[:-1], known[1:])

    def learn_field(self, field: pa.Field, values: pa.Array) -> None:
        """Learn what the `field` of another one, with its values, says."""
        if not field.type.ordered:
            self.forget_order()
        places = self.places(values)
        if self._ordered:
            before, after = _split(_pairs_of(field, len(values)))
            known = places.to_numpy().astype(np.int64)
            self._learn(known[before], known[after])

    def _learn(self, before: np.ndarray, after: np.ndarray) -> None:
        self._pairs = np.union1d(self._pairs, (before << _BITS) + after)

    def forget_order(self) -> None:
        """Note that one of the dictionaries has none."""
        self._ordered = False

    def field(self, field: pa.Field) -> pa.Field:
        """Return a field of a dictionary type that says of the values' order what is known."""
        field = field.with_type(
            pa.dictionary(field.type.index_type, self.values.type, self._ordered)
        )
        if not self._ordered or np.array_equal(self._pairs, _in_a_row(len(self.values))):
            return field
        return field.with_metadata({**(field.metadata or {}), _PAIRS: self._pairs.tobytes()})


def settled(field: pa.Field, values: pa.Array) -> tuple[pa.Field, pa.Array]:
    """Return a `field` of `GrowingDictionary` and its values in their order, or without one."""
    metadata = dict(field.metadata or {})
    if metadata.pop(_PAIRS, None) is None:
        return field, values
    kind = field.type
    order = _one_order(_pairs_of(field, len(values)), len(values))
    if order is None:
        kind = pa.dictionary(kind.index_type, kind.value_type, ordered=False)
    else:
        values = values.take(pa.array(order))
    return field.with_type(kind).with_metadata(metadata or None), values


def one_dictionary(dictionaries: Sequence[pa.Array], kind: pa.DictionaryType) -> pa.DictionaryArray:
    """Join dictionaries of columns of a type: no codes, and each value once, without nulls."""
    growing = GrowingDictionary(pa.array([], kind.value_type), ordered=kind.ordered)
    for dictionary in dictionaries:
        growing.learn_order(growing.places(dictionary))
    field, values = settled(growing.field(pa.field("", kind)), growing.values)
    return pa.DictionaryArray.from_arrays(
        pa.array([], kind.index_type), values, ordered=field.type.ordered
    )


def _in_a_row(count: int) -> np.ndarray:
    """Return the pairs of values each of which comes before the next."""
    places = np.arange(count)
    return (places[:-1] << _BITS) + places[1:]


def _pairs_of(field: pa.Field, count: int) -> np.ndarray:
    said = (field.metadata or {}).get(_PAIRS)
    return _in_a_row(count) if said is None else np.frombuffer(said, np.int64)


def _split(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the values that come before others, and those of the others: int64."""
    return pairs >> _BITS, pairs & (2**_BITS - 1)


def _one_order(pairs: np.ndarray, count: int) -> np.ndarray | None:
    """Return the one order of places in which each pair holds; None: there are several, or none."""
    before, after = _split(pairs)
    if len(np.unique(after)) < count - 1:
        # Nothing says which of those comes first that come after no other.
        return None
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(count), ()))
    for first, second in zip(before.tolist(), after.tolist(), strict=True):
        sorter.add(second, first)
    try:
        sorter.prepare()
    except CycleError:
        return None
    found: list[int] = []
    while sorter:
        free = sorter.get_ready()
        if len(free) > 1:
            # Nothing says which of them comes first.
            return None
        found += free
        sorter.done(*free)
    return np.array(found, np.int64)
