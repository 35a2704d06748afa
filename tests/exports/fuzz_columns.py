"""Columns of every kind that models of trees are trained on, drawn at random."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from partwise.connector.data_connector import DataConnector

NUMBERS = ("normal", "normal", "normal", "whole", "zeros", "stamps", "constant", "missing", "tiny")
CATEGORIES = ("text", "codes", "plain text", "plain codes", "ordered", "unused")
"""Dictionaries of text and of whole numbers, columns that users make categories of, an order, and
categories that no row has."""
TARGET = "target"
ODD = (np.nan, 0.0, -0.0, 1e-36, -1e-36, 1e-35, 0.5, -0.5, -1.0, 1e30, -1e30, 5e-324, 2.5, 1e6)


@dataclass(frozen=True)
class Columns:
    """The columns of a table, of which any number of rows can be drawn."""

    kinds: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the categories of each."""

    @property
    def names(self) -> list[str]:
        """Return them in order."""
        return [*self.kinds]

    @property
    def categorical(self) -> list[str]:
        """Return those that hold categories."""
        return [name for name, kind in self.kinds.items() if kind in CATEGORIES]

    def draw(
        self, n: int, random: np.random.Generator, *, odd: bool = False, unseen: bool = False
    ) -> pa.Table:
        """Return rows; some numbers are odd ones and some categories new, if that is asked for."""
        return pa.table({name: self._column(name, n, random, odd, unseen) for name in self.kinds})

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return a frame as a user's function makes it of its partition."""
        frame = DataConnector(table.select(self.names)).to_pandas()
        for name in self.categorical:
            if self.kinds[name].startswith("plain"):
                frame[name] = frame[name].astype("category")
        return frame

    def matrix(self, table: pa.Table) -> np.ndarray:
        """Return numbers, of columns that are all numbers."""
        columns = [table[name].to_numpy(zero_copy_only=False) for name in self.names]
        return np.column_stack(columns).astype(np.float64)

    def _column(
        self, name: str, n: int, random: np.random.Generator, odd: bool, unseen: bool
    ) -> pa.Array:
        kind = self.kinds[name]
        if kind in CATEGORIES:
            return _categories(kind, self.sizes[name], n, random, unseen)
        values = {
            "normal": lambda: random.normal(size=n),
            "whole": lambda: random.integers(-5, 40, n).astype(float),
            "zeros": lambda: random.normal(size=n) * (random.random(n) < 0.4),
            "stamps": lambda: 1.7e9 + 3600 * random.random(n),
            "constant": lambda: np.full(n, 3.0),
            "missing": lambda: np.where(random.random(n) < 0.3, np.nan, random.normal(size=n)),
            "tiny": lambda: random.normal(size=n) * 1e-35,
        }[kind]()
        if odd:
            values[random.random(n) < 0.2] = random.choice(ODD)
            values[:: max(1, n // 20)] = random.choice(ODD, size=len(values[:: max(1, n // 20)]))
        if kind == "whole" and not odd and random.random() < 0.5:
            return pa.array(values.astype(np.int64))
        return pa.array(values)


def draw_columns(random: np.random.Generator, *, with_categories: bool) -> Columns:
    """Return columns of kinds drawn at random: few mostly, sometimes many."""
    n_numbers = int(random.choice([1, 2, 3, 5, 8, 60], p=[0.15, 0.2, 0.3, 0.2, 0.1, 0.05]))
    kinds = {f"x{place}": str(random.choice(NUMBERS)) for place in range(n_numbers)}
    kinds["x0"] = "normal"
    sizes = {}
    if with_categories:
        for place in range(int(random.integers(1, 4))):
            kinds[f"c{place}"] = str(random.choice(CATEGORIES))
            sizes[f"c{place}"] = int(random.choice([2, 3, 5, 12, 40, 90]))
    order = random.permutation([*kinds])
    return Columns({str(name): kinds[str(name)] for name in order}, sizes)


def target_of(columns: Columns, table: pa.Table, random: np.random.Generator) -> np.ndarray:
    """Return labels of unit scale that depend on the columns."""
    target = 0.3 * random.normal(size=table.num_rows)
    for place, name in enumerate(columns.names):
        if name in columns.sizes:
            codes = table[name].combine_chunks()
            if not pa.types.is_dictionary(codes.type):
                codes = codes.dictionary_encode()
            values = codes.indices.to_numpy(zero_copy_only=False).astype(np.float64)
            target += 0.7 * np.cos(np.nan_to_num(values, nan=-1.0) * (place + 2))
        else:
            values = np.nan_to_num(table[name].to_numpy(zero_copy_only=False).astype(np.float64))
            spread = values.std()
            target += (values - values.mean()) / spread if spread else 0.0
    return target


def _categories(
    kind: str, size: int, n: int, random: np.random.Generator, unseen: bool
) -> pa.Array:
    codes = random.integers(0, size, n)
    is_text = kind in ("text", "plain text", "unused")
    # Not 0, 1, 2 ...: a code in the place of a category would be right by chance.
    first = 0 if kind == "plain codes" else 100
    letter = "é" if size in (2, 5) else "v"
    values = [f"{letter}{place:03d}" if is_text else first + 3 * place for place in range(size + 2)]
    is_missing = random.random(n) < (0.1 if size % 2 else 0.0)
    if unseen:
        codes = np.where(random.random(n) < 0.1, size + 1, codes)
    if kind.startswith("plain"):
        return pa.array(
            [None if gone else values[code] for code, gone in zip(codes, is_missing, strict=True)]
        )
    known = values[:size]
    if kind == "unused":
        codes = np.where(codes == 1, 0, codes)
    if unseen:
        known = values
    indices = pa.array(codes, pa.int32(), mask=is_missing)
    return pa.DictionaryArray.from_arrays(indices, known, ordered=kind == "ordered")
