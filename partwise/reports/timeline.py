"""Who was busy when: a lane for each worker, a bar for each shard that it worked on."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.formatting import counted
from partwise.outcomes import WRONG
from partwise.reports.scales import Scale, Tick, seconds_text

MOST_LANES = 48
MOST_BARS = 1_600
MOST_WORKERS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A time that a worker spent on one shard, or on several too short to be seen apart."""

    left: float
    width: float
    failed: float
    """Percent of its partitions that failed."""
    row: int
    """0, or more where a worker does several things at once."""
    is_even: bool
    """Every other bar, so that neighbours differ."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A worker."""

    worker: str
    host: str
    rows: int
    bars: tuple[Bar, ...]
    shards: int
    partitions: int
    failed: int
    busy: str
    busy_share: float
    """Of the whole time, in percent."""
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The work of one generation."""

    generation: int
    began_at: datetime
    seconds: float
    busy_seconds: float
    busy_share: float
    workers: int
    hosts: int
    lanes: tuple[Lane, ...]
    """At most `MOST_WORKERS`, those that began first; the first `MOST_LANES` are drawn."""
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class _Spans:
    """Work on shards, as arrays of one length, by worker and then by time; times in seconds."""

    worker: np.ndarray
    shard: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    busy: np.ndarray
    partitions: np.ndarray
    failed: np.ndarray

    def of(self, worker: int) -> "_Spans":
        chosen = self.worker == worker
        return _Spans(*(getattr(self, name)[chosen] for name in self.__slots__))


def describe_timeline(ledger: pa.Table) -> Timeline | None:
    """Return who did what when in the newest generation that did anything; None: nobody knows."""
    timed = pc.and_(pc.is_finite(ledger["seconds"]), pc.is_valid(ledger["finished_at"]))
    timed = pc.fill_null(timed, fill_value=False)
    if not pc.any(timed).as_py():
        return None
    table = ledger.select(["generation", "host", "shard", "seconds", "finished_at", "status"])
    table = table.filter(timed)
    generation = pc.max(table["generation"]).as_py()
    table = table.filter(pc.equal(table["generation"], generation)).combine_chunks()
    stops = table["finished_at"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 1e6
    seconds = table["seconds"].to_numpy()
    began = float((stops - seconds).min())
    names = pc.fill_null(table["host"], "unknown").combine_chunks().dictionary_encode()
    workers = names.dictionary.to_pylist()
    spans = _spans(names.indices.to_numpy(), table, stops - began, seconds)
    length = float(spans.stop.max())
    # An axis needs a length, also where all took no time that the clock shows.
    scale = Scale(low=0.0, high=length or 1e-6)
    hosts = {name.partition("/")[0] for name in workers}
    order = sorted(range(len(workers)), key=lambda code: _natural(workers[code]))
    per_lane = max(8, MOST_BARS // min(len(order), MOST_LANES))
    lanes = [
        _lane(workers[code], spans.of(code), scale, per_lane if place < MOST_LANES else 0)
        for place, code in enumerate(order[:MOST_WORKERS])
    ]
    busy = float(spans.busy.sum())
    return Timeline(
        generation=generation,
        began_at=datetime.fromtimestamp(began, UTC),
        seconds=length,
        busy_seconds=busy,
        busy_share=_percent(busy, length * len(workers)),
        workers=len(workers),
        hosts=len(hosts),
        lanes=tuple(lanes),
        ticks=tuple(scale.clock_ticks()),
    )


def _spans(workers: np.ndarray, table: pa.Table, stops: np.ndarray, seconds: np.ndarray) -> _Spans:
    """Merge the partitions that a worker did of a shard into one span."""
    shards = table["shard"].to_numpy()
    # Made here: with its first array pyarrow imports pandas.
    failed = pc.is_in(table["status"], value_set=pa.array(WRONG)).combine_chunks()
    order = np.lexsort((shards, workers))
    by_worker, by_shard = workers[order], shards[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (by_worker[1:] != by_worker[:-1]) | (by_shard[1:] != by_shard[:-1])
    first = np.flatnonzero(is_first)
    begin = np.minimum.reduceat((stops - seconds)[order], first)
    columns = (
        by_worker[first],
        by_shard[first],
        begin,
        np.maximum.reduceat(stops[order], first),
        np.add.reduceat(seconds[order], first),
        np.diff(np.append(first, len(order))),
        np.add.reduceat(failed.to_numpy(zero_copy_only=False)[order].astype(int), first),
    )
    by_time = np.lexsort((begin, by_worker[first]))
    return _Spans(*(column[by_time] for column in columns))


def _lane(name: str, spans: _Spans, scale: Scale, most_bars: int) -> Lane:
    host, _, worker = name.partition("/")
    busy, failed = float(spans.busy.sum()), int(spans.failed.sum())
    bars = _bars(spans, scale, most_bars) if most_bars else []
    return Lane(
        worker=worker or host,
        host=host,
        rows=1 + max((bar.row for bar in bars), default=0),
        bars=tuple(bars),
        shards=len(spans.shard),
        partitions=int(spans.partitions.sum()),
        failed=failed,
        busy=seconds_text(busy),
        busy_share=_percent(busy, scale.high),
        first=seconds_text(float(spans.start.min())),
        last=seconds_text(float(spans.stop.max())),
    )


def _bars(spans: _Spans, scale: Scale, most: int) -> list[Bar]:
    """Draw the spans of one worker; where there are too many, those that begin close as one."""
    groups = np.arange(len(spans.start))
    if len(groups) > most:
        groups = np.unique((scale.share(spans.start) * most).astype(int), return_inverse=True)[1]
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    bars = []
    # Two spans of a worker with one thread may seem to overlap by what committing a row takes.
    slack = scale.high / 200
    ends: list[float] = []
    for i, (first, last) in enumerate(zip(firsts, [*firsts[1:], len(groups)], strict=True)):
        start, stop = float(spans.start[first]), float(spans.stop[first:last].max())
        row = next((n for n, end in enumerate(ends) if end <= start + slack), len(ends))
        ends[row:] = [stop, *ends[row + 1 :]]
        partitions, failed = (
            int(getattr(spans, n)[first:last].sum()) for n in ("partitions", "failed")
        )
        left, right = scale.place(np.array([start, stop])).tolist()
        others = f" and {last - first - 1} more" if last - first > 1 else ""
        text = (
            f"shard {spans.shard[first]}{others}: {seconds_text(start)} to {seconds_text(stop)}, "
            f"{counted(int(partitions), 'partition')}"
        )
        bars.append(
            Bar(
                left=left,
                width=round(max(right - left, 0.1), 2),
                failed=_percent(failed, partitions),
                row=row,
                is_even=i % 2 == 0,
                text=f"{text}, {failed:,} failed" if failed else text,
            )
        )
    return bars


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort worker 10 after worker 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _percent(part: float, whole: float) -> float:
    return round(min(100.0, 100 * part / whole), 1) if whole else 0.0
