"""What answers for partitions whose model is not there, cannot be read, or raises an error."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import returned_table
from partwise.engine.fallbacks import Constant, fall_back
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.flows import run_inference, train_models
from partwise.flows.cli.exit_codes import code_of, code_of_run
from partwise.models.plain_models import ConstantModel
from partwise.outcomes import RunStatus
from partwise.reports.report import render_report
from partwise.reports.summary import run_fields
from partwise.runs.documents import run_path
from partwise.runs.ledger import candidate_counts
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.trainers import Mean
from tests.flows.fallback_functions import predict
from tests.one_model import make_model_run

ONE = ExecutionOptions(n_shards=1, max_retries=0)
KEYS = ["region", "shop"]
OF_ALL = ConstantModel(values=np.array([3.0]))
PAIRS = [("north", 1), ("north", 2), ("south", 1), ("east", 9)]
"""The first has a model of its own, the second one of its region, the third one of all rows."""


def rows_of(pairs: list[tuple[str, int]], y: float) -> pa.Table:
    regions, shops = zip(*pairs, strict=True)
    rows = pa.table({"region": regions, "shop": shops, "row": range(len(pairs))})
    return rows.append_column("y", pa.repeat(y, len(pairs)))


@pytest.fixture
def store(tmp_path, cluster) -> Store:
    store = Store.parse(tmp_path / "store")
    given = {"store": store.url, "cluster": cluster, "execution": ONE}
    train_models(rows_of(PAIRS[:1], 1.0), KEYS, Mean(label="y"), run_id="own", **given)
    train_models(rows_of(PAIRS[1:2], 2.0), "region", Mean(label="y"), run_id="regions", **given)
    return store


def infer(store: Store, cluster, pairs=PAIRS, **changes) -> Run:
    given = {
        "run_id": "infer",
        "training_run_id": "own",
        "execution": ONE,
        "store": store.url,
        "cluster": cluster,
        "keep_columns": ["row"],
        "on_existing_artifacts": "resume",
    }
    return run_inference(rows_of(pairs, 0.0), KEYS, **given | changes)


def answers(run: Run) -> list[tuple[object, ...]]:
    rows = run.predictions().sort_by("row")
    names = ("prediction", "model_run", "model_key", "model_level")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("value", ["a\0", "a\0b", 7, 0.5, True])
def test_a_constant_is_predicted_as_it_is(value) -> None:
    predicted = fall_back(Constant(value), DataConnector(pa.table({"x": [1, 2]})), None)
    made = returned_table(predicted, "prediction")["prediction"].to_pylist()
    assert made == [value] * 2
    assert type(made[0]) is type(value)


def test_each_partition_is_answered_by_the_first_level_that_has_a_model(
    store, cluster, tmp_path
) -> None:
    make_model_run(store, "all", OF_ALL, tmp_path)
    run = infer(store, cluster, fallback=["run://regions", "run://all", 4])
    assert run.status is RunStatus.SUCCESS
    assert answers(run) == [
        (1.0, "own", "north,1", 0),
        (2.0, "regions", "north", 1),
        (3.0, "all", "", 2),
        (3.0, "all", "", 2),
    ]
    assert run.document.models == ("run://own", "run://regions", "run://all")
    assert run.document.training_run_id is None
    assert candidate_counts(run.ledger) == [
        ("run://all", 2),
        ("run://own", 1),
        ("run://regions", 1),
    ]


def test_a_constant_or_a_trainer_of_the_rows_answers_last(store, cluster) -> None:
    run = infer(store, cluster, fallback=["run://regions", "7"])
    assert answers(run)[2:] == [(7.0, None, None, 2)] * 2
    kept = infer(store, cluster, fallback=["run://regions", 7])
    assert kept.executed == 0
    # Another constant is another model of just the partitions that have none of their own.
    again = infer(store, cluster, fallback=["run://regions", Constant(-1)])
    assert again.executed == 2
    assert [row[0] for row in answers(again)] == [1.0, 2.0, -1.0, -1.0]


def test_a_trainer_is_fitted_on_the_labels_that_the_rows_bring(store, cluster) -> None:
    run = infer(store, cluster, fallback=[Mean(label="y")])
    assert answers(run)[1:] == [(0.0, None, None, 1)] * 3
    assert run.partitions["candidate"].to_pylist().count("mean") == 3


def test_a_damaged_model_has_the_next_level_asked_and_is_counted(store, cluster) -> None:
    folder = Path(store.local_path(run_path("own")) or "") / "bundles"
    (bundle,) = folder.iterdir()
    content = bundle.read_bytes()
    bundle.write_bytes(bytes(len(content)))
    run = infer(store, cluster, fallback=["run://regions"], on_missing_model="skip")
    assert answers(run) == [(2.0, "regions", "north", 1)] * 2
    rows = run.ledger.to_pylist()
    (row,) = [row for row in rows if dict(row["metrics"]).get("damaged_models") == 1]
    assert (row["key.region"], row["key.shop"]) == ("north", 1)
    assert "differs from its checksum" in run.logs(("north", 1))
    assert (code_of(run.status), code_of_run(run)) == (0, 4)
    fields = run_fields(run)
    assert str(fields["damaged"]).startswith("1 model could not be read")
    assert fields["answered by"] == "run://regions 2 (2 rows)"
    assert "What answered, by partitions: <bdi>run://regions</bdi>" in render_report(run)
    # Once it is restored, a resume asks for it again.
    bundle.write_bytes(content)
    restored = infer(store, cluster, fallback=["run://regions"], on_missing_model="skip")
    assert answers(restored)[0] == (1.0, "own", "north,1", 0)


@pytest.mark.parametrize("on_error", ["fail", "next"])
def test_an_error_fails_or_has_the_next_level_asked(store, cluster, tmp_path, on_error) -> None:
    make_model_run(store, "all", OF_ALL, tmp_path)
    run = infer(
        store, cluster, [("west", 13), ("north", 1)], predict=predict,
        fallback=["run://all", 5], on_error=on_error,
    )  # fmt: skip
    if on_error == "fail":
        assert run.status is RunStatus.PARTIAL_FAILURE
        (failed,) = run.failures().to_pylist()
        assert failed["error_type"] == "ValueError"
    else:
        assert answers(run) == [(5.0, None, None, 2), (1.0, "own", "north,1", 0)]
        # What a level left that raised does not stand beside another one's answer.
        assert "tried.txt" not in run.artifacts(("west", 13))
        assert "tried.txt" in run.artifacts(("north", 1))
        again = infer(
            store, cluster, [("west", 13), ("north", 1)], training_run_id="own",
            predict=predict, fallback=["run://all", 5], on_error=on_error,
        )  # fmt: skip
        # All are DONE, and the one whose model raised is tried again, as one that failed.
        assert again.executed == 1


def test_a_new_model_of_a_level_runs_what_it_answers_for_again(store, cluster) -> None:
    levels = ["run://regions", 0]
    infer(store, cluster, fallback=levels)
    train_models(
        rows_of(PAIRS[1:2], 20.0), "region", Mean(label="y"), run_id="regions", execution=ONE,
        store=store.url, cluster=cluster, on_existing_artifacts="overwrite",
    )  # fmt: skip
    again = infer(store, cluster, fallback=levels)
    assert again.executed == 1
    assert [row[0] for row in answers(again)] == [1.0, 20.0, 0.0, 0.0]


def test_a_fallback_of_other_keys_is_refused_before_any_work(store, cluster) -> None:
    rows = pa.table({"city": ["a"], "y": [1.0]})
    train_models(rows, "city", Mean(label="y"), run_id="cities", store=store.url, cluster=cluster)
    with pytest.raises(InputError, match=r"the run 'cities' have the key columns \['city'\]"):
        infer(store, cluster, fallback=["run://cities"])
    assert not store.exists(run_path("infer", "run.json"))
