import datetime as dt
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from partwise.catalogs.kept_rows import About, kept_files, read_kept, write_kept
from partwise.client import Client
from partwise.errors import InputError, IntegrityError, SignatureError, StoreError
from partwise.runs.run import ONLY
from partwise.serving.app import make_app
from partwise.serving.columns import columns_of_rows
from partwise.serving.kept_requests import KeepOptions, KeptRequests
from partwise.serving.process import Service
from partwise.serving.questions import Question
from partwise.serving.served import PredictorOptions
from partwise.serving.server_options import ServerOptions
from partwise.store.store import Store
from tests.serving.loopback import listening
from tests.serving.scales import Scales, make_predictor
from tests.serving.test_client import KINDS, STORES, keys_of


@pytest.fixture
def store(tmp_path):
    return Store.parse(tmp_path / "store")


class Keeper:
    """Answers questions and has them kept."""

    def __init__(self, predictor, kept):
        self.predictor, self.kept = predictor, kept

    def ask(self, rows, key=ONLY, request_id="id", **options):
        columns, n_rows = columns_of_rows(rows)
        question = Question(columns=columns, n_rows=n_rows, key=key, **options)
        answer = self.predictor.answer(question)
        self.kept.offer(question, answer, self.predictor.current, request_id)
        return answer


@contextmanager
def keeping(predictor, store, **options):
    kept = KeptRequests(store, predictor.name, KeepOptions(**{"fraction": 1, **options}))
    try:
        yield Keeper(predictor, kept)
    finally:
        kept.close()


def all_rows(store):
    return read_kept(store, "served://sales", lambda *_: True)


def test_a_row_has_what_was_asked_and_what_came_of_it(store):
    predictor = make_predictor(store, {"a": 2.0, "b": 3.0}, STORES)
    before = dt.datetime.now(dt.UTC)
    with keeping(predictor, store) as keeper:
        keeper.ask([{"price": 1}, {"price": None}], "a", "first")
        keeper.ask({"store": ["b", "?"], "price": [2.5, 1.0]}, ONLY, "second", on_missing="null")
        assert keeper.kept.left_out == 0
    found = all_rows(store)
    rows = found.rows.to_pylist()

    assert len(kept_files(store, "sales")) == 1
    assert (found.about.version, found.about.levels) == (1, ("run://sales",))
    assert found.about.key_columns == ("store",)
    assert [row.pop("answered_at") >= before for row in rows] == [True] * 3
    same = {"model_run": "sales", "model_level": 0}
    # What no model has answered, is no prediction.
    assert rows[0] == {
        **same, "price": 1.0, "store": "a", "prediction": 2.0, "model_key": "a", "status": "ok",
        "request_id": "first",
    }  # fmt: skip
    assert (rows[1]["price"], np.isnan(rows[1]["prediction"])) == (None, True)
    assert (rows[2]["store"], rows[2]["prediction"], rows[2]["request_id"]) == ("b", 7.5, "second")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "unsigned"])
def test_keys_of_every_class_are_kept_as_they_are(store, kind):
    schema, keys = keys_of(kind)
    predictor = make_predictor(store, {key: n + 2.5 for n, key in enumerate(keys)}, schema)
    with keeping(predictor, store) as keeper:
        for key in keys:
            keeper.ask([{"price": 1.0}], key)
    rows = all_rows(store).rows.sort_by("prediction")
    lists = zip(*(key if isinstance(key, tuple) else (key,) for key in keys), strict=True)
    for name, kind_of_column, values in zip(schema.names, schema.types, lists, strict=True):
        expected = pa.array(values, kind_of_column)
        assert rows[name].combine_chunks().cast(kind_of_column).equals(expected) or "nan" in str(
            expected
        )


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.timestamp("us", "UTC")])
def test_null_keys_of_arrow_are_kept_in_the_type_of_the_others(store, kind):
    predictor = make_predictor(store, {None: 2.0}, pa.schema([("a", kind)]))
    with keeping(predictor, store) as keeper:
        keeper.ask(pa.table({"a": pa.nulls(2), "price": [1.0, 2.0]}))
        assert keeper.kept.left_out == 0
    rows = all_rows(store).rows
    assert (rows["a"].type, rows["a"].null_count) == (kind, 2)
    assert rows["prediction"].to_pylist() == [2.0, 4.0]


