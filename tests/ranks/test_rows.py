"""The rows of ranks: together they are the source, whatever it consists of, in the same order."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import ColumnError, InputError, SourceError
from partwise.ranks.context import RankContext
from partwise.ranks.global_categories import global_categories
from partwise.ranks.global_labels import global_label_counts
from partwise.ranks.global_sample import global_sample
from partwise.ranks.rows import SourceFragments, share_borders
from partwise.tables.categories import categories_of_rows, with_own_categories
from partwise.tables.features import find_categories, numbers
from tests.ranks.rank_threads import fragments_of, run_rank_threads


def numbered(rows: int) -> pa.Table:
    return pa.table({"row": pa.array(range(rows), pa.int64())})


def rows_of(share) -> list[int]:
    """The rows of a share, read twice."""
    once, again = (
        [row for batch in share.batches() for row in batch.column("row").to_pylist()]
        for _ in range(2)
    )
    assert once == again
    assert share.rows == len(once)
    assert share.first_row == once[0] if once else True
    return once


@st.composite
def divisions(draw):
    rows = draw(st.integers(1, 60))
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=6)))
    return rows, cuts, draw(st.integers(1, 5)), draw(st.booleans()), draw(st.integers(1, 20))


@given(divisions())
def test_shares_are_the_rows_of_the_source_in_their_order(tmp_path_factory, division):
    rows, cuts, world_size, counted, batch_rows = division
    source = fragments_of(numbered(rows), cuts, counted=counted, batch_rows=batch_rows)

    def read(context: RankContext):
        share, whole = context.share(), context.share(whole=True)
        assert share is context.share()
        assert share.total_rows == whole.total_rows == rows
        return rows_of(share), rows_of(whole)

    results = run_rank_threads(world_size, read, {"train": source}, tmp_path_factory.mktemp("rows"))
    assert [row for share, _ in results for row in share] == list(range(rows))
    assert all(whole == list(range(rows)) for _, whole in results)
    sizes = [len(share) for share, _ in results]
    assert max(sizes) - min(sizes) <= 1 + 0.1 * rows / world_size


@given(divisions())
def test_equal_shares_have_the_same_number_of_rows(tmp_path_factory, division):
    rows, cuts, world_size, counted, batch_rows = division
    source = fragments_of(numbered(rows), cuts, counted=counted, batch_rows=batch_rows)
    folder = tmp_path_factory.mktemp("rows")

    def read(context: RankContext):
        return rows_of(context.share(equal=True))

    if rows < world_size:
        with pytest.raises(SourceError, match=f"The {rows} rows 'train' cannot be divided among"):
            run_rank_threads(world_size, read, {"train": source}, folder)
        return
    shares = run_rank_threads(world_size, read, {"train": source}, folder)
    each = rows // world_size
    assert shares == [list(range(r * each, (r + 1) * each)) for r in range(world_size)]


@given(divisions(), st.data())
def test_a_group_stays_on_the_rank_of_its_first_row(tmp_path_factory, division, data):
    rows, cuts, world_size, counted, batch_rows = division
    groups = sorted(data.draw(st.lists(st.integers(0, 8), min_size=rows, max_size=rows)))
    table = numbered(rows).append_column("query", pa.array(groups))
    source = fragments_of(table, cuts, counted=counted, batch_rows=batch_rows)

    def read(context: RankContext):
        return rows_of(context.share()), rows_of(context.share(group="query"))

    results = run_rank_threads(world_size, read, {"train": source}, tmp_path_factory.mktemp("rows"))
    owner = {row: rank for rank, (share, _) in enumerate(results) for row in share}
    first_row = {group: groups.index(group) for group in groups}
    wanted = [[] for _ in range(world_size)]
    for row, group in enumerate(groups):
        wanted[owner[first_row[group]]].append(row)
    assert [grouped for _, grouped in results] == wanted


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([1, 1, 3, 2, 4, 5], r"row 3 \(counted from 0\) has 2 behind 3"),
        ([1, 1, 3, None, 4, 5], r"row 3 \(counted from 0\) has None behind"),
        ([1, 2, 3, 1, 2, 3], r"row 3 \(counted from 0\) has 1 behind 3"),
    ],
)
def test_a_group_that_is_not_ascending_is_refused(tmp_path, groups, reason):
    table = numbered(6).append_column("query", pa.array(groups))

    def read(context: RankContext):
        context.share(group="query")

    with pytest.raises(ColumnError, match=reason):
        run_rank_threads(2, read, {"train": fragments_of(table, [3])}, tmp_path)
    with pytest.raises(ColumnError, match="The group 'queries' is missing in the rows 'train'"):
        run_rank_threads(
            2, lambda c: c.share(group="queries"), {"train": fragments_of(table)}, tmp_path
        )


@pytest.mark.parametrize(
    "groups",
    [
        pa.array([bytes(16)] * 2 + [b"b" * 16] * 4, pa.uuid()),
        pa.array(np.array([1, 1, 2, 2, 2, 2], np.float16)),
        pa.array([0.0, -0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
    ids=["uuid", "half", "zeros"],
)
def test_a_group_may_be_of_any_plain_values(tmp_path, groups):
    table = numbered(6).append_column("query", groups)

    def read(context: RankContext):
        return rows_of(context.share(group="query"))

    found = run_rank_threads(2, read, {"train": fragments_of(table, [3])}, tmp_path)
    assert found == [[0, 1, 2, 3, 4, 5], []]


def test_a_group_of_lists_is_refused(tmp_path):
    table = numbered(6).append_column("query", pa.array([[1]] * 6))
    with pytest.raises(ColumnError, match="The group 'query' of the rows 'train' is list"):
        run_rank_threads(
            2, lambda c: c.share(group="query"), {"train": fragments_of(table)}, tmp_path
        )


def test_whole_groups_are_no_equal_shares(tmp_path):
    table = numbered(10).append_column("user", pa.array([0] * 3 + [1] * 4 + [2] * 3))
    source = {"train": fragments_of(table)}

    def users(context: RankContext):
        return set(context.data(group="user").to_numpy("user"))

    found = run_rank_threads(2, users, source, tmp_path)
    assert found[0] | found[1] == {0, 1, 2}
    assert not found[0] & found[1]
    for read in (
        lambda context: context.share(equal=True, group="user"),
        lambda context: context.data(equal=True, group="user"),
    ):
        with pytest.raises(InputError, match="cannot be divided equally and by whole groups"):
            run_rank_threads(2, read, source, tmp_path)


def test_rows_that_are_none_are_refused_by_every_rank(tmp_path):
    source = fragments_of(numbered(0), counted=False)
    with pytest.raises(SourceError, match="The rows 'train' are none"):
        run_rank_threads(3, lambda context: context.share(), {"train": source}, tmp_path)


@dataclass(frozen=True)
class ShrinkingPart:
    rows: int = 10

    def batches(self):
        return iter(numbered(9).to_batches())


def test_rows_that_change_while_they_are_read_are_refused(tmp_path):
    source = SourceFragments(name="train", schema=numbered(0).schema, parts=(ShrinkingPart(),))
    with pytest.raises(SourceError, match="changed while the gang read them: 10 were counted"):
        run_rank_threads(1, lambda context: list(context.rows()), {"train": source}, tmp_path)


def test_borders_stand_between_fragments_where_shares_stay_even():
    assert share_borders([500, 510, 490, 500], 2) == [0, 1010, 2000]
    assert share_borders([1500, 500], 2) == [0, 1000, 2000]
    assert share_borders([1], 3) == [0, 0, 0, 1]


def test_the_sample_is_the_same_for_any_ranks_and_borders(tmp_path):
    rng = np.random.default_rng(0)
    rows = 20_000
    table = numbered(rows).append_column(
        "color", pa.array(rng.choice(["red", "green", "blue"], rows)).dictionary_encode()
    )

    def sample(context: RankContext) -> pa.Table:
        return global_sample(context, context.share(), ["color", "row"], most=1000)

    alone = run_rank_threads(1, sample, {"train": fragments_of(table)}, tmp_path, seed=7)[0]
    for world_size, cuts in ((2, [1]), (3, [19_999]), (3, [100, 9000])):
        source = fragments_of(table, cuts, batch_rows=777)
        for found in run_rank_threads(world_size, sample, {"train": source}, tmp_path, seed=7):
            assert found.equals(alone)
    places = alone.column("row").to_numpy()
    assert (np.diff(places) > 0).all()
    assert alone.column("color").to_pylist() == table.column("color").take(places).to_pylist()
    # The binomial's standard deviation is 31, and of the mean row 180.
    assert abs(len(places) - 1000) < 120
    assert abs(places.mean() - rows / 2) < 700
    other = run_rank_threads(1, sample, {"train": fragments_of(table)}, tmp_path, seed=8)[0]
    both = np.intersect1d(places, other.column("row").to_numpy())
    assert len(both) < 100
    small = fragments_of(table.slice(0, 900))
    everything = run_rank_threads(2, sample, {"train": small}, tmp_path)[0]
    assert everything.column("row").to_pylist() == list(range(900))


@given(
    st.lists(st.sampled_from(["b", "a", "c", "é", None]), min_size=1, max_size=30),
    st.integers(1, 4),
    st.booleans(),
)
def test_categories_are_those_of_all_rows(tmp_path_factory, values, world_size, ordered):
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=ordered)
    listed = pa.array(["c", "unused", "b", "é", "a"])
    codes = pa.array(
        [None if v is None else listed.to_pylist().index(v) for v in values], pa.int8()
    )
    table = numbered(len(values)).append_column(
        pa.field("color", kind), pa.DictionaryArray.from_arrays(codes, listed, ordered=ordered)
    )
    table = table.append_column("text", table.column("color").cast(pa.string()))

    def find(context: RankContext):
        found = global_categories(context, context.share(), ["color", "text"])
        return found.lists(), found.coded()

    results = run_rank_threads(
        world_size, find, {"train": fragments_of(table)}, tmp_path_factory.mktemp("rows")
    )
    expected = categories_of_rows(with_own_categories(table), ("row",))
    for lists, coded in results:
        assert lists == {name: find_categories(table.column(name)) for name in ("color", "text")}
        assert coded.equals(expected)


KIND = pa.dictionary(pa.int8(), pa.string(), ordered=True)


def declared(*orders: list[str]) -> pa.Table:
    """Rows of files that declare orders of the same column, each of the values of its rows."""
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(len(order)), pa.int8()), pa.array(order), ordered=True
        )
        for order in orders
    ]
    return pa.table({"size": pa.chunked_array(chunks, KIND)})


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(
    ("train", "later", "order", "codes"),
    [
        ([["s", "l"], ["s", "m", "l"]], ["m", "l"], (True, True), ["s", "m", "l"]),
        ([["s", "l"], ["s", "m"]], ["s", "m"], (False, False), ["l", "m", "s"]),
        ([["s", "l"], ["s", "l"]], ["s", "m", "l"], (True, False), ["s", "l", "m"]),
        ([["s", "l"], ["s", "l"]], ["m"], (True, False), ["s", "l", "m"]),
        ([["s", "l"], ["s", "l"]], ["l", "s"], (True, False), ["s", "l"]),
    ],
)
def test_ranks_have_the_order_that_all_files_declare(
    tmp_path, world_size, train, later, order, codes
):
    rows = declared(*train)
    cuts = [len(one) for one in train[:-1]]
    sources = {"train": fragments_of(rows, cuts), "later": fragments_of(declared(later))}

    def read(context: RankContext):
        # In this order: what is read first has the first codes.
        data = [context.data(name, whole=True, equal=False).to_arrow() for name in sources]
        own = context.data("train", equal=False).to_arrow()
        return [table.column("size").unify_dictionaries() for table in (*data, own)]

    for whole, evaluated, own in run_rank_threads(world_size, read, sources, tmp_path):
        assert (whole.type.ordered, evaluated.type.ordered) == order
        assert own.type.ordered == order[0]
        assert whole.to_pylist() == rows.column("size").to_pylist()
        assert evaluated.to_pylist() == later
        assert evaluated.chunk(0).dictionary.to_pylist() == codes
        for column in (whole, own):
            if column.num_chunks:
                known = column.chunk(0).dictionary.to_pylist()
                assert known == codes[: len(known)]


def test_categories_that_come_later_may_be_of_a_narrower_type(tmp_path):
    """A cast of the first ones to the type of the later ones failed, in words of Arrow."""
    first = pa.table({"n": pa.array([2**40, 1]).dictionary_encode()})
    later = pa.table({"n": pa.array([7, 1], pa.int32()).dictionary_encode()})
    sources = {"train": fragments_of(first), "later": fragments_of(later)}

    def read(context: RankContext):
        return [context.data(name).to_arrow().column("n") for name in sources]

    ((one, other),) = run_rank_threads(1, read, sources, tmp_path)
    assert (one.to_pylist(), other.to_pylist()) == ([2**40, 1], [7, 1])
    assert other.chunk(0).dictionary.to_pylist() == [1, 2**40, 7]


def test_labels_are_counted_over_all_rows(tmp_path):
    labels = pa.array([2, 0, None, 2, 7, 0, 0])
    table = pa.table({"label": labels})

    def count(context: RankContext):
        def labels_of(rows: pa.Table) -> np.ndarray:
            return numbers("label", rows["label"])

        return global_label_counts(context, context.share(), labels_of)

    for counts in run_rank_threads(3, count, {"train": fragments_of(table)}, tmp_path):
        assert list(counts.items()) == [(0.0, 3), (2.0, 2), (7.0, 1)]
