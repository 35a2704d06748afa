"""One model of named classes on ranks that lack some of them, or have no rows at all."""

import numpy as np
import pyarrow as pa
import pytest

from partwise import DataConnector, DistributedLightGBM, DistributedXGBoost, default_predict
from partwise.connector.context import PartitionContext
from partwise.connector.trained_rows import with_class
from partwise.errors import ColumnError, InputError
from partwise.ranks.context import RankContext
from partwise.runs.bundle import CATEGORIES_FILENAME
from partwise.tables.classes import CLASS_COLUMN, classes_among
from tests.ranks.rank_threads import CutRows, run_rank_threads

ROWS = 90
KINDS = {
    "text": (pa.string(), ("c", "a", "b")),
    "coded": (pa.dictionary(pa.int32(), pa.string()), ("c", "a", "b")),
    "booleans": (pa.bool_(), (False, True)),
    "integers": (pa.int64(), (9, 2**53 + 1, 2**53)),
}
TRAINERS = {
    "xgboost": lambda n, **more: DistributedXGBoost(
        params={"objective": "binary:logistic" if n == 2 else "multi:softprob"}, **more
    ),
    "softmax": lambda n, **more: DistributedXGBoost(params={"objective": "multi:softmax"}, **more),
    "lightgbm": lambda n, **more: DistributedLightGBM(
        params={"objective": "binary" if n == 2 else "multiclass", "min_data_in_leaf": 2}, **more
    ),
    "one against all": lambda n, **more: DistributedLightGBM(
        params={"objective": "multiclassova", "min_data_in_leaf": 2}, **more
    ),
}
CUTS = {"one rank": (), "a class each": (30,), "one row": (1,), "no rows": (0,), "none last": (90,)}


def sorted_rows(kind: str, n_met: int | None = None) -> pa.Table:
    """Rows sorted by class, of which the last may be met by no rank."""
    arrow, classes = KINDS[kind]
    places = np.sort(np.arange(ROWS) % (n_met or len(classes)))
    labels = pa.array([classes[place] for place in places])
    color = pa.array(np.where(places == 0, "red", "blue")).dictionary_encode()
    return pa.table(
        {"x": places + np.arange(ROWS) % 7 / 70, "color": color, "y": labels.cast(arrow)}
    )


def train(name, kind, table, cuts, folder, **more):
    """Return rank 0's model, and the categories kept beside it."""
    classes = KINDS[kind][1]
    trainer = TRAINERS[name](len(classes), label="y", classes=classes, rounds=3, **more)
    kept: list[RankContext] = []

    def call(context: RankContext):
        kept.append(context)
        return trainer(context)

    ranks = len(cuts) + 1
    addresses = (("127.0.0.1", 0),) * ranks
    sources = {"train": CutRows(table, tuple(cuts))}
    first, *_ = run_rank_threads(ranks, call, sources, folder, seed=3, addresses=addresses)
    (own,) = (context for context in kept if context.rank == 0)
    with pa.ipc.open_stream(own.files[CATEGORIES_FILENAME]) as reader:
        return first.model, reader.read_all()


def predicted(model, categories, table):
    found = default_predict(DataConnector(table), model, PartitionContext())
    return found, with_class(found, categories)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TRAINERS)
def test_each_class_has_its_place_whatever_ranks_have(name, kind, cuts, tmp_path):
    table, n_classes = sorted_rows(kind), len(KINDS[kind][1])
    if {0, ROWS} & {*cuts} and name in ("lightgbm", "one against all"):
        with pytest.raises(InputError, match="has no row with a label, of 90 in all"):
            train(name, kind, table, cuts, tmp_path)
        return
    model, categories = train(name, kind, table, cuts, tmp_path)
    found, rows = predicted(model, categories, table)
    is_wide = name == "one against all" or (name != "softmax" and n_classes > 2)
    assert found.shape == ((ROWS, n_classes) if is_wide else (ROWS,))
    assert rows[CLASS_COLUMN].to_pylist() == table["y"].to_pylist()
    few, _ = predicted(model, categories, table.slice(0, 0))
    assert few.shape == (0, *found.shape[1:])


@pytest.mark.parametrize("cuts", [(), (30,)], ids=str)
@pytest.mark.parametrize("name", TRAINERS)
def test_a_class_that_no_rank_has_keeps_its_place(name, cuts, tmp_path):
    table = sorted_rows("text", n_met=2)
    model, categories = train(name, "text", table, cuts, tmp_path)
    found, rows = predicted(model, categories, table)
    assert rows[CLASS_COLUMN].to_pylist() == table["y"].to_pylist()
    if name != "softmax":
        assert found.shape == (ROWS, 3)
        assert found[:, 2].max() < 0.1


@pytest.mark.parametrize("name", TRAINERS)
def test_rounds_that_are_added_keep_the_classes(name, tmp_path):
    table = sorted_rows("text")
    first, categories = train(name, "text", table, (30,), tmp_path)
    path = str(tmp_path / "model.json")
    first.save_model(path)
    _, again = train(name, "text", table, (60,), tmp_path, continue_from=path)
    assert classes_among(again)[1].to_pylist() == ["c", "a", "b"]
    assert again.equals(categories)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_value_that_is_no_class_fails_on_every_rank(name, tmp_path):
    table = sorted_rows("text")
    wrong = pa.array([*table["y"].to_pylist()[:-1], "d"])
    with pytest.raises(ColumnError, match=r"'y' has the class 'd', which is none of"):
        train(name, "text", table.set_column(2, "y", wrong), (30,), tmp_path)