@pytest.mark.parametrize("name", ["status", "model_key", "request_id", "prediction_3"])
def test_keys_by_a_name_of_the_answer_s_own_are_not_kept(store, name):
    predictor = make_predictor(store, {"a": 2.0}, pa.schema([(name, pa.string())]))
    options = PredictorOptions(format="native", serde=Scales())
    server = ServerOptions(keep_requests=0.1)
    service = Service(reference="run://sales", store=store.url, predictor=options, options=server)
    with pytest.raises(InputError, match=f"keys of a column '{name}'.* --keep-requests"):
        service.app()
    with keeping(predictor, store) as keeper:
        keeper.ask([{"price": 1}], "a")
    # What one prediction has no column of, stands beside it.
    assert keeper.kept.left_out == (name != "prediction_3")


def test_features_by_a_name_of_predictions_are_no_predictions(store):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    features = {"status": ["new"], "prediction": [7.0], "prediction_2": [7.0], "price": [1.0]}
    question = Question(columns=features, n_rows=1, key="a", extra="ignore")
    answer = predictor.answer(question)
    classes = {"prediction_0": np.array([0.25]), "prediction_1": np.array([0.75])}
    with keeping(predictor, store) as keeper:
        keeper.kept.offer(question, replace(answer, outputs=classes), predictor.current, "id")
    (row,) = all_rows(store).rows.to_pylist()
    assert {name: row[name] for name in row if name.startswith("pred")} == {
        "prediction_0": 0.25, "prediction_1": 0.75
    }  # fmt: skip
    assert (row["status"], row["price"]) == ("ok", 1.0)


def test_requests_of_other_types_or_versions_go_to_other_files(store):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    with keeping(predictor, store) as keeper:
        for note in (1, 1.5, None, "text"):
            keeper.ask([{"price": 1.0, "note": note}], "a", extra="ignore")
        question = Question(columns={"price": [1.0]}, n_rows=1, key="a")
        now = predictor.current
        newer = SimpleNamespace(version=2, key_columns=now.key_columns, levels=now.levels)
        answer = replace(predictor.answer(question), version=2)
        keeper.kept.offer(question, answer, newer, "newer")
        keeper.kept.offer(question, answer, now, "of a version that is not served any more")
    files = kept_files(store, "sales")
    assert sorted(version for version, _ in files.values()) == [1, 1, 2]
    assert read_kept(store, "served://sales@2", lambda *_: True).rows["request_id"][0].as_py() == (
        "newer"
    )
    with pytest.raises(InputError, match="several types"):
        all_rows(store)


def test_a_server_keeps_what_it_answers_until_it_ends(store):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    kept = KeptRequests(store, "sales", KeepOptions(fraction=1))
    app = make_app(predictor, ServerOptions(access_log=False), kept)
    with listening(app) as base, Client(f"{base}/predict/sales") as client:
        client.predict(pa.table({"price": [1.0, 2.0]}), "a")
        client.predict([{"price": 3}], "a")
        with pytest.raises(InputError):
            client.predict([{"prise": 4}], "a")
    rows = all_rows(store).rows
    assert rows["prediction"].to_pylist() == [2.0, 4.0, 6.0]
    assert len(set(rows["request_id"].to_pylist())) == 2


