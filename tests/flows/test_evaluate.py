"""Whether predictions came true: labels that are late, twice, corrected, of another class."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.evaluated import ERROR, Evaluated, evaluations_of
from partwise.catalogs.rules import Everything
from partwise.errors import ColumnError, InputError, KeyClassError, RunFailedError
from partwise.flows import (
    evaluate_predictions,
    export_models,
    promote_models,
    run_inference,
    train_models,
)
from partwise.flows.cli.main import main
from partwise.formatting import number
from partwise.outcomes import RunStatus
from partwise.reports.evaluation import _dots, describe_evaluation
from partwise.reports.summary import summary_text
from partwise.runs.key_texts import key_reader
from partwise.runs.run import ONLY, Run
from partwise.serving.kept_requests import KeepOptions, KeptRequests
from partwise.serving.questions import Question
from partwise.serving.served import PredictorOptions
from partwise.store.store import Store
from partwise.trainers import LightGBMTrainer
from tests.command_line import partwise
from tests.thoroughness import quick_and_slow

pytestmark = pytest.mark.usefixtures("single_shard")

ROWS = 60
KEYS = ("a", "b", "c", "d", "few", "new")
"""b drifts, of c no label is there, of d those are late, few has few rows, new has no model."""
START = date(2026, 1, 1)


def sales(seed: int, keys=KEYS, shift: float = 0.0) -> pa.Table:
    chance = np.random.default_rng(seed)
    key = np.repeat(np.array(keys), ROWS)
    x = chance.normal(size=len(key))
    value = 2 * x + chance.normal(0, 0.5, len(key)) + shift * (key == "b")
    day = [START + timedelta(int(day)) for day in np.tile(np.arange(ROWS), len(keys))]
    table = pa.table({"key": key, "day": pa.array(day), "x": x, "value": value})
    few = np.array(
        [(k != "few") or d < START + timedelta(10) for k, d in zip(key, day, strict=True)]
    )
    return table.filter(pa.array(few)) if seed > 1 else table


def labels_of(rows: pa.Table) -> pa.Table:
    """The labels that are there in the first night, in another order and of other widths."""
    key = np.array(rows["key"].to_pylist())
    late = (key == "d") & (np.arange(len(key)) % 2 == 0)
    return rows.filter(pa.array((key != "c") & ~late)).select(["value", "day", "key"])[::-1]


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory) -> Path:
    """A store with a catalog, what it predicted for a night, and one model without a catalog."""
    folder = tmp_path_factory.mktemp("evaluate")
    trainer = LightGBMTrainer(label="value", features=["x"], params={"min_data_in_leaf": 5})
    known = [key for key in KEYS if key != "new"]
    train_models(sales(1, known), "key", trainer, run_id="night", store=folder, cluster=cluster)
    promote_models("sales", models="night", rule=Everything(), store=folder)
    for run_id, how in (
        ("catalog", {"models": "catalog://sales", "fallback": [0.0]}),
        ("plain", {"training_run_id": "night", "on_missing_model": "skip"}),
    ):
        run_inference(
            sales(2, shift=5).drop_columns("value"), "key", run_id=run_id, store=folder,
            cluster=cluster, keep_columns=["day"], **how,
        )  # fmt: skip
    return folder


@pytest.fixture
def evaluate(store, cluster):
    def evaluate(rows: pa.Table, inferred: str = "catalog", **changes) -> Run:
        options = {"on": "day", "label": "value", "store": store, "cluster": cluster, **changes}
        return evaluate_predictions(rows, inference_run_id=inferred, **options)

    return evaluate


def by_key(found: Evaluated) -> dict[str, dict]:
    return {row["key"]: row for row in found.table.to_pylist()}


@pytest.mark.parametrize("inferred", ["catalog", "plain"])
def test_each_prediction_came_true_or_is_pending(evaluate, store, inferred):
    rows = sales(2, shift=5)
    run = evaluate(labels_of(rows), inferred, run_id=f"by-{inferred}")
    assert (run.kind, run.status) == ("evaluate", RunStatus.SUCCESS)
    found = by_key(Evaluated.open(run.run_id, store))
    verdicts = {key: row["verdict"] for key, row in found.items()}
    assert verdicts.pop("new") == "no model"
    assert verdicts == {"a": "kept", "b": "worse", "c": "pending", "d": "kept", "few": "few rows"}
    for key, row in found.items():
        parts = row["labelled_rows"] + row["pending_rows"] + row["lost_rows"]
        assert parts == row["predicted_rows"], key
    assert found["d"]["pending_rows"] == found["d"]["labelled_rows"] == ROWS // 2
    assert found["c"]["pending_rows"] == ROWS
    holdout = Run.open("night", store).ledger.to_pylist()[0]["metrics"]
    assert found["a"]["rows_then"] == dict(holdout)["holdout_rows"]
    if inferred == "plain":
        assert found["new"]["unpredicted_rows"] == ROWS
    # The rows are those whose label is there, each with its own.
    joined = run.predictions().to_pandas()
    truth = rows.to_pandas().set_index(["key", "day"])["value"]
    assert np.array_equal(joined.set_index(["key", "day"])["value"], truth.loc[
        list(zip(joined["key"], joined["day"], strict=True))
    ])  # fmt: skip
    errors = joined[joined["key"] == "b"]["prediction"] - joined[joined["key"] == "b"]["value"]
    assert found["b"]["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert Evaluated.of(run).keys_to_train().to_pydict() == {"key": ["b", "new"]}


def test_a_correction_is_a_resume_of_the_keys_whose_rows_changed(evaluate, store):
    """And it ends as an evaluation that never saw the wrong labels."""
    rows = sales(2, shift=5)
    first = evaluate(labels_of(rows), run_id="nights")
    assert first.counts["DONE"] == len(KEYS)
    later = pa.concat_tables([labels_of(rows), rows.filter(
        pa.array(np.isin(np.array(rows["key"].to_pylist()), ["c"]))
    ).select(["value", "day", "key"])])  # fmt: skip
    again = evaluate(later, run_id="nights", on_existing_artifacts="resume")
    assert again.summary.executed == 1
    fresh = evaluate(later, run_id="fresh")
    assert Evaluated.of(again).table.equals(Evaluated.of(fresh).table)
    assert by_key(Evaluated.of(again))["c"]["verdict"] == "kept"


def test_two_labels_of_a_row_are_refused_unless_one_is_the_latest(evaluate, store):
    rows = labels_of(sales(2, shift=5))
    entered = pa.array([datetime(2026, 3, 1, tzinfo=UTC)] * rows.num_rows)
    first = rows.append_column("entered", entered)
    a = pa.array(np.array(rows["key"].to_pylist()) == "a")
    corrected = rows.filter(a)
    corrected = corrected.set_column(0, "value", pa.array(corrected["value"].to_numpy() + 100))
    entered = pa.array([datetime(2026, 3, 2, tzinfo=UTC)] * corrected.num_rows)
    both = pa.concat_tables([corrected.append_column("entered", entered), first])
    refused = evaluate(both, run_id="double")
    assert refused.status is RunStatus.PARTIAL_FAILURE
    [failure] = refused.failures().to_pylist()
    assert f"{ROWS} labels more than rows" in failure["error_message"]
    assert "'key' and 'day'" in failure["error_message"] or "key" in failure["error_message"]
    assert by_key(Evaluated.of(refused))["a"]["verdict"] == "failed"
    assert "a" not in Evaluated.of(refused).keys_to_train()["key"].to_pylist()
    found = by_key(Evaluated.of(evaluate(both, run_id="latest", latest_by="entered")))
    assert found["a"]["corrected_labels"] == ROWS
    assert found["a"]["rmse"] > 90
    assert found["b"].get("corrected_labels") == 0


def no_numbers(data, model, context):
    """Predict as a model does that was damaged: not a number, of one key for most rows."""
    values = model.predict(data.to_arrow().select(["x"]).to_pandas())
    values[0 if context.key == "a" else 3 :] = np.nan
    return values


def test_models_that_predict_no_numbers_are_worse_and_are_shown(evaluate, store, cluster):
    rows = sales(2, ["a", "d"])
    run_inference(
        rows, "key", training_run_id="night", predict=no_numbers, run_id="lost", store=store,
        cluster=cluster, keep_columns=["day"],
    )  # fmt: skip
    run = evaluate(rows, "lost", run_id="of-lost")
    found = by_key(Evaluated.of(run))
    assert {key: row["verdict"] for key, row in found.items()} == {"a": "worse", "d": "worse"}
    assert (found["a"]["lost_rows"], found["d"]["labelled_rows"]) == (ROWS, 3)
    page = store.joinpath("runs/of-lost/report.html").read_text()
    assert f"now no finite number of {ROWS}<" in page
    assert f" of 3, and no finite number of {ROWS - 3}<" in page


def test_rows_that_nobody_could_join_are_refused_before_any_work(evaluate, store, cluster):
    rows = labels_of(sales(2))
    naive = pa.array([datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))] * rows.num_rows)
    with pytest.raises(KeyClassError, match="day"):
        evaluate(rows.set_column(1, "day", naive))
    with pytest.raises(KeyClassError, match="key"):
        evaluate(rows.set_column(2, "key", pa.array(np.arange(rows.num_rows))))
    with pytest.raises(ColumnError, match="keep_columns"):
        evaluate(rows, on=["day", "shop"])
    with pytest.raises(ColumnError, match="no column 'forecast'"):
        evaluate(rows, prediction="forecast")
    with pytest.raises(ColumnError, match="latest_by"):
        evaluate(rows, latest_by="entered")
    lists = pa.array([[1]] * rows.num_rows)
    with pytest.raises(ColumnError, match=r"latest_by, .entered., is list.* no order"):
        evaluate(rows.append_column("entered", lists), latest_by="entered")
    with pytest.raises(InputError, match="kind 'train'"):
        evaluate(rows, "night")
    with pytest.raises(ColumnError, match="label 'sold'"):
        evaluate(rows, label="sold")
    with pytest.raises(RunFailedError, match="prediction"):
        evaluate(rows, on=[], run_id="no-identity")


@pytest.mark.parametrize("how", quick_and_slow({"pickle"}, ["pickle", "export"]))
def test_models_that_are_pickles_or_exports_are_known_by_their_training(
    how: str, store, cluster
) -> None:
    """None of them is read: nobody has to allow pickles for this."""
    shared = {"store": store, "cluster": cluster}
    trainer = LightGBMTrainer(label="value", features=["x"], params={"min_data_in_leaf": 5})
    used = {"training_run_id": "night"}
    if how == "pickle":
        train_models(sales(1, ["a"]), "key", trainer, run_id=how, serde="pickle", **shared)
        used = {"training_run_id": how, "serde": "pickle"}
    else:
        export_models("night", "onnx", data=sales(1), run_id=how, **shared)
        used = {"training_run_id": how, "format": "onnx"}
    rows = sales(2, ["a"])
    run_inference(rows, "key", run_id=f"by-{how}", keep_columns=["day"], **used, **shared)
    run = evaluate_predictions(
        rows, inference_run_id=f"by-{how}", on="day", label="value", **shared
    )
    [row] = Evaluated.of(run).table.to_pylist()
    assert (row["verdict"], row["rows_then"]) == ("kept", 12)
    assert Evaluated.of(run).tests == 2
    assert repr(Evaluated.of(run)) == f"Evaluated({run.run_id!r}, 1 key: 1 kept)"


def test_labels_of_another_zone_are_those_of_the_same_instants(store, cluster):
    """Of 23:30 in Amsterdam the day of UTC is another one in winter as in summer."""
    rows = sales(2)
    days = np.array(rows["day"].to_pylist(), "datetime64[us]") + np.timedelta64(22, "h")
    instants = pa.array(days, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    zoned = rows.set_column(1, "day", instants)
    run_inference(
        zoned.drop_columns("value"), "key", training_run_id="night", run_id="zoned", store=store,
        cluster=cluster, keep_columns=["day"], on_missing_model="skip",
    )  # fmt: skip
    elsewhere = zoned.set_column(1, "day", instants.cast(pa.timestamp("s", "Europe/Amsterdam")))
    shared = {"on": "day", "label": "value", "store": store, "cluster": cluster}
    found = [
        by_key(Evaluated.of(evaluate_predictions(each, inference_run_id="zoned", **shared)))
        for each in (zoned, elsewhere)
    ]
    assert found[0] == found[1]
    assert found[0]["a"]["labelled_rows"] == ROWS


def test_the_champion_is_the_one_that_predicted_and_not_the_one_of_today(evaluate, store):
    """After a rollback, or a promotion, the inference still names the version that it used."""
    before = by_key(Evaluated.of(evaluate(labels_of(sales(2)), run_id="before")))
    catalog = Catalog.open("sales", store)
    catalog.retire(["a"])
    after = by_key(Evaluated.of(evaluate(labels_of(sales(2)), run_id="after")))
    assert after == before


def test_of_a_catalog_the_newest_predictions_are_meant_and_kept_by_a_resume(
    evaluate, store, cluster
):
    rows = labels_of(sales(2))
    run = evaluate(rows, "catalog://sales", run_id="newest")
    newest = Evaluated.of(run).inference_run_id
    assert newest == "catalog"
    run_inference(
        sales(3).drop_columns("value"), "key", models="catalog://sales@1", run_id="newer",
        store=store, cluster=cluster, keep_columns=["day"], on_missing_model="skip",
    )  # fmt: skip
    again = evaluate(rows, "catalog://sales", run_id="newest", on_existing_artifacts="resume")
    assert (Evaluated.of(again).inference_run_id, again.summary.executed) == ("catalog", 0)
    fresh = evaluate(rows, "catalog://sales", run_id="of-newer")
    assert Evaluated.of(fresh).inference_run_id == "newer"
    with pytest.raises(InputError, match="catalog://other has ended"):
        evaluate(rows, "catalog://other")


def test_the_history_of_a_key_has_its_evaluations(evaluate, store, capsys):
    evaluate(labels_of(sales(2, shift=5)), run_id="heard")
    main(["catalog", "history", "sales", "b", "--store", str(store), "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [judged] = [line for line in lines if line.get("evaluation") == "heard"]
    assert (judged["inference"], judged["metric"], judged["rows"]) == ("catalog", "rmse", ROWS)
    assert judged["value"] > 3 * judged["value_then"]
    main(["catalog", "history", "sales", "b", "--store", str(store)])
    assert "heard" in capsys.readouterr().out
    # Of those of a run without the catalog nothing is there.
    evaluate(labels_of(sales(2)), "plain", run_id="elsewhere")
    found = evaluations_of(Catalog.open("sales", store), "b")["evaluation"].to_pylist()
    assert "heard" in found
    assert "elsewhere" not in found


def test_it_is_called_from_the_command_line(store, tmp_path, capsys):
    import pyarrow.parquet as pq

    pq.write_table(labels_of(sales(2, shift=5)), tmp_path / "sold.parquet")
    where = ["--store", str(store), "--run-id", "typed", "--on", "day", "--label", "value"]
    main(["evaluate", str(tmp_path / "sold.parquet"), "--inference-run-id", "catalog", *where])
    assert "SUCCESS" in capsys.readouterr().out
    assert by_key(Evaluated.open("typed", store))["b"]["verdict"] == "worse"


@pytest.mark.parametrize(("labels", "dots"), [(["no", "yes"], 0), ([0, 1], 2), ([False, True], 2)])
def test_only_labels_that_are_numbers_are_drawn_beside_predictions(labels, dots):
    rows = pa.table({"sold": labels, ERROR: [0.25, -0.5]})
    run = SimpleNamespace(iter_predictions=lambda partition_id: [rows])
    assert len(_dots(run, "a", "sold")) == dots


def test_the_report_shows_the_keys_that_got_worse_with_their_rows(evaluate, store):
    run = evaluate(labels_of(sales(2, shift=5)), run_id="shown")
    found = describe_evaluation(run, key_reader(run.ledger))
    assert [worst.key for worst in found.worst] == ["b"]
    assert len(found.worst[0].dots) == ROWS
    assert (1, "got worse") in found.verdicts
    page = Path(run.report()).read_text()
    assert "Worse by most" in page
    assert "labels that nobody predicted" not in page


def test_the_report_shows_the_error_of_the_nights_before(evaluate, store):
    """Of nights of the same kind; not of another label's, another metric's or a later one's."""
    nights = [evaluate(labels_of(sales(2)), run_id="over-2026-03-01")]
    nights += [
        evaluate(labels_of(sales(2, shift=night)), run_id=f"over-2026-03-{night:02}")
        for night in (2, 3)
    ]
    evaluate(labels_of(sales(2, shift=9)), run_id="over-2026-03-04", metric="mae")
    last = evaluate(labels_of(sales(2, shift=5)), run_id="over-2026-03-05")
    evaluate(labels_of(sales(2, shift=7)), run_id="over-2026-03-06")
    [worst] = describe_evaluation(last, key_reader(last.ledger)).worst
    found = [by_key(Evaluated.of(run))["b"]["rmse"] for run in [*nights, last]]
    assert worst.nights.words == (
        f"4 nights since {nights[0].summary.finished_at:%Y-%m-%d}: "
        f"{number(min(found))} to {number(max(found))}"
    )
    points = [tuple(map(float, point.split(","))) for point in worst.nights.line.split()]
    assert [x for x, _ in points] == pytest.approx([0, 100 / 3, 200 / 3, 100], abs=0.1)
    # From zero at the bottom to the largest at the top.
    assert [(100 - y) / 100 * max(found) for _, y in points] == pytest.approx(found, abs=0.02)
    assert "nights before" in Path(last.report()).read_text()


