"""LightGBM on all ranks: one model to the byte, whoever has which rows, and a good one."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError, PeerLostError
from partwise.outcomes import Result
from partwise.tables.features import feature_matrix
from partwise.trainers import default_predict
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ready.lightgbm import features_of_booster
from tests.lazily import Lazily
from tests.ranks.rank_threads import run_rank_threads

lightgbm = Lazily("lightgbm")

N_ROWS = 600
RNG = np.random.default_rng(0)
X = RNG.normal(size=N_ROWS)
KINDS = RNG.integers(0, 6, N_ROWS)
SIGNAL = X + (KINDS == 4) + RNG.normal(size=N_ROWS) * 0.3
TABLE = pa.table(
    {
        "x": pa.array(X, mask=RNG.random(N_ROWS) < 0.1),
        # Twice the same and its opposite: splits that are worth the same.
        "single": X.astype(np.float32),
        "opposite": -X.astype(np.float32),
        "steps": np.round(X, 1),
        "rare": (RNG.random(N_ROWS) < 0.03).astype(np.int8),
        "kind": pa.array([f"kind {k}" for k in KINDS]).dictionary_encode(),
        "code": KINDS * 10,
        "number": SIGNAL,
        "count": RNG.poisson(np.exp(SIGNAL / 2)) + 1,
        "is": (SIGNAL > 0.5).astype(np.int8),
        "class": np.digitize(SIGNAL, [-1, 1]),
        "w": RNG.random(N_ROWS) + 0.5,
        "query": np.sort(RNG.integers(0, 60, N_ROWS)),
    }
)
FEATURES = ("x", "single", "opposite", "steps", "rare", "kind", "code")
PARAMS = {"num_leaves": 8, "min_data_in_leaf": 5, "learning_rate": 0.2}
LABELS = {
    "regression": "number", "huber": "number", "fair": "number", "poisson": "count",
    "gamma": "count", "tweedie": "count", "binary": "is", "multiclass": "class",
    "multiclassova": "class",
}  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """Rows that are divided where a test says."""

    table: pa.Table
    borders: tuple[int, ...]
    rank: int = 0

    def open(self, rank, _world_size, _exchange, _directory):
        return replace(self, rank=rank)

    @property
    def schema(self):
        return self.table.schema

    def share(self, *, equal=False, group="", whole=False):
        assert not equal
        everything = 0, self.table.num_rows
        start, stop = everything if whole else list(pairwise(self.borders))[self.rank]
        return Rows(self.table.slice(start, stop - start), start, self.table.num_rows)


@dataclass(frozen=True)
class Rows:
    """A share."""

    table: pa.Table
    first_row: int
    total_rows: int

    @property
    def schema(self):
        return self.table.schema

    @property
    def rows(self):
        return self.table.num_rows

    def batches(self):
        return iter(self.table.to_batches(max_chunksize=101))


def trainer(objective="regression", params=PARAMS, **others):
    defaults = {
        "label": LABELS.get(objective, ""),
        "features": FEATURES,
        "categorical": ("code",),
        "params": {"objective": objective, **params},
        "rounds": 6,
    }
    return DistributedLightGBM(**{**defaults, **others})


def train(trainer, borders=(), table=TABLE, eval_sets=None, **context) -> Result:
    """Train with the ranks that the borders make."""
    borders = (0, *borders, table.num_rows)
    sources = {"train": Shared(table, borders)}
    for name, rows in (eval_sets or {}).items():
        thirds = np.linspace(0, rows.num_rows, len(borders)).astype(int).tolist()
        sources[name] = Shared(rows, tuple(thirds))
    world_size = len(borders) - 1
    addresses = (("127.0.0.1", 0),) * world_size
    first, *others = run_rank_threads(
        world_size, trainer, sources, "", addresses=addresses, seed=7, **context
    )
    assert others == [None] * len(others)
    return first


def text(result: Result) -> str:
    return result.model.model_to_string()


def predict(model, table=TABLE):
    return default_predict(DataConnector(table), model, PartitionContext(key="", key_columns=()))


def one_process(trained: Result, label: str, table=TABLE, weight=None, group=None, **params):
    """Train with LightGBM itself on all rows in one matrix."""
    names, categories = features_of_booster(trained.model, table)
    data = lightgbm.Dataset(
        feature_matrix(table, names, categories),
        table.column(label).to_numpy(),
        weight=weight,
        group=group,
        feature_name=names,
        categorical_feature=[names.index(name) for name in categories],
        params={"feature_pre_filter": False, "verbosity": -1},
    )
    fixed = {"verbosity": -1, "num_threads": 1, "seed": 7, "force_row_wise": True}
    return lightgbm.train({**PARAMS, **fixed, **params}, data, 6), names, categories


BORDERS = st.lists(st.integers(1, N_ROWS - 1), max_size=2, unique=True).map(
    lambda borders: tuple(sorted(borders))
)
CASES = {
    **{name: {} for name in LABELS},
    "weighted": {"weight": "w"},
    "with params": {
        "params": {
            **PARAMS,
            "feature_fraction": 0.6,
            "feature_fraction_bynode": 0.7,
            "path_smooth": 1.0,
            "monotone_constraints": [1, 0, 0, 0, 0, 0, 0],
            "max_cat_to_onehot": 1,
            "lambda_l1": 0.1,
        }
    },
    "unbalanced": {"params": {**PARAMS, "is_unbalance": True}},
}
OBJECTIVES = {"weighted": "multiclass", "with params": "regression", "unbalanced": "binary"}
ALONE: dict[str, str] = {}


def made(case, borders=(), table=TABLE):
    return train(trainer(OBJECTIVES.get(case, case), **CASES[case]), borders, table)


@pytest.mark.parametrize("case", CASES)
def test_the_model_does_not_depend_on_the_number_of_ranks_or_who_has_which_rows(case):
    alone = text(made(case))

    @given(borders=BORDERS)
    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    def check(borders):
        assert text(made(case, borders)) == alone

    check()
    assert text(made(case, (1,))) == alone
    assert text(made(case, (N_ROWS // 2, N_ROWS - 1))) == alone


@pytest.mark.parametrize("column", ["number", "code"])
def test_sorted_rows_and_what_a_rank_never_sees_make_no_difference(column):
    table = TABLE.sort_by(column)
    rank = made("multiclass", (), table)
    assert text(made("multiclass", (200, 400), table)) == text(rank)
    own, names, categories = one_process(rank, "class", table, objective="multiclass", num_class=3)
    expected = own.predict(feature_matrix(table, names, categories))
    assert abs(logloss(predict(rank.model, table), table) - logloss(expected, table)) < 0.005


def logloss(predictions, table):
    of_label = predictions[np.arange(len(predictions)), table.column("class").to_numpy()]
    return -np.log(of_label).mean()


@pytest.mark.parametrize("objective", LABELS)
@pytest.mark.parametrize("weight", ["", "w"])
def test_it_is_the_model_of_one_process(objective, weight):
    # Of several machines LightGBM estimates the rows of a leaf; here nothing depends on them.
    params = {"num_leaves": 4, "min_data_in_leaf": 1}
    features = ("x", "steps", "rare")
    trained = train(
        trainer(objective, params, weight=weight, features=features, categorical=()), (250,)
    )
    classes = {"num_class": 3} if objective.startswith("multiclass") else {}
    weights = TABLE.column(weight).to_numpy() if weight else None
    own, names, categories = one_process(
        trained,
        LABELS[objective],
        weight=weights,
        objective=objective,
        learning_rate=0.1,
        **params,
        **classes,
    )
    expected = own.predict(feature_matrix(TABLE, names, categories))
    np.testing.assert_allclose(predict(trained.model), expected, rtol=1e-5)


def squares(raw, labels, weights):
    assert weights is None
    return raw - labels, np.ones_like(raw)


def worst(predictions, labels, _weights):
    return np.abs(predictions - labels).max()


HERE = "tests.trainers.test_distributed_lightgbm"


def test_objectives_and_metrics_of_a_users_own_are_found_by_name():
    params = {**PARAMS, "boost_from_average": False}
    library = train(trainer(params=params))
    settings = {"params": PARAMS, "label": "number", "features": FEATURES, "rounds": 6}
    own = DistributedLightGBM(
        **settings,
        categorical=("code",),
        objective_function=f"{HERE}:squares",
        metric_function=f"{HERE}:worst",
    )
    one = train(own, (), eval_sets={"valid": TABLE})
    two = train(own, (100,), eval_sets={"valid": TABLE})
    assert text(one) == text(two)
    assert one.metrics == two.metrics
    np.testing.assert_array_equal(predict(one.model), predict(library.model))
    expected = worst(predict(one.model), TABLE.column("number").to_numpy(), None)
    assert one.metrics["valid_worst"] == pytest.approx(expected, rel=1e-6)


def test_eval_sets_are_measured_as_a_whole():
    held_out = TABLE.slice(0, 200)
    settings = trainer("binary", {**PARAMS, "metric": "auc,binary_logloss"}, weight="w")
    results = [
        train(settings, borders, TABLE.slice(200), {"held out": held_out, "all": TABLE})
        for borders in ((), (1,), (100, 300))
    ]
    assert results[0].metrics == results[1].metrics == results[2].metrics
    of_one = np.where(held_out["is"], predict(results[0].model, held_out), 0)
    of_one += np.where(held_out["is"], 0, 1 - predict(results[0].model, held_out))
    expected = np.average(-np.log(of_one), weights=held_out["w"])
    assert results[0].metrics["held out_binary_logloss"] == pytest.approx(expected, rel=1e-6)
    assert {"all_auc", "all_binary_logloss", "held out_auc"} <= {*results[0].metrics}


def test_a_metric_of_null_is_that_of_the_objective():
    params = {**PARAMS, "metric": None}
    found = train(trainer(params=params), (), TABLE.slice(200), {"late": TABLE.slice(0, 200)})
    assert "late_l2" in found.metrics


def test_each_round_is_reported_alike_for_any_ranks(tmp_path):
    parts, held_out = TABLE.slice(150), TABLE.slice(0, 150)
    train(trainer(rounds=3), (), parts).model.save_model(tmp_path / "earlier.txt")
    further = trainer(
        rounds=4, params={**PARAMS, "metric": "l1,l2"}, continue_from=str(tmp_path / "earlier.txt")
    )
    found = []
    for borders in ((), (100,)):

        def reported(context):
            result = further(context)
            return None if result is None else Result(context.reported, result.metrics)

        result = train(reported, borders, parts, {"held out": held_out})
        measured = result.model["eval_results"]
        assert measured["round"] == [4, 5, 6, 7]
        assert measured["held out_l2"][-1] == result.metrics["held out_l2"]
        found.append(measured)
    assert found[0] == found[1]
    assert list(found[0]) == ["round", "held out_l1", "held out_l2"]


@pytest.mark.parametrize("start", ["", "earlier"])
def test_early_stopping_keeps_the_best_round_on_every_rank_alike(start, tmp_path):
    shuffled = TABLE.take(np.random.default_rng(1).permutation(N_ROWS))
    parts, held_out = shuffled.slice(150), shuffled.slice(0, 150)
    from_file = {}
    if start:
        train(trainer(rounds=3), (), parts).model.save_model(tmp_path / "earlier.txt")
        from_file = {"continue_from": str(tmp_path / "earlier.txt")}
    greedy = {**PARAMS, "learning_rate": 0.6}
    stopping = trainer(
        params=greedy, rounds=60, early_stopping_rounds=4, stopping_set="held out", **from_file
    )
    sets = {"held out": held_out, "own": parts}
    one, two = (train(stopping, borders, parts, sets) for borders in ((), (7,)))
    assert text(one) == text(two)
    assert one.metrics == two.metrics
    rounds = int(one.metrics["rounds"])
    assert rounds == one.model.num_trees() == one.model.best_iteration < 50
    found = {
        n: train(trainer(params=greedy, rounds=n, **from_file), (), parts, sets).metrics
        for n in range(1, rounds + 4)
        if n + 3 * bool(start) <= rounds + 4
    }
    best = min(found, key=lambda n: found[n]["held out_l2"])
    assert best + 3 * bool(start) == rounds
    # Of all sets, and not only of the one that it stops by.
    for name in ("held out_l2", "own_l2"):
        assert one.metrics[name] == found[best][name]


def test_the_metrics_are_those_of_the_best_round_also_where_nothing_stopped():
    parts, late, other = TABLE.slice(0, 200), TABLE.slice(200, 200), TABLE.slice(400)
    settings = trainer(
        params={**PARAMS, "learning_rate": 0.6, "metric": "l1,l2"},
        rounds=40,
        early_stopping_rounds=40,
        stopping_set="late",
    )

    def reported(context):
        result = settings(context)
        return None if result is None else Result(context.reported, result.metrics)

    result = train(reported, (), parts, {"late": late, "other": other})
    measured, metrics = result.model["eval_results"], result.metrics
    assert len(measured["round"]) == 40 > metrics["rounds"]
    place = measured["round"].index(metrics["rounds"])
    for name in ("late_l1", "late_l2", "other_l1", "other_l2"):
        assert metrics[name] == measured[name][place]


def test_early_stopping_needs_to_know_its_eval_set():
    stopping = trainer(early_stopping_rounds=2)
    with pytest.raises(InputError, match=r"needs an eval set.*there are: none"):
        train(stopping)
    with pytest.raises(InputError, match="there are: a, b"):
        train(stopping, (), eval_sets={"a": TABLE, "b": TABLE})


def test_queries_stay_whole_in_a_ranking():
    ranking = trainer("lambdarank", label="class", group="query")
    ends = np.flatnonzero(np.diff(TABLE["query"].to_numpy())) + 1
    results = [
        train(ranking, borders, eval_sets={"all": TABLE})
        for borders in ((), (int(ends[20]),), (int(ends[0]), int(ends[40])))
    ]
    first, *others = (predict(result.model) for result in results)
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-9)
    assert results[0].metrics["all_ndcg@1"] == pytest.approx(results[1].metrics["all_ndcg@1"])
    _, sizes = np.unique(TABLE["query"], return_counts=True)
    own, names, categories = one_process(
        results[0], "class", objective="lambdarank", group=sizes, metric="ndcg"
    )
    expected = own.predict(feature_matrix(TABLE, names, categories))
    assert np.corrcoef(first, expected)[0, 1] > 0.97


def test_rows_without_a_label_are_left_out():
    hidden = np.random.default_rng(2).random(N_ROWS) < 0.3
    labels = np.where(hidden, np.nan, TABLE["number"])
    place = TABLE.schema.get_field_index("number")
    with_nan = TABLE.set_column(place, "number", pa.array(labels))
    with_null = TABLE.set_column(place, "number", pa.array(labels, from_pandas=True))
    expected = text(train(trainer(weight="w"), (), TABLE.filter(pa.array(~hidden))))
    for table in (with_nan, with_null):
        for borders in ((), (10,), (201, 402)):
            found = train(trainer(weight="w"), (*borders,), table)
            assert text(found) == expected
            assert found.metrics["null_label_rows"] == hidden.sum()


def test_an_eval_set_without_labels_is_refused():
    place = TABLE.schema.get_field_index("number")
    unknown = TABLE.set_column(place, "number", pa.nulls(N_ROWS, pa.float64()))
    for borders in ((), (300,)):
        with pytest.raises(InputError, match="The label is null in all rows 'late'"):
            train(trainer(), borders, TABLE, {"late": unknown})


def test_a_rank_without_rows_is_refused():
    with pytest.raises(InputError, match="Rank 1 of 3 has no row with a label, of 600 in all"):
        train(trainer(), (600, 600))
    nothing = TABLE.set_column(7, "number", pa.array([None] * 599 + [1.0]))
    with pytest.raises(InputError, match="Rank 0 of 2 has no row with a label, of 1 in all"):
        train(trainer(), (300,), nothing)
    with pytest.raises(InputError, match=r"There is 1 labelled row\(s\): that is too little"):
        train(trainer(), (), nothing)
    with pytest.raises(InputError, match="too little"):
        train(trainer("lambdarank", label="class", group="query"), (), TABLE.slice(0, 2))


@pytest.mark.parametrize("value", [None, -1.0, np.inf])
def test_a_weight_that_is_none_is_refused(value):
    weights = pa.array([*TABLE["w"].to_pylist()[:-1], value], pa.float64())
    table = TABLE.set_column(TABLE.schema.get_field_index("w"), "w", weights)
    with pytest.raises(InputError, match="The weight 'w' has to be a number from 0 on"):
        train(trainer(weight="w"), (300,), table)


def test_a_label_that_is_no_class_is_refused():
    with pytest.raises(InputError, match="'number' has to be a class from 0 to 1"):
        train(trainer("binary", label="number"), (300,))


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"bagging_fraction": 0.5, "bagging_freq": 1}, "draw from its own rows"),
        ({"subsample": 0.5}, "draw from its own rows"),
        ({"boosting": "rf"}, "only gbdt"),
        ({"boosting": "goss"}, "only gbdt"),
        ({"boosting": "dart"}, "only gbdt"),
        ({"linear_tree": True}, "each rank by itself"),
        ({"extra_trees": True}, "drawn"),
        ({"use_quantized_grad": True}, "by chance"),
        ({"monotone_constraints_method": "advanced"}, "one machine only"),
        ({"interaction_constraints": [["x"]]}, "fails with them on several ranks"),
        ({"machines": "a:1,b:2"}, "the gang sets up"),
        ({"num_threads": 2}, "cpus of the scaling"),
        ({"objective": "l1"}, "cannot be trained here"),
        ({"objective": "rank_xendcg"}, "cannot be trained here"),
        ({"objective": "lambdarank"}, "group goes with"),
        ({"no_such": 1}, "no parameter 'no_such'"),
    ],
)
def test_what_would_depend_on_the_division_is_refused_before_anything_starts(params, reason):
    with pytest.raises(InputError, match=reason):
        DistributedLightGBM(label="number", params=params)


def test_a_missing_column_is_refused_before_anything_starts():
    with pytest.raises(ColumnError, match="The weight 'nothing' is missing"):
        trainer(weight="nothing").check(TABLE.schema)
    with pytest.raises(ColumnError, match="The label 'kind' is dictionary"):
        trainer(label="kind").check(TABLE.schema)


calls = 0


def ends_in_round_three(raw, labels, weights):
    global calls
    calls += 1
    if calls == 6:
        raise ZeroDivisionError("one rank only")
    return squares(raw, labels, weights)


def test_the_others_say_that_they_lost_a_rank():
    settings = {"label": "number", "features": FEATURES, "categorical": ("code",)}
    failing = DistributedLightGBM(**settings, objective_function=f"{HERE}:ends_in_round_three")
    ends = []

    def note(context):
        try:
            return failing(context)
        except Exception as error:
            ends.append(type(error))
            raise

    with pytest.raises((ZeroDivisionError, PeerLostError)):
        train(note, (200, 400))
    assert sorted(end.__name__ for end in ends) == [
        "PeerLostError", "PeerLostError", "ZeroDivisionError",
    ]  # fmt: skip


def test_rounds_are_added_to_an_earlier_model(tmp_path):
    earlier = train(trainer(rounds=3), (100,))
    earlier.model.save_model(tmp_path / "model.txt")
    further = trainer(rounds=3, continue_from=str(tmp_path / "model.txt"))
    one, two = train(further), train(further, (10, 500))
    assert text(one) == text(two)
    assert one.metrics["rounds"] == 6
    whole = train(trainer(rounds=6))
    np.testing.assert_allclose(predict(one.model), predict(whole.model), rtol=1e-6)
    newer = TABLE.set_column(6, "code", pa.array(np.where(KINDS == 2, -5, KINDS * 10)))
    recoded = train(further, (300,), newer)
    assert recoded.model.pandas_categorical[1] == [0, 10, 20, 30, 40, 50, -5]
    other = trainer(features=("x", "code"), continue_from=str(tmp_path / "model.txt"))
    with pytest.raises(InputError, match=r"has the features 'x', 'single'.*the same, in"):
        train(other, (300,))
    with pytest.raises(InputError, match="to continue from cannot be read"):
        train(trainer(continue_from=str(tmp_path / "nothing.txt")), (300,))


def test_few_rows_sampled_are_the_same_ones_for_any_number_of_ranks():
    table = pa.concat_tables([TABLE] * 4)
    sampled = trainer(sample_rows=1000)
    alone = text(train(sampled, (), table))
    assert alone == text(train(sampled, (1, 2000), table))
    assert alone != text(train(trainer(), (), table))
