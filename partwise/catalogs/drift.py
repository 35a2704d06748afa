"""How much rows differ from those that a model was trained on, and what chance alone would make.

A feature of a key is compared by the counts of its values in the parts that the training's sketch
cuts. With 60 and 30 rows PSI is above 0.25 for most features that did not change at all: so the
PSI of chance stands beside it, and what is flagged is decided by tests over all keys and features.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tables.sketches import (
    CUTS,
    Sketch,
    category_counts,
    kind_of,
    rows_below,
    some_rows,
    sorted_values,
)

FEW_ROWS = 200
"""Below it numbers are compared in fifths, else in tenths."""
LEAST_EXPECTED = 5
"""Rows that each part has to expect of the smaller side: the chi-square test is wrong for fewer."""
MOST_EXAMPLES = 3

FeatureKind = Literal["number", "time", "category"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDrift:
    """How much the values of a feature differ from those of the training."""

    feature: str
    kind: FeatureKind
    is_label: bool
    rows_then: int
    rows_now: int
    psi: float | None
    """The population stability index; None: there are too few rows to compare."""
    psi_by_chance: float | None
    """What it is on average where nothing has changed: (parts - 1) * (1/then + 1/now)."""
    p_value: float
    """How likely chance alone makes as large a difference; 1 where there are too few rows."""
    missing_then: float
    """The share of rows without a value."""
    missing_now: float
    new_categories: int | None
    """How many there are that the training had not; None: numbers, or the training had more than
    are kept."""
    new_examples: tuple[str, ...] = ()


def drift_of(sketch: Sketch, rows: pa.Table) -> list[FeatureDrift]:
    """Return how much rows differ from those of a training, for each column that both have.

    A column that is missing now, or of another kind (text that was a number), is left out. Of more
    than 10,000 rows a sample is looked at, as in training.
    """
    if not rows.num_rows or not sketch.looked_at:
        return []
    looked = some_rows(rows)
    compared = partial(_compared, sketch, rows.num_rows, looked.num_rows)
    return [*_of_numbers(sketch, looked, compared), *_of_categories(sketch, looked, compared)]


def flagged(table: pa.Table, level: float = 0.01, tests: int | None = None) -> pa.Array:
    """Return which features of all keys have drifted.

    By Benjamini and Hochberg: of those flagged, a share of `level` at most is so by chance. Columns
    of times are not flagged: later rows are later. The table has kind and p_value of each
    `FeatureDrift`; `tests` is how many there were, where only p-values below `level` are in it, as
    no other can be flagged.
    """
    values = pc.if_else(pc.equal(table["kind"], "time"), None, table["p_value"])
    p_values = values.fill_null(math.nan).to_numpy()
    tested = np.sort(p_values[~np.isnan(p_values)])
    ranks = np.arange(1, len(tested) + 1)
    good = np.flatnonzero(tested <= level * ranks / max(1, len(tested), tests or 0))
    largest = tested[good[-1]] if len(good) else -1.0
    return pa.array(p_values <= largest)


_Part = tuple[int, int]
"""Rows then and now."""
_Compare = Callable[..., FeatureDrift]
"""Takes what `_compared` does of a feature."""


def _of_numbers(sketch: Sketch, rows: pa.Table, compared: _Compare) -> list[FeatureDrift]:
    numbers = sketch.numbers
    plain, others = [], []
    for place, (name, is_time) in enumerate(zip(numbers.names, numbers.is_time, strict=True)):
        now = _kind_now(rows, name)
        if now == "plain" and not is_time:
            plain.append(place)
        elif now == "null" or now == ("time" if is_time else "number"):
            others.append(place)
    values, missing = sorted_values(
        rows, *([numbers.names[place] for place in each] for each in (plain, others))
    )
    found, need = [], LEAST_EXPECTED * max(1.0, sketch.looked_at / rows.num_rows)
    for place, ours, lacking in zip([*plain, *others], values, missing.tolist(), strict=True):
        ours = ours[: len(ours) - lacking]
        lacked = int(numbers.missing[place])
        there, cuts, below = sketch.looked_at - lacked, numbers.cuts[place], numbers.below[place]
        kept = np.ones(CUTS, bool)
        if min(there, len(ours)) < FEW_ROWS:
            # A value that a tenth of the rows have stays by itself.
            kept[1::2] = False
            again = cuts[1:] == cuts[:-1]
            kept[1:] |= again
            kept[:-1] |= again
        parts = (
            np.diff(counts[kept], prepend=0, append=count).tolist()
            for counts, count in ((below, there), (rows_below(ours, cuts), len(ours)))
        )
        # The training has no row beyond its own least and largest value.
        beyond = [int((ours < cuts[0]).sum()), int((ours > cuts[-1]).sum())]
        kind: FeatureKind = "time" if numbers.is_time[place] else "number"
        merged = _merged(list(zip(*parts, strict=True)), need)
        rare = [(0, each) for each in beyond]
        found.append(compared(numbers.names[place], kind, merged, (lacked, lacking), rare))
    return found


def _of_categories(sketch: Sketch, rows: pa.Table, compared: _Compare) -> list[FeatureDrift]:
    found, need = [], _rows_needed(sketch.looked_at, rows.num_rows)
    for each in sketch.categories:
        if _kind_now(rows, each.name) not in ("category", "null"):
            continue
        counts = category_counts(rows.column(each.name))
        total = sum(counts.values())
        pairs = [(then, counts.get(name, 0)) for name, then in each.counts.items()]
        parts = [pair for pair in pairs if sum(pair) >= need]
        # Those of which there are few are one part, with all that the sketch does not name.
        rest = (
            sketch.looked_at - each.missing - sum(then for then, _ in parts),
            total - sum(now for _, now in parts),
        )
        is_part = sum(rest) >= need
        parts, rare = ([*parts, rest], []) if is_part else (parts, [rest])
        missing = each.missing, rows.num_rows - total
        new = None if each.other else [name for name in counts if name not in each.counts]
        found.append(compared(each.name, "category", parts, missing, rare, new))
    return found


def _kind_now(rows: pa.Table, name: str) -> str:
    """Return how a column is compared: as `kind_of`, null of any kind; empty: it is not there."""
    index = rows.schema.get_field_index(name)
    if index < 0:
        return ""
    kind = rows.schema.field(index).type
    return "null" if pa.types.is_null(kind) else kind_of(kind)


def _rows_needed(then: int, now: int) -> float:
    """Return how many rows a part needs, then and now together."""
    return LEAST_EXPECTED * (then + now) / min(then, now)


def _merged(parts: Sequence[_Part], need: float) -> list[_Part]:
    """Return neighbouring parts as one where they have too few rows of the training.

    Those of now must not decide: a part that stands by itself because it has many of them would
    differ by that alone.
    """
    found: list[_Part] = []
    then = now = 0
    for part in parts:
        then, now = then + part[0], now + part[1]
        if then >= need:
            found.append((then, now))
            then = now = 0
    if then + now:
        last = found.pop() if found else (0, 0)
        found.append((last[0] + then, last[1] + now))
    return found


def _compared(
    sketch: Sketch,
    rows_now: int,
    looked_at: int,
    name: str,
    kind: FeatureKind,
    parts: list[_Part],
    missing: _Part,
    rare: list[_Part],
    new: Sequence[str] | None = None,
) -> FeatureDrift:
    """Compare the counts of parts by chi-square, and those of rare ones exactly.

    What was rare and is frequent now is found by the hypergeometric distribution. The least of the
    p-values counts, times their number. Of `rows_now` those that were `looked_at` are counted.
    """
    rows = sketch.looked_at, looked_at
    need = _rows_needed(*rows)
    if len(parts) == 1 and sum(parts[0]) < need:
        parts, rare = [], [*rare, parts[0]]
    if sum(missing) >= need:
        parts = [*parts, missing]
    elif sum(missing):
        rare = [*rare, missing]
    p_values = [_rare_tail(part, rows) if part[1] else 1.0 for part in rare]
    psi = by_chance = None
    counts = np.array(parts, np.float64).reshape(-1, 2)
    then, now = counts.sum(axis=0)
    if len(parts) > 1 and not then * now:
        # All rows of one of both are rare ones, such as new categories.
        p_values.append(1.0)
    elif len(parts) > 1:
        differences = counts[:, 1] * then - counts[:, 0] * now
        statistic = (differences**2 / counts.sum(axis=1)).sum() / (then * now)
        p_values.append(chi_square_tail(float(statistic), len(parts) - 1))
        # Half a row more in each part: none is without any, of which there is no logarithm.
        shares = (counts + 0.5) / (counts.sum(axis=0) + len(parts) / 2)
        psi = float(((shares[:, 1] - shares[:, 0]) * np.log(shares[:, 1] / shares[:, 0])).sum())
        by_chance = float((len(parts) - 1) * (1 / then + 1 / now))
    return FeatureDrift(
        feature=name,
        kind=kind,
        is_label=name == sketch.label,
        rows_then=sketch.rows,
        rows_now=rows_now,
        psi=psi,
        psi_by_chance=by_chance,
        # Where nothing could be compared too: whether it could must not follow from the values.
        p_value=min([1.0, *(len(p_values) * each for each in p_values)]),
        missing_then=missing[0] / rows[0],
        missing_now=missing[1] / rows[1],
        new_categories=None if new is None else len(new),
        new_examples=tuple(new or ())[:MOST_EXAMPLES],
    )


def chi_square_tail(value: float, degrees: int) -> float:
    """Return the share of the chi-square distribution that is above a value.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.4.4 and 26.4.5.

    Example:
        >>> round(chi_square_tail(9.488, 4), 4)
        0.05
    """
    half = value / 2
    is_odd = degrees % 2
    total = math.erfc(math.sqrt(half)) if is_odd else 0.0
    term = math.exp(-half) * (math.sqrt(half / math.pi) * 2 if is_odd else 1.0)
    for step in range(degrees // 2):
        total += term
        term *= half / (step + (1.5 if is_odd else 1.0))
    return total


def _rare_tail(found: _Part, of_rows: _Part) -> float:
    """Return how likely chance has so many of the rows of a part, or more, among those of now."""
    now, rows_now = found[1], of_rows[1]
    part, rows = sum(found), sum(of_rows)

    def ways(all_of: int, chosen: int) -> float:
        return math.lgamma(all_of + 1) - math.lgamma(chosen + 1) - math.lgamma(all_of - chosen + 1)

    log = ways(part, now) + ways(rows - part, rows_now - now) - ways(rows, rows_now)
    term = total = math.exp(log)
    for count in range(now, min(part, rows_now)):
        rest = rows - part - rows_now + count + 1
        term *= (part - count) * (rows_now - count) / ((count + 1) * rest)
        total += term
        if term < total * 1e-12:
            break
    return min(1.0, total)
