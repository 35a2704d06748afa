"""Inputs that no training has seen: what is not finite, numbers near the limits, odd indices.

For models without trees. Trees have probes of their own, which know where they split.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from partwise.exports.proof.verdict import Case
from partwise.formatting import reason
from partwise.models.guards import Guard
from partwise.models.signature import Feeds, Outputs, Signature, take_rows

_LEVELS = (1e4, 1e9)
"""Sizes of large numbers that are tried, a time stamp's the second, up to the largest there is."""

_BEYOND = 4.0
"""The first of them is so many times the largest of the real rows."""

_MOST_PLACES = 12
"""Single values of a row that are replaced; of more, so many evenly spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An element of a row of an input; None: all of its elements."""

    input: str
    element: int | None


def make_odd_cases(
    signature: Signature, feeds: Feeds, predict: Callable[[Feeds], Outputs]
) -> list[Case]:
    """Return cases of odd inputs, and what the model gives for each or that it raises.

    For floats: NaN, inf, -inf, zeros and denormals, and huge numbers, in single values at different
    places and in whole rows. For whole numbers: -1, the smallest and the largest of the dtype, and
    those next to where the model begins to raise. For bools: all true, all false.
    """
    batched = {tensor.name for tensor in signature.inputs if tensor.shape[:1] == (None,)}
    maker = _Maker(feeds=feeds, batched=batched, predict=predict)
    floats = [name for name, values in feeds.items() if _takes(values, "f") and name in batched]
    together = signature.layout != "custom"
    groups = [floats] if together and floats else [[name] for name in floats]
    cases = [case for group in groups for case in maker.of_floats(group, is_all=together)]
    for name, values in feeds.items():
        if name in batched and _takes(values, "iu"):
            cases += maker.of_integers(name)
        if name in batched and _takes(values, "b"):
            cases += maker.of_bools(name)
    return cases


def odd_case(
    name: str, feeds: Feeds, guards: tuple[Guard, ...], predict: Callable[[Feeds], Outputs]
) -> Case:
    """Return a case with what the model gives for it, or that it raises."""
    expected, raises = {}, ""
    try:
        with np.errstate(all="ignore"):
            expected = predict(feeds)
    except Exception as error:  # a model may raise anything for what it cannot take
        raises = reason(error) or type(error).__name__
    return Case(name=name, feeds=feeds, expected=expected, kind="odd", raises=raises, guards=guards)