def test_at_its_bounds_it_stops_and_counts_and_what_is_there_stays(store):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    with keeping(predictor, store, rows_per_file=2, most_files=2) as keeper:
        for number in range(7):
            keeper.ask([{"price": float(number)}], "a")
    assert all_rows(store).rows["price"].to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert (keeper.kept.rows, keeper.kept.left_out) == (4, 3)
    # Another server, or this one after a restart, finds it full.
    with keeping(predictor, store, most_bytes=1) as keeper:
        keeper.ask([{"price": 9.0}], "a")
    assert (keeper.kept.rows, keeper.kept.left_out) == (0, 1)


def test_a_sample_is_kept(store):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    with keeping(predictor, store, fraction=0.5) as keeper:
        for _ in range(400):
            keeper.ask([{"price": 1.0}], "a")
    assert 120 < keeper.kept.rows < 280
    assert keeper.kept.left_out == 0


def test_rows_are_written_after_a_while_however_few_they_are(store):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    written = threading.Event()

    class Watched(Store):
        def create(self, path, data):
            super().create(path, data)
            written.set()

    with keeping(predictor, Watched(url=store.url), seconds=0.01) as keeper:
        keeper.ask([{"price": 1.0}], "a")
        assert written.wait(60)


def test_an_answer_waits_for_no_store_and_fails_with_none(store, caplog):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    blocked, go = threading.Event(), threading.Event()

    class Slow(Store):
        def create(self, path, data):
            blocked.set()
            assert go.wait(60)
            raise StoreError("The disk is full.")

    with keeping(predictor, Slow(url=store.url), rows_per_file=1) as keeper:
        keeper.ask([{"price": 1.0}], "a")
        assert blocked.wait(60)
        question = Question(columns={"price": [1.0]}, n_rows=1, key="a")
        answer = predictor.answer(question)
        for _ in range(1_010):
            keeper.kept.offer(question, answer, predictor.current, "id")
        keeper.ask({"price": [1.0] * 600_000}, "a")
        # The queue has room for 1,000.
        assert keeper.kept.left_out == 11
        go.set()
    assert (keeper.kept.rows, keeper.kept.left_out) == (0, 1_012)
    assert caplog.messages == [
        "Requests are not kept: too many wait.",
        "Requests are not kept: The disk is full.",
    ]


@pytest.mark.parametrize("options", [{"fraction": 0}, {"fraction": 2}, {"rows_per_file": 0}])
def test_options_that_keep_nothing_are_refused(options):
    with pytest.raises(InputError, match=f"{next(iter(options))}="):
        KeepOptions(**{"fraction": 1, **options})


ABOUT = About(version=7, key_columns=("store",), levels=("catalog://sales@7",))
ROWS = pa.table(
    {"store": [1, 2], "answered_at": pa.array([0, 1], pa.timestamp("us", "UTC")), "x": [0.5, 1.5]}
)


def test_a_changed_byte_of_kept_rows_is_found(store):
    write_kept(store, "sales", ROWS, ABOUT)
    path = Path(store.url, *kept_files(store, "sales"))
    whole = path.read_bytes()
    assert all_rows(store).rows.equals(ROWS)
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(IntegrityError, match="damaged"):
            all_rows(store)


def test_with_keys_only_rows_are_read_that_they_signed_for_this_model(store, request):
    write_kept(store, "sales", ROWS, ABOUT)
    request.getfixturevalue("configured_key")
    with pytest.raises(SignatureError):
        all_rows(store)
    Path(store.url, *kept_files(store, "sales")).unlink()
    write_kept(store, "sales", ROWS, ABOUT)
    assert all_rows(store).rows.equals(ROWS)
    Path(store.url, "served", "sales").rename(Path(store.url, "served", "other"))
    with pytest.raises(SignatureError):
        read_kept(store, "served://other", lambda *_: True)


def test_rows_whose_description_is_too_deep_are_damaged(store, monkeypatch):
    deep = SimpleNamespace(dumps=lambda _: "[" * 200_000)
    monkeypatch.setattr("partwise.catalogs.kept_rows.json", deep)
    write_kept(store, "sales", ROWS, ABOUT)
    with pytest.raises(IntegrityError, match="damaged"):
        all_rows(store)
