"""Rows are dealt into batches once each, whatever the shuffle, the size and the workers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.connector import batch_order
from partwise.connector.batch_order import BatchOrder
from partwise.errors import InputError


def order(rows: int, batch_rows: int, *, shuffle: bool = True, **settings: int) -> BatchOrder:
    known = {"row_bytes": 8, "drop_last": False, "seed": 0} | settings
    return BatchOrder(rows=rows, batch_rows=batch_rows, shuffle=shuffle, **known)


def dealt(plan: BatchOrder, epoch: int, worker: int = 0, workers: int = 1) -> list[list[int]]:
    return [batch.tolist() for group in plan.groups(epoch, worker, workers) for batch in group]


def in_turn(plan: BatchOrder, epoch: int, workers: int) -> list[list[int]]:
    """What a DataLoader makes of its workers' batches."""
    each = [dealt(plan, epoch, worker, workers) for worker in range(workers)]
    longest = max(len(batches) for batches in each)
    return [batches[turn] for turn in range(longest) for batches in each if turn < len(batches)]


# Rows of a megabyte make windows of 256 rows, so that a few rows are many windows.
PLANS = st.builds(
    BatchOrder,
    rows=st.integers(0, 1200),
    row_bytes=st.sampled_from([1, 2**20, 2**22]),
    batch_rows=st.one_of(st.integers(1, 40), st.integers(41, 1500)),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**40),
)


@given(PLANS, st.integers(1, 5), st.integers(0, 3))
def test_each_row_comes_once_over_all_workers(plan, workers, epoch):
    batches = in_turn(plan, epoch, workers)
    rows = [row for batch in batches for row in batch]
    left_out = plan.rows % plan.batch_rows if plan.drop_last else 0
    assert len(set(rows)) == len(rows) == plan.rows - left_out
    assert set(rows) <= set(range(plan.rows))
    assert len(batches) == plan.batches
    assert {len(batch) for batch in batches[:-1]} <= {plan.batch_rows}


@given(PLANS, st.integers(2, 5), st.integers(0, 3))
def test_the_number_of_workers_changes_nothing(plan, workers, epoch):
    assert in_turn(plan, epoch, workers) == dealt(plan, epoch)


@given(st.integers(0, 1000), st.integers(1, 50))
def test_without_a_shuffle_rows_keep_their_order(rows, batch_rows):
    batches = dealt(order(rows, batch_rows, shuffle=False), 0)
    assert [row for batch in batches for row in batch] == list(range(rows))


@pytest.mark.parametrize("row_bytes", [8, 2**20])
def test_a_shuffle_is_of_its_seed_and_epoch(row_bytes):
    orders = [
        dealt(order(1000, 10, row_bytes=row_bytes, seed=seed), epoch)
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1)]
    ]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    assert dealt(order(1000, 10, row_bytes=row_bytes, seed=1), 1) == orders[3]


def test_every_order_of_a_window_is_as_likely():
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(6000):
        (batch,) = dealt(order(4, 4), epoch)
        counts[tuple(batch)] = counts.get(tuple(batch), 0) + 1
    assert len(counts) == 24
    # 250 each; chi-square of 23 degrees of freedom is below 49.7 in 999 of 1000 cases.
    assert sum((count - 250) ** 2 / 250 for count in counts.values()) < 49.7


def test_batches_of_a_large_table_hold_rows_from_all_over():
    rows = 20 * batch_order.WINDOW_ROWS
    first = next(order(rows, 4096).groups(0))[0]
    spread, _ = np.histogram(first, bins=16, range=(0, rows))
    # 256 blocks in a window, of which 16 are expected in each sixteenth of the table.
    assert spread.min() > 0
    assert spread.max() < 4096 / 4


def test_arguments_out_of_range_are_refused():
    with pytest.raises(InputError, match="batch_size=0 cannot be cut"):
        order(10, 0)
    with pytest.raises(InputError, match="seed=-1 cannot seed"):
        order(10, 1, seed=-1)