def _takes(values: np.ndarray, kinds: str) -> bool:
    return values.dtype.kind in kinds and bool(np.prod(values.shape[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    feeds: Feeds
    batched: set[str]
    predict: Callable[[Feeds], Outputs]

    def of_floats(self, names: Sequence[str], *, is_all: bool) -> list[Case]:
        where = "" if is_all else f" in {names[0]!r}"
        limits = [np.finfo(self.feeds[name].dtype) for name in names]
        largest = min(float(each.max) for each in limits)
        small = max(float(each.smallest_subnormal) for each in limits)
        normal = max(float(each.smallest_normal) for each in limits)
        real = max(_largest(self.feeds[name]) for name in names) or 1.0
        few = [real * _BEYOND, *_LEVELS, float(np.sqrt(largest))]
        levels = [*sorted(level for level in few if level < largest), largest]
        places = self._places(names)

        def guard(refuses: str, limit: float = 0) -> tuple[Guard, ...]:
            return tuple(Guard(input=n, refuses=refuses, limit=limit) for n in names)  # type: ignore[arg-type]

        cases = [
            self._case(name, self._replace(places, values), guards)
            for name, values, guards in (
                (f"NaN{where}", [np.nan], guard("nan")),
                (f"inf{where}", [np.inf], guard("above", largest)),
                (f"-inf{where}", [-np.inf], guard("below", -largest)),
                (f"zeros and denormals{where}", [0.0, -0.0, small, -small, normal, -normal], ()),
            )
        ]
        for place, level in enumerate(levels):
            # Where a graph overflows earlier than its model, it takes numbers up to those proved.
            known = levels[place - 1]
            guards = (*guard("above", known), *guard("below", -known)) if place else ()
            feeds = self._replace(places, [level, -level], is_size=True)
            cases.append(self._case(f"+-{level:.4g}{where}", feeds, guards))
        return cases

    def of_integers(self, name: str) -> list[Case]:
        dtype = self.feeds[name].dtype
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        seen = self.feeds[name]
        least, most = (int(seen.min()), int(seen.max())) if seen.size else (0, 0)
        # Where a model raises beyond a table, the last rows of it and what is next are tried.
        top, bottom = self._limit(name, most, high), self._limit(name, least, low)
        values = {low, high, top, min(high, top + 1), bottom, max(low, bottom - 1)}
        values |= {0, -1} if low < 0 else {0}
        cases = []
        for value in sorted(values):
            guards: tuple[Guard, ...] = ()
            if value > top:
                guards = (Guard(input=name, refuses="above", limit=top),)
            if value < bottom:
                guards = (Guard(input=name, refuses="below", limit=bottom),)
            places = [place for place in self._places([name]) if place.element is not None]
            feeds = self._replace([places[0], places[-1]], [value])
            cases.append(self._case(f"{value} in {name!r}", feeds, guards))
        return cases

    def of_bools(self, name: str) -> list[Case]:
        place = _Place(input=name, element=None)
        return [
            self._case(f"{text} in {name!r}", self._replace([place], [value]))
            for text, value in (("only true", True), ("only false", False))
        ]

    def _case(self, name: str, feeds: Feeds, guards: tuple[Guard, ...] = ()) -> Case:
        return odd_case(name, feeds, guards, self.predict)

    def _limit(self, name: str, known: int, furthest: int) -> int:
        """Return the last value towards the furthest one that the model takes in this input."""
        place = self._places([name])[0]

        def is_taken(value: int) -> bool:
            return not self._case(name, self._replace([place], [value])).raises

        if known == furthest or is_taken(furthest):
            return furthest
        # In steps that double, since tables end near the largest index that the rows hold.
        sign, step = (1 if furthest > known else -1), 1
        while abs(furthest - known) > step and is_taken(known + sign * step):
            known, step = known + sign * step, step * 2
        if abs(furthest - known) > step:
            furthest = known + sign * step
        while abs(furthest - known) > 1:
            middle = (known + furthest) // 2
            known, furthest = (middle, furthest) if is_taken(middle) else (known, middle)
        return known

    def _places(self, names: Sequence[str]) -> list[_Place]:
        """Return single elements of a row, evenly spread over the inputs, and whole rows."""
        sizes = [int(np.prod(self.feeds[name].shape[1:])) for name in names]
        total = sum(sizes)
        chosen = np.unique(np.linspace(0, total - 1, min(total, _MOST_PLACES)).astype(np.int64))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        found = []
        for each in chosen:
            place = int(np.searchsorted(starts, each, side="right")) - 1
            found.append(_Place(input=names[place], element=int(each - starts[place])))
        whole = [_Place(input=name, element=None) for name in names[:_MOST_PLACES]]
        return [*found, *whole]

    def _replace(
        self, places: Sequence[_Place], values: Sequence[float], *, is_size: bool = False
    ) -> Feeds:
        """Return a row for each place and value, in real rows one after another.

        With is_size, whole rows are stretched to that size, and keep their differences: one value
        everywhere is a case of its own for what normalizes.
        """
        pairs = [(place, value) for place in places for value in values]
        batched = {name: self.feeds[name] for name in self.batched}
        changed = {**self.feeds, **take_rows(batched, len(pairs))}
        for row, (place, value) in enumerate(pairs):
            # A view, where reshape of an input with its axes in another order would be a copy.
            one = changed[place.input][row : row + 1]
            if place.element is not None:
                one.flat[place.element] = value
            elif is_size and (size := _largest(one)):
                one[...] = one.astype(np.float64) / size * value
            else:
                one[...] = value
        return changed


def _largest(values: np.ndarray) -> float:
    """Return the largest finite size of numbers; 0 of none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))
