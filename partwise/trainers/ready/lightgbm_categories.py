"""Which features of a LightGBM model the categories of a pandas frame belong to.

A Booster that was trained on a pandas frame keeps `pandas_categorical`: the categories of each
column of a category type, ordered ones too, in the order of the frame's columns (lightgbm/basic.py,
`_data_from_pandas`). It does not say which columns these were. They are not always the features
that it splits as categories: an ordered column is split as the number of its codes, and
`categorical_feature=` can name columns of numbers.

So each order-preserving assignment of lists to features is tried against what is known:

- by the text of the model, a feature's values in training: `feature_infos` (src/io/bin.cpp and
  `bin_info_string` of include/LightGBM/bin.h) has "[least:greatest]" of a number, "a:b:c" of a
  category, and "none" of a feature that no tree can split. Codes of n categories lie in 0 to n - 1,
  and a threshold between two of them is a multiple of 1/2;
- by the types of the columns, text and dictionaries have categories, and other columns may;
- by the rows at hand, a value that training cannot have seen speaks against an assignment.

What predicts alike is one meaning. One is taken when no other is left, or when the rows speak
clearly against all others.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError
from partwise.tables.column_names import names_in_words
from partwise.tables.column_types import is_number, is_text
from partwise.tables.features import Categories, feature_matrix

_LEAST_AGAINST = 5
"""So many rows have to speak against every other meaning."""

_TIMES_AGAINST = 10
"""And so many times as many as against the one that is taken."""

_ZERO = float(np.float32(1e-35))
_AVOIDS_INFINITY = 1e300
"""Thresholds that are not midpoints: those beside zero, and those beyond all values."""

_IMPOSSIBLE = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the text of a model says of the values that a feature had in training."""

    least: float = 0.0
    greatest: float = 0.0
    members: frozenset[int] | None = None
    """Of a category: those that were frequent enough. None: it is a number, or none is known."""
    is_whole: bool = True
    """Whether it was split between whole numbers only."""
    is_split: bool = False
    """Whether any tree splits it; else its values do not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    """An assignment of the first lists to the first features."""

    against: int = 0
    """Rows that speak against it."""
    n_numbers: int = 0
    """Lists of features that are split as numbers, which of equal meanings are the odder."""
    places: tuple[tuple[int, int], ...] = ()
    """A feature and its list, by their places."""
    coding: tuple[tuple[int, tuple[Any, ...]], ...] = ()
    """The same without what makes no difference to a prediction."""


def categories_of_features(
    text: str, lists: Sequence[Sequence[Any]], names: Sequence[str], rows: pa.Table
) -> Categories:
    """Return the categories of the features that have some.

    Args:
        text: Of the model, as `Booster.model_to_string` returns it.
        lists: Its `pandas_categorical`.
        names: The columns of its features, in its order.
        rows: Have these columns; may be empty.

    Raises:
        InputError: The lists can belong to several features, and the rows do not tell which.
    """
    seen = _seen_in_training(text, len(names))
    kinds = [rows.schema.field(name).type for name in names]
    search = _Search(lists=lists, seen=seen, names=names, kinds=kinds, rows=rows)
    found = search.meanings()
    if not found:
        # Some column has another type than in training: `feature_matrix` will say which.
        kinds = [pa.null()] * len(names)
        search = _Search(lists=lists, seen=seen, names=names, kinds=kinds, rows=rows.slice(0, 0))
        found = search.meanings()[:1]
    elif len(found) > 1:
        search.asks_rows = True
        found = best, other = search.meanings()
        if other.against < max(_LEAST_AGAINST, _TIMES_AGAINST * best.against):
            raise InputError(_unclear(best, other, lists, names))
    if not found:
        raise InputError(
            "The categories that this LightGBM model keeps of a pandas frame do not fit its "
            "features: pass predict=, or example_inputs= to an export."
        )
    return {names[place]: list(lists[number]) for place, number in found[0].places}


def _unclear(
    best: _Meaning, other: _Meaning, lists: Sequence[Sequence[Any]], names: Sequence[str]
) -> str:
    places = dict(best.places)
    number = next(
        (number for place, number in other.places if places.get(place) != number),
        best.places[0][1],
    )
    among = [
        names[place]
        for place in sorted({place for place, n in (*best.places, *other.places) if n == number})
    ]
    return (
        f"The categories {names_in_words([str(value) for value in lists[number][:3]])} and so on "
        f"of this LightGBM model can be those of {' or of '.join(map(repr, among))}, which the "
        "model does not say and these rows do not tell: give the columns of categories a "
        "dictionary type (a category type of pandas), train with LightGBMTrainer, or pass "
        "predict=, or example_inputs= to an export."
    )


@dataclass(slots=True, kw_only=True)
class _Search:
    """Looks for the two assignments that the least speaks against."""

    lists: Sequence[Sequence[Any]]
    seen: Sequence[_Seen]
    names: Sequence[str]
    kinds: Sequence[pa.DataType]
    rows: pa.Table
    asks_rows: bool = False
    _counted: dict[int, tuple[pa.Table, np.ndarray]] = field(default_factory=dict)

    def meanings(self) -> list[_Meaning]:
        """Return at most two, the better one first; other assignments have one of their codings.

        Of all that assign the same lists to the features so far, the two best ones are kept: what
        follows costs all of them the same.
        """
        kept: dict[int, list[_Meaning]] = {0: [_Meaning()]}
        for place in range(len(self.seen)):
            found: dict[int, list[_Meaning]] = {}
            for used, meanings in kept.items():
                for number in (None, used) if used < len(self.lists) else (None,):
                    against = self._against(place, number)
                    if against is _IMPOSSIBLE:
                        continue
                    after = used + (number is not None)
                    made = [self._with(m, place, number, against) for m in meanings]
                    found[after] = _two_best([*found.get(after, ()), *made])
            kept = found
        return kept.get(len(self.lists), [])

    def _with(self, meaning: _Meaning, place: int, number: int | None, against: int) -> _Meaning:
        against += meaning.against
        if number is None:
            return replace(meaning, against=against)
        seen, key = self.seen[place], tuple(self.lists[number])
        matters = seen.is_split and not self._codes_are_values(place, number)
        return _Meaning(
            against=against,
            n_numbers=meaning.n_numbers + (seen.members is None),
            places=(*meaning.places, (place, number)),
            coding=(*meaning.coding, (place, key)) if matters else meaning.coding,
        )

    def _codes_are_values(self, place: int, number: int) -> bool:
        """Tell whether a list makes no difference: its categories are 0, 1, 2 and so on.

        To a feature that is split as a number, a value beyond them would be missing.
        """
        categories = self.lists[number]
        if list(categories) != list(range(len(categories))):
            return False
        is_category = self.seen[place].members is not None
        return is_category or not np.isnan(self._values(place, number)[0]).any()

    def _against(self, place: int, number: int | None) -> int | None:
        """Return the rows that speak against a feature's having this list, or none at all."""
        seen, kind = self.seen[place], self.kinds[place]
        if number is None:
            if not (is_number(kind) or pa.types.is_null(kind)):
                return _IMPOSSIBLE
            return self._unseen_rows(place, None) if self.asks_rows and seen.is_split else 0
        categories = self.lists[number]
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_known = categories and not pa.types.is_null(values)
        if is_known and isinstance(categories[0], str) != is_text(values):
            return _IMPOSSIBLE
        if seen.is_split and not (
            seen.is_whole and seen.least >= 0 and seen.greatest <= len(categories) - 1
        ):
            return _IMPOSSIBLE
        return self._unseen_rows(place, number) if self.asks_rows and seen.is_split else 0

    def _unseen_rows(self, place: int, number: int | None) -> int:
        """Count the rows whose value training cannot have seen."""
        seen = self.seen[place]
        numbers, counts = self._values(place, number)
        is_unknown = np.isnan(numbers)
        if seen.members is None:
            outside = (numbers < seen.least) | (numbers > seen.greatest)
            return int(counts[is_unknown | outside].sum())
        whole = np.trunc(np.where(is_unknown, -1.0, numbers))
        # LightGBM leaves rare categories out of its list, by default those of one or two rows.
        outside = ~np.isin(whole, [*seen.members]) & (counts >= _LEAST_AGAINST)
        return int(counts[is_unknown | outside].sum())

    def _values(self, place: int, number: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct values of a feature, coded by this list, and their counts of rows."""
        name = self.names[place]
        if place not in self._counted:
            column = self.rows.column(name)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            found = pc.value_counts(column)
            values, counts = found.field("values"), found.field("counts")
            is_there = pc.invert(pc.is_null(values, nan_is_null=True))
            table = pa.table({name: values.filter(is_there)})
            self._counted[place] = table, np.asarray(counts.filter(is_there))
        table, counts = self._counted[place]
        coded = {} if number is None else {name: list(self.lists[number])}
        return feature_matrix(table, [name], coded)[:, 0].astype(np.float64), counts


def _two_best(meanings: Sequence[_Meaning]) -> list[_Meaning]:
    """Return the best one of the best coding, and of the second-best one."""
    best: dict[Any, _Meaning] = {}
    for meaning in sorted(meanings, key=lambda m: (m.against, m.n_numbers, m.places)):
        best.setdefault(meaning.coding, meaning)
    return [*best.values()][:2]


def _seen_in_training(text: str, n_features: int) -> list[_Seen]:
    """Read what the text of a model says of the values of each feature."""
    header = text.partition("\nTree=")[0]
    found = re.search(r"^feature_infos=(.*)$", header, re.MULTILINE)
    infos = found[1].split(" ") if found else ["none"] * n_features
    # A user's own bins may be split anywhere.
    has_own_bins = re.search(r"^\[forcedbins_filename: .+\]$", text, re.MULTILINE) is not None
    split, not_whole = _splits(text)
    return [
        _seen(info, is_split=place in split, is_whole=has_own_bins or place not in not_whole)
        for place, info in enumerate(infos)
    ]


def _seen(info: str, is_split: bool, is_whole: bool) -> _Seen:
    if info.startswith("["):
        least, greatest = map(float, info[1:-1].split(":"))
        # Codes are whole numbers.
        is_whole = is_whole and least.is_integer() and greatest.is_integer()
        return _Seen(least=least, greatest=greatest, is_whole=is_whole, is_split=is_split)
    if info == "none":
        return _Seen(is_whole=is_whole, is_split=is_split)
    # LightGBM writes -1 for the missing ones.
    members = frozenset(code for code in map(int, info.split(":")) if code >= 0)
    return _Seen(
        least=min(members, default=0),
        greatest=max(members, default=0),
        members=members,
        is_split=is_split,
    )


def _splits(text: str) -> tuple[set[int], set[int]]:
    """Return the features that are split, and those that are split beside no half number."""

    def of_nodes(name: str) -> np.ndarray:
        lines = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
        return np.array(" ".join(lines).split(), dtype=np.float64)

    features = of_nodes("split_feature").astype(np.int64)
    thresholds, is_category = of_nodes("threshold"), of_nodes("decision_type") % 2 == 1
    is_between = np.isclose(2 * thresholds, np.rint(2 * thresholds), rtol=0, atol=1e-6)
    is_between |= (np.abs(thresholds) <= _ZERO) | (thresholds >= _AVOIDS_INFINITY)
    return set(features.tolist()), set(features[~is_between & ~is_category].tolist())
