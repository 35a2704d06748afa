"""XGBoost on all ranks: the model of one process, whatever rows each rank has."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.exports.trees.xgboost import XGBoostOnnxExporter
from partwise.models.export_options import ExportOptions
from partwise.models.signature import feeds_of_rows
from partwise.outcomes import Result
from partwise.ranks.context import RankContext
from partwise.tables.features import feature_matrix
from partwise.trainers import XGBoostTrainer
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from partwise.trainers.ready.xgboost import predict_xgboost
from tests.gangs.local_ranks import run_ranks
from tests.lazily import Lazily
from tests.ranks.rank_threads import CutRows, fragments_of, run_rank_threads

onnxruntime, xgboost = Lazily("onnxruntime"), Lazily("xgboost")

COLORS = ["blue", "green", "red", "Ñandú"]


def make_rows(rows: int, seed: int = 0, classes: int = 2) -> pa.Table:
    """Rows sorted by a feature: ranks see different ranges, categories and classes."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.standard_normal(rows)).astype(np.float32)
    color = rng.integers(0, 4, rows) if seed % 2 else np.sort(rng.integers(0, 4, rows))
    score = x + (color == 2) + rng.normal(scale=0.3, size=rows)
    missing = rng.random(rows) < 0.1
    bins = np.quantile(score, np.arange(1, classes) / classes)
    return pa.table(
        {
            "x": pa.array(x, mask=missing),
            "noise": rng.standard_normal(rows),
            "count": rng.integers(0, 9, rows),
            "color": pa.array([COLORS[place] for place in color]).dictionary_encode(),
            "weight": rng.random(rows).astype(np.float32),
            "label": pa.array(np.digitize(score, bins), mask=rng.random(rows) < 0.05),
            "number": score,
        }
    )


def train(folder, table, cuts=(), evals=None, **fields) -> Result:
    """Train on ranks whose rows end at `cuts`; returns rank 0's result."""
    sources = {"train": CutRows(table, tuple(cuts))}
    for name, (rows, ends) in (evals or {}).items():
        sources[name] = CutRows(rows, tuple(ends))
    fields = {"label": "label", "features": ("x", "noise", "count", "color"), "rounds": 8, **fields}
    return train_from(folder, sources, len(cuts) + 1, **fields)


def train_from(folder, sources, ranks, **fields) -> Result:
    results = run_rank_threads(
        ranks,
        DistributedXGBoost(**fields),
        sources,
        folder,
        seed=5,
        addresses=(("127.0.0.1", 0),) * ranks,
    )
    assert results[1:] == [None] * (ranks - 1)
    return results[0]


def bytes_of(result: Result) -> bytes:
    return bytes(result.model.save_raw("ubj"))


OBJECTIVES = {
    "binary:logistic": {"label": "label"},
    "multi:softprob": {"label": "label"},
    "reg:squarederror": {"label": "number"},
    "reg:pseudohubererror": {"label": "number"},
}


@st.composite
def trainings(draw):
    rows = draw(st.integers(40, 400))
    objective = draw(st.sampled_from(sorted(OBJECTIVES)))
    table = make_rows(rows, draw(st.integers(0, 99)), 3 if objective.startswith("multi") else 2)
    fields = {
        **OBJECTIVES[objective],
        "params": {
            "objective": objective,
            "max_depth": draw(st.integers(1, 5)),
            "max_bin": draw(st.sampled_from([4, 256])),
            "grow_policy": draw(st.sampled_from(["depthwise", "lossguide"])),
        },
        "memory": draw(st.sampled_from(["internal", "external"])),
        "weight": draw(st.sampled_from(["", "weight"])),
        "rounds": draw(st.integers(1, 6)),
    }
    # An empty rank at either end, one of one row, and any others.
    cut = st.one_of(st.sampled_from([0, 1, rows - 1, rows]), st.integers(0, rows))
    divisions = draw(st.lists(st.lists(cut, min_size=1, max_size=2), min_size=1, max_size=2))
    return table, [sorted(cuts) for cuts in divisions], fields