def test_features_that_drifted_are_named_and_no_others(evaluate, store):
    rows = sales(2, shift=5)
    key, x = np.array(rows["key"].to_pylist()), rows["x"].to_numpy()
    moved = rows.set_column(2, "x", pa.array(np.where(key == "d", x + 3, x)))
    run = evaluate(moved, run_id="drifted")
    found = Evaluated.of(run)
    # Of each key that has a model, x and the label.
    assert found.tests == 2 * (len(KEYS) - 1)
    flagged = found.drift.filter(found.drift["drifted"]).to_pylist()
    keys = [by_key(found)[key]["drifted_features"] for key in KEYS]
    assert {(each["key"], each["feature"]) for each in flagged} == {("d", "x"), ("b", "value")}
    assert summary_text(run).count("drift beyond chance: value of 1 key, x of 1 key") == 1
    assert sum(keys) == 2
    assert all(each["psi"] > each["psi_by_chance"] for each in flagged)
    report = describe_evaluation(run, key_reader(run.ledger))
    assert (dict(report.drifted), report.drifted_keys) == ({"x": 1, "value": 1}, 2)
    assert Evaluated.of(evaluate(moved, run_id="no-drift", drift="none")).tests == 0


def test_verdicts_and_drift_become_files(evaluate, store, tmp_path):
    run = evaluate(sales(2, shift=5), run_id="filed")
    words = ["runs", "export", "filed", "--store", store]
    for what, table in (("verdicts", Evaluated.of(run).table), ("drift", Evaluated.of(run).drift)):
        file = tmp_path / f"{what}.parquet"
        assert partwise(*words, "--what", what, "--to", file).code == 0
        assert pq.read_table(file).equals(table.combine_chunks())
    evaluate(sales(2), run_id="no-drift-file", drift="none")
    words[2] = "no-drift-file"
    ended = partwise(*words, "--what", "drift", "--to", tmp_path / "none.csv")
    assert (ended.code, "compared no features" in ended.error) == (2, True)


