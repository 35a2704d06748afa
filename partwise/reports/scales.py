"""From values to places on an axis, in percent, and the ticks to label it with."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from partwise.formatting import duration, number

_CLOCK_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_WIDE = 50.0  # highest : lowest from which on a logarithmic axis shows more
_LARGEST = sys.float_info.max / 4  # at an end: no double holds the length of longer axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    """Percent of the axis."""
    text: str
    anchor: str = "middle"
    """Where the label stands, as SVG's `text-anchor`, so that none runs over the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`, both finite, low < high; logarithmic: 0 < low."""

    low: float
    high: float
    is_log: bool = False

    def place(self, values: np.ndarray | float) -> np.ndarray:
        """Return where values lie, in percent; those beyond an end at that end."""
        return np.round(100 * self.share(values), 2)

    def share(self, values: np.ndarray | float) -> np.ndarray:
        """Return where values lie, from 0 to 1."""
        low, high = self._measure(np.array([self.low, self.high]))
        measured = self._measure(np.clip(values, self.low, self.high))
        return np.asarray((measured - low) / (high - low))

    def edges(self, count: int) -> np.ndarray:
        """Return the count + 1 values that divide the axis evenly."""
        low, high = self._measure(np.array([self.low, self.high]))
        measured = np.linspace(low, high, count + 1)
        edges = 10**measured if self.is_log else measured
        edges[0], edges[-1] = self.low, self.high
        return np.asarray(edges)

    def ticks(self, text: Callable[[float], str], most: int = 6) -> list[Tick]:
        """Return ticks at round values, `most` of them or a few less."""
        values = _log_values(self, most) if self.is_log else _round_values(self, most)
        return self.label(values, text)

    def clock_ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks for an axis of seconds that begins at 0."""
        for step in _CLOCK_STEPS_S:
            if self.high > most * 20 and self.high / step <= most:
                values = np.arange(0, self.high, step)
                return self.label(values, _clock_text)
        return self.label(_round_values(self, most), lambda value: f"{value:.10g} s")

    def label(self, values: np.ndarray, text: Callable[[float], str]) -> list[Tick]:
        """Return ticks at values."""
        places = self.place(values).tolist()
        return [
            Tick(at=at, text=text(float(value)), anchor=anchor_at(at))
            for at, value in zip(places, values, strict=True)
        ]

    def _measure(self, values: np.ndarray) -> np.ndarray:
        return np.log10(values) if self.is_log else np.asarray(values, dtype=float)


def scale_of(values: np.ndarray) -> Scale:
    """Return the axis that shows finite values best: logarithmic where they spread wide.

    Of no values it goes from 0 to 1.
    """
    if not len(values):
        return Scale(low=0.0, high=1.0)
    low, high = np.clip((values.min(), values.max()), -_LARGEST, _LARGEST).tolist()
    if low > 0 and high / low > _WIDE:
        return Scale(low=low, high=high, is_log=True)
    if low == high:
        margin = abs(low) / 2 or 0.5
        return Scale(low=low - margin, high=high + margin)
    return Scale(low=min(low, 0.0) if 0 <= low < high / 2 else low, high=high)


def anchor_at(percent: float) -> str:
    """Return how a label at this place is aligned to stay within the picture."""
    return "start" if percent < 4 else "end" if percent > 94 else "middle"


def plain_number(value: float) -> str:
    """Return a number that stands on a tick: as many digits as it needs, 10k for 10,000."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if unit <= abs(value) < 1e15:
            scaled = value / (1e3 if letter == "k" else unit)
            return f"{scaled:.4g}{letter}"
    return number(value)


def seconds_text(seconds: float) -> str:
    """Return seconds as a person says them, also when they are few.

    Example:
        >>> seconds_text(0.0042), seconds_text(4.2), seconds_text(90)
        ('4.2 ms', '4.2 s', '1 min 30 s')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    return f"{seconds:.3g} s" if seconds < 59.95 else duration(seconds)


def _clock_text(seconds: float) -> str:
    return duration(seconds).removesuffix(" 00 s").removesuffix(" 00 min") if seconds else "0"


def _round_values(scale: Scale, most: int) -> np.ndarray:
    """Return the multiples of 1, 2 or 5 of a power of ten that are on an axis, at most `most`."""
    span = scale.high - scale.low
    power = 10.0 ** math.floor(math.log10(span / most)) if span > 1e-290 else 0.0
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        first = math.ceil(scale.low / step) if step else 0
        last = math.floor(scale.high / step) if step else 0
        if last - first < most:
            # Rounded, since 3 * 0.1 is not 0.3.
            return np.array([float(f"{n * step:.12g}") for n in range(first, last + 1)])
    return np.array([])


def _log_values(scale: Scale, most: int) -> np.ndarray:
    powers = [p for p in range(-320, 309) if scale.low <= 10.0**p <= scale.high]
    if len(powers) * 2 <= most:
        first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
        values = np.array([f * 10.0**p for p in range(first, last) for f in (1, 3)])
        return values[(values >= scale.low) & (values <= scale.high)]
    return np.array([10.0**p for p in powers[:: -(-len(powers) // most)]])