@settings(max_examples=10)
@given(trainings())
def test_the_model_is_the_same_to_the_byte_for_any_division_of_the_rows(tmp_path_factory, training):
    table, divisions, fields = training
    folder = tmp_path_factory.mktemp("rows")
    alone = train(folder, table, **fields)
    for cuts in divisions:
        divided = train(folder, table, cuts, **fields)
        assert divided.metrics == alone.metrics
        assert bytes_of(divided) == bytes_of(alone)


def test_it_is_the_model_of_one_process_and_the_same_twice(tmp_path):
    table = make_rows(600)
    fields = {"params": {"objective": "binary:logistic"}, "rounds": 5}
    divided = train(tmp_path, table, [599, 599], **fields)
    assert bytes_of(divided) == bytes_of(train(tmp_path, table, [599, 599], **fields))
    features = ("x", "noise", "count", "color")
    trainer = XGBoostTrainer(label="label", features=features, holdout=None, **fields)
    alone = trainer(DataConnector(table), PartitionContext()).model
    assert divided.model.get_dump(with_stats=True) == alone.get_dump(with_stats=True)
    labelled = table.filter(table.column("label").is_valid())
    assert divided.metrics == {
        "rounds": 5,
        "train_rows": labelled.num_rows,
        "null_label_rows": 600 - labelled.num_rows,
    }
    data = DataConnector(table)
    np.testing.assert_array_equal(
        predict_xgboost(data, divided.model), predict_xgboost(data, alone)
    )


def test_weights_count_as_in_one_process(tmp_path):
    table = make_rows(500, seed=1)
    table = table.filter(table.column("label").is_valid())
    found = train(tmp_path, table, [1, 300], weight="weight", params={"max_bin": 16})
    matrix = DataConnector(table).to_dmatrix(
        label="label", columns=["x", "noise", "count", "color"], weight="weight"
    )
    alone = xgboost.train({"seed": 5, "max_bin": 16}, matrix, 8)
    np.testing.assert_allclose(
        predict_xgboost(DataConnector(table), found.model),
        predict_xgboost(DataConnector(table), alone),
        rtol=1e-5,
    )
    unweighted = train(tmp_path, table, [1, 300], params={"max_bin": 16})
    assert bytes_of(unweighted) != bytes_of(found)


@pytest.mark.parametrize("metric", ["logloss", "auc", ["error", "aucpr"]])
def test_early_stopping_is_in_the_same_round_for_any_division(tmp_path, metric):
    rows, held_out = make_rows(400, seed=3), make_rows(100, seed=5)
    fields = {
        "params": {"objective": "binary:logistic", "eval_metric": metric, "eta": 0.9},
        "early_stopping_rounds": 3,
        "rounds": 60,
    }
    alone = train(tmp_path, rows, evals={"held_out": (held_out, [])}, **fields)
    labelled = held_out.filter(held_out.column("label").is_valid())
    assert alone.metrics["held_out_rows"] == labelled.num_rows
    assert alone.metrics["rounds"] < alone.metrics["trained_rounds"] < 60
    assert alone.model.num_boosted_rounds() == alone.metrics["rounds"]
    for cuts, ends in (([200], [0]), ([0, 1], [1, 1]), ([399, 400], [40, 100])):
        found = train(tmp_path, rows, cuts, {"held_out": (held_out, ends)}, **fields)
        assert bytes_of(found) == bytes_of(alone)
        assert found.metrics == pytest.approx(alone.metrics, rel=1e-6)
    # As XGBoost measures the kept rounds in one process.
    matrix = xgboost.DMatrix(
        feature_matrix(labelled, ["x", "noise", "count", "color"], {"color": sorted(COLORS)}),
        labelled.column("label").to_numpy(),
        feature_names=alone.model.feature_names,
        feature_types=alone.model.feature_types,
    )
    names = metric if isinstance(metric, list) else [metric]
    alone.model.set_param([("eval_metric", name) for name in names])
    measured = dict(
        part.removeprefix("eval-").split(":") for part in alone.model.eval(matrix).split()[1:]
    )
    for name, value in measured.items():
        assert alone.metrics[f"held_out_{name}"] == pytest.approx(float(value), abs=1e-5)