def test_what_got_worse_is_trained_again_and_no_other(evaluate, store, cluster):
    rows = sales(2, shift=5)
    evaluate(labels_of(rows), run_id="found")
    trainer = LightGBMTrainer(label="value", features=["x"], params={"min_data_in_leaf": 5})
    again = train_models(
        rows, "key", trainer, only="found", run_id="again", store=store, cluster=cluster
    )
    assert sorted(again.ledger["key.key"].to_pylist()) == ["b", "new"]


def keep(store: Path, requests, **options) -> KeptRequests:
    """Answer requests as a server does that keeps them all, and return what has kept them."""
    opened = Store.parse(store)
    predictor = Catalog.open("sales@1", opened).predictor(
        PredictorOptions(format="native", fallback=(0.0,))
    )
    kept = KeptRequests(opened, "sales", KeepOptions(fraction=1, **options))
    for place, (columns, n_rows, key) in enumerate(requests):
        question = Question(columns=columns, n_rows=n_rows, key=key, extra="ignore")
        kept.offer(question, predictor.answer(question), predictor.current, f"id-{place}")
    kept.close()
    predictor.close()
    return kept


def test_what_a_server_has_kept_came_true_as_the_predictions_of_an_inference(evaluate, store):
    rows = sales(2, shift=5)
    asked = rows.drop_columns("value")
    columns = dict(zip(asked.column_names, asked.columns, strict=True))
    of_a = asked.filter(pc.equal(asked["key"], "a"))
    # Rows of key a were asked for before, as JSON with other features.
    earlier = {"day": [str(day) for day in of_a["day"].to_pylist()], "x": [7] * of_a.num_rows}
    keep(store, [(earlier, of_a.num_rows, "a")], rows_per_file=10)
    days = [str(day) for day in asked["day"].to_pylist()]
    kept = keep(store, [({**columns, "day": days}, asked.num_rows, ONLY)])
    assert (kept.rows, kept.left_out) == (asked.num_rows, 0)

    found = Evaluated.of(evaluate(labels_of(rows), "served://sales"))
    expected = Evaluated.of(
        evaluate(labels_of(rows), run_id="by-catalog", on_existing_artifacts="resume")
    )

    # Rows stand in another order, by which sums differ in the last digit.
    tables = [each.table.sort_by("key").to_pandas() for each in (found, expected)]
    pd.testing.assert_frame_equal(*tables, rtol=1e-12)
    assert found.inference_run_id == "served://sales"
    assert found.models == expected.models
    with pytest.raises(InputError, match="Nothing is kept for served://sales@9"):
        evaluate(labels_of(rows), "served://sales@9")
