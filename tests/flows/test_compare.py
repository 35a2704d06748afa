"""From two trainings to a catalog's next version: compared on the same rows, promoted by a rule."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.contest import Contest
from partwise.catalogs.rules import Everything, Improvement
from partwise.engine.options import ExecutionOptions
from partwise.errors import CatalogConflictError, InputError
from partwise.flows import compare_models, export_models, promote_models, train_models
from partwise.flows.cli.main import main
from partwise.flows.orchestration import announcement
from partwise.outcomes import RunStatus
from partwise.reports.next_command import next_command
from partwise.reports.summary import summary_text
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer

pytestmark = pytest.mark.usefixtures("single_shard")

ROWS, KEYS = 80, 4


def sales(seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    key = np.repeat(np.arange(KEYS), ROWS)
    x, z = chance.normal(size=(2, len(key)))
    value = 2 * x + key + chance.normal(0, 0.1, len(key))
    return pa.table({"key": key, "x": x, "z": z, "value": value})


def trainer(rounds: int) -> LightGBMTrainer:
    return LightGBMTrainer(
        label="value", features=["x"], rounds=rounds, holdout=None, params={"min_data_in_leaf": 5}
    )


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory) -> Path:
    """A store with a catalog of poor models, of which key 0 is pinned, and better ones of a run."""
    folder = tmp_path_factory.mktemp("compare")
    for name, rounds in (("old", 1), ("night", 40)):
        train_models(sales(1), "key", trainer(rounds), run_id=name, store=folder, cluster=cluster)
    promote_models("sales", models="old", rule=Everything(), store=folder)
    Catalog.open("sales", folder).pin([0])
    return folder


@pytest.fixture(scope="module")
def compared(cluster, store) -> Run:
    return compare_models(
        sales(2),
        "key",
        ["catalog://sales", "night"],
        "value",
        run_id="cmp",
        store=store,
        cluster=cluster,
    )


def test_the_candidates_are_compared_on_new_rows(compared) -> None:
    assert (compared.kind, compared.status) == ("compare", RunStatus.SUCCESS)
    contest = Contest.of(compared)
    assert contest.references == ("catalog://sales@2", "run://night@1")
    assert contest.candidates == ("sales@2", "night")
    assert (contest.rows == ROWS).all()
    assert (contest.losses[:, 1] < contest.losses[:, 0]).all()
    assert (contest.confidences[:, 1, 0] > 0.999).all()
    assert not contest.seen.any()
    assert repr(contest) == f"Contest('cmp', {KEYS} keys by rmse, best: night {KEYS})"
    assert re.search(rf"best +night {KEYS}\n", summary_text(compared))
    table = contest.table
    assert table.num_rows == 2 * KEYS
    assert table.filter(table["won"])["candidate"].unique().to_pylist() == ["night"]
    command, _ = next_command(compared)
    assert " promote sales --comparison cmp --dry-run" in command
    page = Path(compared.report()).read_text()
    assert 'id="contest"' in page
    assert "<bdi>night</bdi> against <bdi>sales@2</bdi>" in page


def test_a_promotion_changes_what_is_better_and_not_what_is_pinned(
    store, compared, monkeypatch
) -> None:
    sent = []
    monkeypatch.setattr(announcement, "emit_event", lambda **event: sent.append(event))
    # As in a flow run of Prefect.
    monkeypatch.setattr(sys.modules["partwise.flows.promote_models"], "is_direct", lambda: False)
    rule = Improvement("rmse", by=0.02, min_rows=50)
    given = {"comparison": "cmp", "rule": rule, "store": store}
    tried = promote_models("sales", dry_run=True, **given)
    assert tried.catalog is None
    assert tried.decision.counts == {"replaced": 3, "pinned": 1}
    title = "The next version of the catalog sales would have 3 keys with another champion"
    assert repr(tried) == f"Promotion({title!r}, Decision(4 keys: 3 replaced, 1 pinned))"
    first = promote_models("tomorrow", models="night", rule=Everything(), dry_run=True, store=store)
    assert first.title.endswith("would have 4 keys with a champion where none was")
    done = promote_models("sales", **given)
    assert (done.is_new, done.catalog.reference) == (True, "catalog://sales@3")
    row = done.catalog.row(1)
    assert (row["run_id"], row["comparison"], row["since_version"]) == ("night", "cmp@1", 3)
    assert done.catalog.row(0)["run_id"] == "old"
    assert done.catalog.document.origin.comparison.run_id == "cmp"
    again = promote_models("sales", **given)
    assert (again.is_new, again.catalog.version) == (False, 3)
    [event] = sent
    assert event["event"] == "partwise.catalog.promoted"
    assert event["resource"]["prefect.resource.id"] == "partwise.catalog.sales"
    assert (event["payload"]["version"], event["payload"]["changed"]) == (3, 3)
    # Somebody who began with version 2, and was stopped, finds what the same promotion made.
    assert promote_models("sales@2", **given).catalog.version == 3
    with pytest.raises(CatalogConflictError, match=r"Version 3 .* was made meanwhile by"):
        promote_models("sales@2", models="night", rule=Everything(), store=store)
    with pytest.raises(InputError, match="was made by rmse, and the rule goes by mae"):
        promote_models("sales", comparison="cmp", rule=Improvement("mae"), store=store)


def test_the_event_of_a_promotion_names_the_comparison_that_was_used(tmp_path, monkeypatch) -> None:
    sent, used = [], []
    made = SimpleNamespace(
        is_new=True, catalog=SimpleNamespace(version=2), name="sales",
        decision=SimpleNamespace(changed=1), origin=SimpleNamespace(rule="rule"),
    )  # fmt: skip

    def prepare(*_, comparison, **__):
        used.append(comparison)
        return made

    module = sys.modules["partwise.flows.promote_models"]
    monkeypatch.setattr(announcement, "emit_event", lambda **event: sent.append(event))
    monkeypatch.setattr(module, "is_direct", lambda: False)
    monkeypatch.setattr(module, "prepare_promotion", prepare)
    monkeypatch.setattr(module, "carry_out", lambda promotion, _: promotion)
    monkeypatch.setattr(module, "promotion_lines", lambda _: [])
    promote_models("sales", comparison="compare-{scheduled:%Y}", store=tmp_path)
    assert [event["payload"]["comparison"] for event in sent] == used
    assert re.fullmatch(r"compare-\d{4}", used[0])


def test_the_command_line_says_which_clause_refused_what(store, compared, capsys) -> None:
    words = ["promote", "sales", "--comparison", "cmp", "--min-rows", "100", "--dry-run"]
    assert main([*words, "--store", str(store)]) == 0
    text = capsys.readouterr().out
    assert re.match(r"catalog://sales@\d would stay: nothing would change\n", text)
    assert "kept, since fewer rows count than --min-rows 100: 3" in text
    assert main([*words, "--json", "--store", str(store)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["changed"], said["is_new"]) == (0, False)
    assert main(["promote", "sales", "--models", "night", "--by", "0.1", "--new-keys"]) == 2
    assert "One rule decides" in capsys.readouterr().err
    where = ["--store", str(store)]
    for words, text in (
        (["--models", "night"], "say --everything, --new-keys or --key"),
        (["--models", "cmp", "--everything"], "give --comparison cmp in place of models"),
        ([], "give one of --comparison RUN and --models RUN"),
    ):
        assert main(["promote", "sales", *words, *where]) == 2
        assert text in capsys.readouterr().err


def test_a_resume_goes_on_with_the_versions_that_it_began_with(cluster, store, compared) -> None:
    call = ("key", ["catalog://sales", "night"], "value")
    again = compare_models(
        sales(2), *call, run_id="cmp", store=store, cluster=cluster, on_existing_artifacts="resume"
    )
    assert (again.kept, again.executed) == (KEYS, 0)
    assert Contest.of(again).references == Contest.of(compared).references


def test_rows_that_a_candidate_was_trained_on_decide_nothing(cluster, store) -> None:
    """Known of the very same rows, also where training looked at some columns only."""
    options = ExecutionOptions(n_shards=1)
    given = {"store": store, "cluster": cluster, "execution": options}
    run = compare_models(sales(1), "key", ["old", "night"], "value", run_id="seen", **given)
    contest = Contest.of(run)
    assert contest.seen.all()
    assert (contest.winners == -1).all()
    assert "was trained on the very rows of 4 keys" in Path(run.report()).read_text()
    tried = promote_models("fresh", comparison="seen", dry_run=True, store=store)
    assert tried.decision.reasons == [("left out", "it was trained on these rows", KEYS)]
    allowed = compare_models(
        sales(1),
        "key",
        ["old", "night"],
        "value",
        run_id="allowed",
        allow_training_rows=True,
        **given,
    )
    assert (Contest.of(allowed).winners == 1).all()


@pytest.mark.slow  # exports each model
def test_exports_are_compared_and_promoted_with_their_models(cluster, store) -> None:
    given = {"store": store, "cluster": cluster}
    export_models("night", data=sales(1), run_id="night-onnx", **given)
    # Of two candidates that differ in their form alone, the exports are as good: a tie.
    run = compare_models(sales(2), "key", ["night", "night-onnx"], "value", run_id="forms", **given)
    contest = Contest.of(run)
    assert contest.values[:, 0] == pytest.approx(contest.values[:, 1])
    run = compare_models(sales(2), "key", ["old", "night-onnx"], "value", run_id="onnx", **given)
    promote = {"comparison": "onnx", "require": "onnx", "store": store}
    done = promote_models("exported", **promote)
    assert done.decision.counts == {"new": KEYS}
    row = done.catalog.row(1)
    assert (row["run_id"], row["onnx"]["run_id"]) == ("night", "night-onnx")
    values = sales(3).select(["x"])
    native, onnx = (done.catalog.model(1, format=form) for form in ("native", "onnx"))
    assert onnx.predict(values) == pytest.approx(native.predict(values.to_pandas()), rel=1e-6)
    again = compare_models(
        sales(2), "key", ["catalog://exported#onnx", "old"], "value", run_id="again", **given
    )
    assert Contest.of(again).candidates == ("exported@1#onnx", "old")
    assert (Contest.of(again).winners == 0).all()
    # Of the models themselves nothing was exported: they are left out, and it says so.
    promote_models("bare", models="old", rule=Everything(), store=store)
    tried = promote_models(
        "bare", models="old", rule=Everything(), require="onnx", dry_run=True, store=store
    )
    assert tried.decision.reasons == [("kept", "it has no proved export to ONNX", KEYS)]