def test_each_round_is_reported(tmp_path):
    rows, held_out = make_rows(400, seed=3), make_rows(100, seed=5)
    fields = {
        "features": ("x", "noise", "count", "color"),
        "label": "label",
        "params": {"objective": "binary:logistic", "eval_metric": ["error", "logloss"], "eta": 0.9},
        "early_stopping_rounds": 3,
        "rounds": 60,
    }
    trainer = DistributedXGBoost(**fields)
    sources = {"train": CutRows(rows, (200,)), "held_out": CutRows(held_out, (40,))}
    (result, first), (_, second) = run_rank_threads(
        2,
        lambda context: (trainer(context), context.reported),
        sources,
        tmp_path,
        seed=5,
        addresses=(("127.0.0.1", 0),) * 2,
    )
    assert second == {}
    measured = first["eval_results"]
    trained, kept = int(result.metrics["trained_rounds"]), int(result.metrics["rounds"])
    assert measured["round"] == list(range(1, trained + 1))
    assert measured["held_out_logloss"][kept - 1] == result.metrics["held_out_logloss"]
    assert measured["held_out_error"][-1] == result.metrics["last_held_out_error"]
    # Of a model that is continued, the numbers go on.
    result.model.save_model(tmp_path / "earlier.ubj")
    more = {**fields, "early_stopping_rounds": None, "rounds": 2}
    further = DistributedXGBoost(**more, continue_from=str(tmp_path / "earlier.ubj"))
    [(_, reported)] = run_rank_threads(
        1,
        lambda context: (further(context), context.reported),
        {"train": CutRows(rows, ()), "held_out": CutRows(held_out, ())},
        tmp_path,
        addresses=(("127.0.0.1", 0),),
    )
    assert reported["eval_results"]["round"] == [kept + 1, kept + 2]


def test_the_log_says_how_far_it_is(tmp_path, caplog):
    caplog.set_level("INFO", "partwise.rank")
    rows, held_out = make_rows(60), make_rows(30, seed=1)
    train(tmp_path, rows, [30], {"held_out": (held_out, [3])}, label="number", rounds=40)
    lines = [one.message for one in caplog.records if one.name == "partwise.rank"]
    assert len(lines) == 20
    assert lines[-1].startswith("round 40 of 40, held_out_rmse 0.")


