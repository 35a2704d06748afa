"""Runs with very many names of metrics, as where each is named after its partition."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from partwise.errors import RunFormatError
from partwise.reports.report import write_report
from partwise.reports.summary import MOST_METRICS, run_fields
from partwise.runs import ledger as ledger_module
from partwise.runs.ledger import (
    MOST_METRIC_COLUMNS,
    LedgerRow,
    long_metrics,
    n_metrics,
    read_ledger,
    readable_ledger,
    segment_table,
    write_table,
)
from partwise.store.store import Store
from tests.run_maker import RunMaker


def ledger_of(metrics: list[dict[str, float]]) -> pa.Table:
    """Return a ledger of partitions with these metrics."""
    keys = pa.table({"key": pa.array([f"k{i}" for i in range(len(metrics))])})
    rows = [
        LedgerRow(partition_id=f"k{i}", shard=0, generation=1, status="DONE", rows=1, metrics=each)
        for i, each in enumerate(metrics)
    ]
    return segment_table(keys, rows)


def test_up_to_a_thousand_metrics_are_columns_and_more_are_one() -> None:
    names = [f"m{i:04d}" for i in range(MOST_METRIC_COLUMNS + 1)]
    at_most = readable_ledger(ledger_of([dict.fromkeys(names[:-1], 1.0), {}]))
    assert at_most["m0999"].to_pylist() == [1.0, None]
    assert "metrics" not in at_most.column_names
    more = readable_ledger(ledger_of([dict.fromkeys(names, 1.0), {"m0000": 2.0}]))
    assert more["metrics"].to_pylist()[1] == [("m0000", 2.0)]
    assert "m0000" not in more.column_names


def test_the_long_form_has_each_value_once_whatever_the_form() -> None:
    chance = np.random.default_rng(1)
    metrics = [
        {f"m{name}": float(i) for name in chance.choice(9, int(count), replace=False)}
        for i, count in enumerate(chance.integers(0, 5, 50))
    ]
    table = ledger_of(metrics)
    expected = [(f"k{i}", name, value) for i, m in enumerate(metrics) for name, value in m.items()]
    for form in (table, table.slice(7), pa.concat_tables([table.slice(0, 9), table.slice(9)])):
        first = 7 if form.num_rows < 50 else 0
        rows = zip(*long_metrics(form).to_pydict().values(), strict=True)
        assert list(rows) == [row for row in expected if int(row[0][1:]) >= first]
    assert long_metrics(table.slice(0, 0)).num_rows == 0
    assert n_metrics(table.slice(0, 0)) == 0


def test_eight_thousand_partitions_with_a_metric_each_are_shown_in_little_memory(tmp_path) -> None:
    count = 8000
    maker = RunMaker(Store.parse(tmp_path), "wide")
    maker.begin()
    carried = ledger_of([{f"of k{i}": float(i)} for i in range(count)])
    maker.commit(carried=carried)
    run = maker.end(count)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    fields = run_fields(run)
    assert run.partitions.num_rows == run.metrics.num_rows == count
    report = write_report(run)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + pa.total_allocated_bytes() - before < 100 << 20
    lines = str(fields["metrics"]).splitlines()
    assert len(lines) == MOST_METRICS + 1
    assert lines[-1] == f"and {count - MOST_METRICS:,} more (run.metrics has all)"
    assert len(report) < 5 << 20


def test_what_is_no_ledger_is_refused_before_it_takes_memory(monkeypatch) -> None:
    table = ledger_of([{"a": 1.0}])
    assert read_ledger(write_table(table), "it").equals(
        table.replace_schema_metadata({"partwise.format_version": "1"})
    )
    for name, wrong in (("status", pa.array([1])), ("status", pa.array([None], pa.string()))):
        place = table.column_names.index(name)
        with pytest.raises(RunFormatError, match=r"it .*'(status|partition_id)'"):
            read_ledger(write_table(table.set_column(place, name, wrong)), "it")
    # A column of nulls is next to nothing in the file.
    rows = 3_000_000
    content = write_table(pa.table({"partition_id": pa.nulls(rows, pa.string())}))
    assert len(content) < 10_000
    monkeypatch.setattr(ledger_module, "LARGEST_LEDGER_BYTES", 8 * rows - 1)
    with pytest.raises(RunFormatError, match=r"would take 24.0 MB of memory, and a ledger may"):
        read_ledger(content, "it")
