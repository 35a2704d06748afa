from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError
from partwise.evaluation import CrossValidation
from partwise.outcomes import Skip

VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "é", ""]))


@settings(max_examples=80, deadline=None)
@given(
    n_rows=st.integers(0, 40),
    folds=st.integers(2, 8),
    seed=st.integers(0, 2**31 - 1),
    too_short=st.sampled_from(["skip", "fewer"]),
)
def test_each_row_is_scored_once_by_a_model_of_all_others(n_rows, folds, seed, too_short):
    evaluation = CrossValidation(folds=folds, too_short=too_short)
    table = pa.table({"x": np.arange(n_rows)})
    splits = evaluation.splits(table, seed)
    if n_rows < 2 or (n_rows < folds and too_short == "skip"):
        assert isinstance(splits, Skip)
        return
    assert len(splits) == min(folds, n_rows)
    scored = np.sum([split.test for split in splits], axis=0)
    assert (scored == 1).all()
    for split in splits:
        assert (split.train == ~split.test).all()
        assert split.history is None
    sizes = [int(split.test.sum()) for split in splits]
    assert max(sizes) - min(sizes) <= 1
    again = evaluation.splits(table, seed)
    assert all((one.test == other.test).all() for one, other in zip(splits, again, strict=True))


@settings(max_examples=80, deadline=None)
@given(
    groups=st.lists(VALUES, min_size=1, max_size=30),
    folds=st.integers(2, 5),
    seed=st.integers(0, 2**31 - 1),
    is_dictionary=st.booleans(),
)
def test_a_group_is_never_on_both_sides(groups, folds, seed, is_dictionary):
    column = pa.array(groups, pa.string())
    table = pa.table({"g": column.dictionary_encode() if is_dictionary else column})
    evaluation = CrossValidation(folds=folds, group="g")
    evaluation.check(table.schema, frozenset())
    splits = evaluation.splits(table, seed)
    if len(set(groups)) < 2:
        assert isinstance(splits, Skip)
        assert "1 group of 'g' for" in splits.reason
        return
    scored = [{groups[place] for place in np.flatnonzero(split.test)} for split in splits]
    trained = [{groups[place] for place in np.flatnonzero(split.train)} for split in splits]
    assert len(splits) == min(folds, len(set(groups)))
    for test, train in zip(scored, trained, strict=True):
        assert test
        assert not test & train
    assert sorted(map(repr, set().union(*scored))) == sorted(map(repr, set(groups)))
    assert sum(map(len, scored)) == len(set(groups))


def test_another_seed_deals_other_folds():
    table = pa.table({"x": np.arange(100)})
    one, other = (CrossValidation().splits(table, seed) for seed in (1, 2))
    assert any((a.test != b.test).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("group", "reason"), [("gone", "'gone'.*missing"), ("nested", "give one of plain values")]
)
def test_a_group_column_that_has_no_groups_is_refused(group, reason):
    schema = pa.schema([("nested", pa.list_(pa.int64()))])
    with pytest.raises(ColumnError, match=reason):
        CrossValidation(group=group).check(schema, frozenset())


@pytest.mark.parametrize("kind", [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.uuid()], ids=str)
def test_groups_may_be_of_types_that_arrow_does_not_encode(kind):
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.array([b"a" * 16, b"b" * 16, None] * 4, kind.storage_type)
        column = pa.ExtensionArray.from_storage(kind, storage)
    else:
        column = pa.array([Decimal("1.10"), Decimal(2), None] * 4, kind)
    evaluation, table = CrossValidation(folds=5, group="g"), pa.table({"g": column})
    evaluation.check(table.schema, frozenset())
    assert [int(split.test.sum()) for split in evaluation.splits(table, 3)] == [4, 4, 4]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_group_of_zero_has_both_zeros(kind):
    values = np.array([0.0, -0.0, 1.0, np.nan] * 10)
    table = pa.table({"g": pa.array(values, kind)})
    splits = CrossValidation(folds=5, group="g").splits(table, 3)
    assert sorted(int(split.test.sum()) for split in splits) == [10, 10, 20]