def rankings(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(rows)
    return pa.table(
        {
            "query": np.sort(rng.integers(0, max(2, rows // 7), rows)),
            "x": x,
            "label": np.clip(np.round(x + rng.normal(scale=0.5, size=rows)), 0, 4),
        }
    )


@pytest.mark.parametrize("objective", ["rank:ndcg", "rank:pairwise"])
def test_a_query_stays_whole_in_a_ranking(tmp_path, objective):
    table, held_out = rankings(300, 0), rankings(60, 1)
    fields = {
        "label": "label",
        "features": ("x",),
        "group": "query",
        "rounds": 5,
        "params": {"objective": objective, "lambdarank_pair_method": "topk", "eval_metric": "ndcg"},
    }
    matrix = xgboost.QuantileDMatrix(
        table.select(["x"]), table.column("label").to_numpy(), qid=table.column("query").to_numpy()
    )
    alone = xgboost.train({**fields["params"], "seed": 5}, matrix, 5)
    models = []
    for ranks in (1, 2, 3):
        sources = {"train": fragments_of(table), "held_out": fragments_of(held_out, name="held")}
        found = train_from(tmp_path, sources, ranks, **fields)
        models.append(found)
        np.testing.assert_allclose(
            predict_xgboost(DataConnector(table), found.model),
            predict_xgboost(DataConnector(table), alone),
            rtol=1e-4,
        )
        assert found.metrics == pytest.approx(models[0].metrics, rel=1e-5)
    unsorted = {"train": fragments_of(table.take(list(range(299, -1, -1))))}
    with pytest.raises(ColumnError, match="has to be ascending"):
        train_from(tmp_path, unsorted, 2, **fields)


def test_categories_keep_their_meaning_in_inference_and_in_exports(tmp_path):
    # Sorted by color: each rank has seen others, and codes them otherwise.
    table = make_rows(400, seed=2)
    found = train(tmp_path, table, [100, 200], params={"max_depth": 3})
    assert found.model.get_categories(export_to_arrow=True).to_arrow()[3][1].to_pylist() == sorted(
        COLORS
    )
    table = table.append_column("text", table.column("color").cast(pa.string()))
    expected = predict_xgboost(DataConnector(table), found.model)
    assert expected[:100].mean() != pytest.approx(expected[200:300].mean(), abs=0.05)
    as_text = train(
        tmp_path,
        table,
        [100, 200],
        features=("x", "noise", "count", "text"),
        categorical=("text",),
        params={"max_depth": 3},
    )
    np.testing.assert_array_equal(predict_xgboost(DataConnector(table), as_text.model), expected)
    exporter, options = XGBoostOnnxExporter(), ExportOptions()
    path = str(tmp_path / "model.onnx")
    description = exporter.describe(found.model, table, None, options)
    exporter.write(found.model, description, {}, options, path)
    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, threads)
    names = [output.name for output in session.get_outputs()]
    outputs = session.run(None, feeds_of_rows(description.signature, table))
    exported = description.signature.predictions(dict(zip(names, outputs, strict=True)))
    np.testing.assert_array_equal(np.ravel(exported), expected)


def squared_error(raw, labels, weights):
    assert weights is None
    return raw - labels, np.ones_like(raw)


def greatest_error(predictions, labels, weights):
    assert weights is None
    return np.abs(predictions - labels).max()


def test_own_objective_and_metric_give_the_same_on_any_ranks(tmp_path):
    rows, held_out = make_rows(300, seed=1), make_rows(80, seed=2)
    fields = {
        "label": "number",
        "objective_function": f"{__name__}:squared_error",
        "metric_function": f"{__name__}:greatest_error",
        "params": {"base_score": 0.0, "disable_default_eval_metric": True},
    }
    alone = train(tmp_path, rows, evals={"held_out": (held_out, [])}, **fields)
    found = train(tmp_path, rows, [0, 299], evals={"held_out": (held_out, [1, 1])}, **fields)
    predictions = predict_xgboost(DataConnector(held_out), alone.model)
    error = np.abs(predictions - held_out.column("number").to_numpy()).max()
    assert alone.metrics["held_out_greatest_error"] == pytest.approx(error, rel=1e-6)
    assert found.metrics == pytest.approx(alone.metrics, rel=1e-12)
    assert bytes_of(found) == bytes_of(alone)
    builtin = train(tmp_path, rows, [100], label="number", params={"base_score": 0.0})
    np.testing.assert_allclose(
        predict_xgboost(DataConnector(rows), found.model),
        predict_xgboost(DataConnector(rows), builtin.model),
        rtol=1e-6,
    )


prediction_error = greatest_error


def test_less_of_an_own_metric_is_better_whatever_it_is_called(tmp_path):
    rows, held_out = make_rows(300, seed=1), make_rows(80, seed=2)
    fields = {"label": "number", "early_stopping_rounds": 5, "rounds": 30}
    fields["params"] = {"base_score": 0.0, "disable_default_eval_metric": True}
    kept = [
        train(
            tmp_path,
            rows,
            evals={"held_out": (held_out, [])},
            metric_function=f"{__name__}:{name}",
            **fields,
        ).metrics["rounds"]
        for name in ("greatest_error", "prediction_error")
    ]
    assert kept[0] == kept[1] > 1


def test_an_eval_set_may_have_any_name(tmp_path):
    rows, held_out = make_rows(300, seed=1), make_rows(80, seed=2)
    names = ("late", "held out", "2026-1:late", "2026-2:late")
    found = train(
        tmp_path,
        rows,
        evals={name: (held_out, []) for name in names},
        label="number",
        params={"eval_metric": ["rmse", "tweedie-nloglik@1.5"]},
    )
    measured = {name: found.metrics[f"{name}_rmse"] for name in names}
    assert measured == dict.fromkeys(names, found.metrics["late_rmse"])
    assert "2026-2:late_tweedie-nloglik@1.5" in found.metrics


def test_training_goes_on_from_a_model(tmp_path):
    rows = make_rows(300, seed=2)
    fields = {"params": {"objective": "binary:logistic"}}
    whole = train(tmp_path, rows, rounds=6, **fields)
    path = str(tmp_path / "first.ubj")
    train(tmp_path, rows, rounds=4, **fields).model.save_model(path)
    found = train(tmp_path, rows, [20, 200], rounds=2, continue_from=path, **fields)
    assert found.metrics["rounds"] == 6
    assert bytes_of(found) == bytes_of(whole)
    with pytest.raises(InputError, match="to continue from it, the trainer has to have the same"):
        train(tmp_path, rows, [9], continue_from=path, features=("x", "noise"), **fields)
    other = make_rows(10).set_column(3, "color", pa.array(["pink"] * 10).dictionary_encode())
    with pytest.raises(InputError, match=r"'pink', which the model .* has not met"):
        train(tmp_path, other, [9], continue_from=path, **fields)
    with pytest.raises(InputError, match="cannot be read"):
        train(tmp_path, rows, [9], continue_from=f"{path}.missing", **fields)
    (tmp_path / "text").write_text("no model")
    with pytest.raises(InputError, match="is not an XGBoost model"):
        train(tmp_path, rows, [9], continue_from=str(tmp_path / "text"), **fields)


def with_column(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


REFUSED = {
    "no label": (
        lambda table: with_column(table, "label", pa.nulls(50, pa.int64())),
        {},
        "The label is null in all rows 'train'",
    ),
    "no class": (
        lambda table: with_column(table, "label", pa.array([0.5] * 50)),
        {"params": {"objective": "binary:logistic"}},
        "a class from 0 to 1",
    ),
    "null weight": (
        lambda table: with_column(table, "weight", pa.array([1.0] * 49 + [None])),
        {"weight": "weight"},
        "The weight 'weight' has to be a number from 0 on in every row",
    ),
    "no eval set": (lambda table: table, {"early_stopping_rounds": 2}, "needs an eval set"),
    "missing feature": (lambda table: table.drop(["x"]), {}, "features 'x' are missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused_before_anybody_waits(tmp_path, case):
    change, fields, reason = REFUSED[case]
    with pytest.raises((ColumnError, InputError), match=reason):
        train(tmp_path, change(make_rows(50)), [49], **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"params": {"objective": "reg:absoluteerror"}}, "pseudohubererror"),
        ({"params": {"booster": "gblinear"}}, "has no bins"),
        ({"params": {"tree_method": "exact"}}, 'has to be "hist"'),
        ({"params": {"objective": "rank:ndcg"}}, "group goes with the objectives"),
        ({"group": "query"}, "group goes with the objectives"),
        ({"params": {"nthread": 2}}, "cpus of the scaling"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        DistributedXGBoost(label="label", **fields)


def train_twice(context):
    trainer = DistributedXGBoost(label="label", features=("x", "color"), rounds=3)
    results = [trainer(context) for _ in range(2)]
    assert (results == [None, None]) is (context.rank > 0)
    return [None if result is None else bytes_of(result) for result in results]


@pytest.mark.slow
def test_ranks_in_processes_of_their_own_train_the_same_model(tmp_path):
    table = make_rows(300)
    alone = train(tmp_path, table, features=("x", "color"), rounds=3)
    found = run_ranks(2, train_twice, {"train": fragments_of(table, [7])}, seed=5)
    assert found[0] == [bytes_of(alone)] * 2


def test_external_pages_lie_in_the_folder_of_the_rank(tmp_path, monkeypatch):
    """Which is removed by others, however the rank ends; no other folder would be."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    table = make_rows(300)
    trainer = DistributedXGBoost(
        label="label", features=("x", "noise"), rounds=2, memory="external"
    )
    rows = CutRows(table, ()).open(0, 1, None, "")
    context = RankContext(rank=0, world_size=1, sources={"train": rows}, scratch_directory=scratch)
    assert trainer(context).metrics["train_rows"] > 0
    assert not list(scratch.iterdir())
    with pytest.raises(FileNotFoundError, match="nowhere"):
        trainer(replace(context, scratch_directory=None))
    with pytest.raises(InputError, match=r'memory="external": XGBoost has no pages .* GPU'):
        trainer(replace(context, gpus=("0",)))
