"""Predictors from inside: which model answers, what is loaded, and what a new version changes."""

import datetime as dt
import json
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.errors import (
    ColumnError,
    InputError,
    IntegrityError,
    KeyClassError,
    ModelNotFoundError,
    PartitionNotFoundError,
    SourceError,
)
from partwise.models.plain_models import Design, LinearModel
from partwise.serving.columns import columns_of_json
from partwise.serving.errors import DeadlineError, VersionNotServedError
from partwise.serving.keys import key_of_json
from partwise.serving.model_cache import ModelCache
from partwise.serving.plain_json import render_json
from partwise.serving.predictor import Predictor
from partwise.serving.protocol import InferRequest, render_infer_response
from partwise.serving.questions import Question
from partwise.serving.served import PredictorOptions, open_served
from partwise.serving.served_model import ServedModel
from tests.one_catalog import promote
from tests.serving.constants import Constants, Typed, predictor, train

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"b": 20.0, "d": 40.0}
PAIRS = pa.schema([("region", pa.string()), ("key", pa.string())])


@pytest.fixture
def one(local_store):
    train(local_store, "first", FIRST)
    promote(local_store, "first")
    return local_store


def said(found: pa.Table) -> list[float | None]:
    return found["prediction"].to_pylist()


def ask(key, n_rows: int = 1) -> Question:
    return Question(columns={}, n_rows=n_rows, key=key)


class OfWeekdays(Constants):
    """Reads models that predict the weekday of their key."""

    def read(self, file_path: str) -> LinearModel:
        design = Design(names=("key@weekday",), categories={}, fills=(0.0,), one_hot=True)
        zero, one = np.zeros(1), np.ones(1)
        return LinearModel(
            design=design,
            centres=zero,
            scales=one,
            weights=np.ones((1, 1)),
            intercepts=zero,
            link="identity",
        )


def damage(store, run_id: str) -> None:
    for path in Path(store.url, "runs", run_id, "bundles").iterdir():
        content = bytearray(path.read_bytes())
        # The text of each model: any of its bytes may change and leave a zip.
        for place in range(30, len(content)):
            content[place] ^= 1
        path.write_bytes(content)


def test_rows_of_one_key_and_of_many_are_answered_in_their_order(one) -> None:
    found = predictor(one).predict([{"x": 1}, {"x": 2}], "b")
    assert said(found) == [2, 2]
    assert found["model_run"].to_pylist() == ["first", "first"]
    assert found["model_key"].to_pylist() == ["b", "b"]
    rows = [{"key": key} for key in "cabca"]
    many = predictor(one).predict(rows)
    assert said(many) == [3, 1, 2, 3, 1]
    assert many["model_key"].to_pylist() == list("cabca")
    assert many.equals(predictor(one).predict(pa.table({"key": list("cabca")})))
    assert predictor(one).predict({"key": []}).num_rows == 0


def test_features_may_be_made_of_a_key_that_stands_beside_the_rows(local_store) -> None:
    day, serde = dt.date(2026, 3, 4), OfWeekdays()
    train(local_store, "run", {day: 1.0}, keys=pa.schema([("key", pa.date32())]), serde=serde)
    promote(local_store, "run")
    served = predictor(local_store, serde=serde)
    assert said(served.predict({"key": [day]})) == [day.weekday()]
    assert said(served.predict([{}], day)) == [day.weekday()]


def test_a_key_without_a_model_is_named_and_no_other(one) -> None:
    with pytest.raises(PartitionNotFoundError) as caught:
        predictor(one).predict([{}], "zebra")
    assert "'zebra'" in str(caught.value)
    assert not any(f"'{key}'" in str(caught.value) for key in FIRST)
    found = predictor(one).predict({"key": ["a", "zebra", "b"]}, on_missing="null")
    assert said(found)[::2] == [1, 2]
    assert np.isnan(said(found)[1])
    assert found["status"].to_pylist() == ["ok", "no model", "ok"]
    assert found["model_level"].to_pylist() == [0, None, 0]
    with pytest.raises(ColumnError, match="send the column 'key'"):
        predictor(one).predict([{"x": 1}])


KEYS = [
    (pa.int64(), 7, ["7", 7.0, True, [7, 8], {"key": 7, "other": 1}]),
    (pa.string(), "7", [7, True, 7.0]),
    (pa.float64(), 1.0, ["1", True]),
    (pa.bool_(), True, [1, "true"]),
    (pa.date32(), dt.date(2026, 3, 1), [20260301, "March"]),
    (pa.timestamp("us"), dt.datetime(2026, 3, 1, 12), ["2026-03-01T12:00:00Z", 5]),  # noqa: DTZ001
    (
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC),
        ["2026-03-01T12:00:00", 5],
    ),
    (pa.decimal128(9, 2), Decimal("19.90"), [19.9, "cheap"]),
    (pa.binary(), b"\x00\xff", ["xyz", 1]),
]


@pytest.mark.parametrize(("kind", "key", "others"), KEYS, ids=lambda each: str(each)[:20])
def test_keys_of_each_class_are_found_by_their_json_and_no_others_are(
    local_store, kind, key, others
) -> None:
    train(local_store, "run", {key: 1.0, None: 2.0}, keys=pa.schema([("key", kind)]))
    promote(local_store, "run")
    served = predictor(local_store)
    columns = served.current.key_columns
    text = {bytes: lambda: key.hex(), Decimal: lambda: str(key)}.get(type(key))
    json = text() if text else key.isoformat() if hasattr(key, "isoformat") else key
    for value in (json, [json], {"key": json}):
        assert said(served.predict([{}], key_of_json(value, columns))) == [1]
    assert said(served.predict([{}], key_of_json(None, columns))) == [2]
    assert said(served.predict({"key": [json, None, json]})) == [1, 2, 1]
    assert said(served.predict(pa.table({"key": pa.array([key, None], kind)}))) == [1, 2]
    for other in others:
        with pytest.raises(KeyClassError):
            served.predict([{}], key_of_json(other, columns))
        with pytest.raises(KeyClassError):
            served.predict({"key": [json, other]})


def test_a_key_and_rows_of_another_key_are_refused(one) -> None:
    served = predictor(one)
    for rows in ([{"key": "b"}], pa.table({"key": ["b"]})):
        assert said(served.predict(rows, "b")) == [2]
        with pytest.raises(InputError, match="others in the column 'key'"):
            served.predict(rows, "a")


TWICE = pd.DataFrame([[1, 2]], columns=["x", "x"])


@pytest.mark.parametrize(
    ("rows", "kind", "sentence"),
    [
        (pa.table([[1], [2]], names=["x", "x"]), ColumnError, "more than one column named 'x'"),
        (TWICE, ColumnError, "more than one column named 'x'"),
        ({1: [1], "1": [2]}, ColumnError, "more than one column named '1'"),
        (pd.DataFrame({"x": [1, "a"]}), ColumnError, "of types int, str, which have no common"),
        ([{1: 1, "1": 2}], ColumnError, "more than one column named '1'"),
        ({"x": 1}, InputError, "column 'x' is 1 and no list of values"),
        ({"x": np.array(2.5)}, InputError, r"column 'x' is array\(2.5\) and no list of values"),
        ({"x": {"a": 1}}, InputError, "column 'x' is {'a': 1} and no list of values"),
        ({"x": "abc"}, InputError, "column 'x' is 'abc' and no list of values"),
        (TWICE["x"].iloc[0], SourceError, "The Series cannot be read through Arrow"),
        (np.ones((2, 2)), InputError, "and not a ndarray"),
    ],
)
def test_rows_that_are_none_are_refused(one, rows, kind, sentence) -> None:
    with pytest.raises(kind, match=sentence):
        predictor(one).predict(rows, "a")


@pytest.mark.parametrize(("name", "value"), [("extra", "ignored"), ("on_missing", None)])
def test_a_choice_that_there_is_not_is_refused(one, name, value) -> None:
    with pytest.raises(InputError, match=f"{name} is {value!r}: it is 'fail' or "):
        predictor(one).predict([{"x": 1}], "a", **{name: value})


def test_columns_of_a_mapping_may_be_arrays_of_arrow(one) -> None:
    found = predictor(one).predict({"key": pa.array(["a", "b"]), "x": np.arange(2)})
    assert said(found) == [1, 2]


def test_times_of_the_day_are_text_in_json() -> None:
    def column(*texts: str | None) -> list[dt.time | None]:
        table = columns_of_json({"t": texts}, len(texts), encoded=(), times={"t": None})
        return table["t"].to_pylist()

    half_past = dt.time(8, 30)
    assert column("08:30", None, "08:30:00", "23:59:59.5") == [
        half_past,
        None,
        half_past,
        dt.time(23, 59, 59, 500_000),
    ]
    assert column("08:30:00.5") == [dt.time(8, 30, 0, 500_000)]
    for text in ("08:61", "08:30+02:00", "08:"):
        with pytest.raises(ColumnError, match="dates or times in ISO 8601"):
            column(text)


def test_one_and_true_and_one_point_zero_are_never_one_key(local_store) -> None:
    train(local_store, "run", {1: 1.0}, keys=pa.schema([("key", pa.int64())]))
    promote(local_store, "run")
    served = predictor(local_store)
    assert said(served.predict([{}], 1)) == [1]
    for other in (True, 1.0):
        with pytest.raises(KeyClassError):
            served.predict([{}], other)


def test_the_same_time_of_day_twice_in_an_autumn_night_is_two_keys(local_store) -> None:
    first = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Zurich"))
    second = first.replace(fold=1)
    zoned = pa.schema([("key", pa.timestamp("us", "UTC"))])
    moments = [each.astimezone(dt.UTC) for each in (first, second)]
    train(local_store, "run", dict(zip(moments, (1.0, 2.0), strict=True)), keys=zoned)
    promote(local_store, "run")
    served = predictor(local_store)
    assert [said(served.predict([{}], key)) for key in (first, second)] == [[1], [2]]
    assert said(served.predict({"key": [first, second, first]})) == [1, 2, 1]
    for rows in ({"key": [second]}, pa.table({"key": [second]})):
        with pytest.raises(InputError, match="others in the column 'key'"):
            served.predict(rows, first)
    assert said(served.predict({"key": moments[:1]}, first)) == [1], "another zone"


@pytest.mark.parametrize(
    ("keys", "dtype", "datatype"),
    [
        (["float32", "float64"], "float64", "FP64"),
        (["float32", "?"], "float64", "FP64"),
        (["float64", "int64"], "float64", "FP64"),
        (["float32", "float32"], "float32", "FP32"),
        (["int64", "int64"], "int64", "INT64"),
        (["int64", "none"], "object", "INT64"),
        (["bool", "bool"], "bool", "BOOL"),
        (["bool", "none"], "object", "BOOL"),
        (["U9", "float32"], "object", "BYTES"),
        (["U9", "?"], "object", "BYTES"),
        (["bool", "int64"], "object", "BYTES"),
    ],
)
def test_the_neighbours_of_a_row_do_not_change_its_answer(
    local_store, keys, dtype, datatype
) -> None:
    value = 16777217.1  # that no float32 holds
    types = ("float32", "float64", "int64", "bool", "U9")
    train(local_store, "typed", dict.fromkeys(types, value), serde=Typed())
    promote(local_store, "typed")
    fallback = (0.1,) if "?" in keys else ()
    served = predictor(local_store, serde=Typed(), fallback=fallback)
    alone = {"?": 0.1, "none": None} | {key: np.array(value).astype(key).item() for key in types}
    for order in (keys, keys[::-1]):
        asked = {"key": order}
        question = Question(columns=asked, n_rows=2, on_missing="null")
        answer = served.answer(question)
        found = answer.outputs["prediction"]
        assert (found.dtype, found.tolist()) == (dtype, [alone[key] for key in order])
        body = render_infer_response(
            answer, "sales", InferRequest(question=question, id=None, outputs=())
        )
        assert json.loads(body)["outputs"][0]["datatype"] == datatype
        if datatype != "BYTES":
            assert said(answer.to_arrow()) == found.tolist()
        else:
            with pytest.raises(InputError, match="numbers and text: ask for the rows"):
                answer.to_arrow()


def test_levels_are_asked_in_turn_and_the_answer_says_which(local_store) -> None:
    train(local_store, "pairs", {("n", "a"): 1.0, ("s", "a"): 2.0}, keys=PAIRS)
    train(local_store, "regions", {"n": 10.0, "w": 30.0}, keys=pa.schema([("region", pa.string())]))
    promote(local_store, "pairs")
    promote(local_store, "regions", "regions")
    rows = {"region": ["n", "n", "s", "w", "x"], "key": ["a", "b", "a", "a", "a"]}
    found = predictor(local_store, fallback=("catalog://regions", 0.5)).predict(rows)
    assert said(found) == [1, 10, 2, 30, 0.5]
    assert found["model_level"].to_pylist() == [0, 1, 0, 1, 2]
    assert found["model_key"].to_pylist() == ["n,a", "n", "s,a", "w", ""]
    with pytest.raises(InputError, match="without 'key'"):
        predictor(local_store, "catalog://regions", fallback=("run://pairs",))
    with pytest.raises(InputError, match="before its end"):
        predictor(local_store, fallback=(0.5, "catalog://regions"))
    for wrong, reason in [(10**400, "a int that .* too large"), ([1], "a list that .* not 'list'")]:
        with pytest.raises(InputError, match=f"fallback ends with {reason}"):
            PredictorOptions(fallback=("catalog://regions", wrong))


def test_a_model_that_cannot_be_read_is_the_next_level_s_or_an_error(one) -> None:
    train(one, "other", {"a": 100.0})
    damage(one, "first")
    assert said(predictor(one, fallback=("run://other",)).predict([{}], "a")) == [100]
    assert said(predictor(one, fallback=(7,)).predict([{}], "a")) == [7]
    with pytest.raises(IntegrityError):
        predictor(one).predict([{}], "a")


def test_a_retired_key_has_no_model_and_an_export_is_not_made_up(one) -> None:
    Catalog.open("sales", one).retire(["a"])
    with pytest.raises(PartitionNotFoundError):
        predictor(one).predict([{}], "a")
    with pytest.raises(ModelNotFoundError, match="--format native"):
        predictor(one, format="onnx")


def test_a_model_is_loaded_once_however_many_ask(one) -> None:
    served = predictor(one)
    begin = threading.Barrier(8)
    load, waits = served._load, threading.Event()

    def slow(*arguments):
        waits.wait(10)
        return load(*arguments)

    served._load = slow
    answers = []

    def question() -> None:
        begin.wait(10)
        answers.append(served.answer(ask("a")).outputs["prediction"][0])

    threads = [threading.Thread(target=question) for _ in range(8)]
    for thread in threads:
        thread.start()
    waits.set()
    for thread in threads:
        thread.join(10)
    assert answers == [1] * 8
    assert served.cache.loads == 1
    assert served.is_warm(ask("a"))
    assert not served.is_warm(ask("b"))


def test_models_leave_when_others_need_the_room(one) -> None:
    served = predictor(one)
    served.predict([{}], "a")
    size = served.cache.bytes
    served.cache.most_bytes = 2 * size + size // 2
    for key in "bab":
        served.predict([{}], key)
    served.predict([{}], "c")
    assert [served.is_warm(ask(key)) for key in "abc"] == [False, True, True]
    assert served.cache.bytes == 2 * size
    served.cache.most_bytes = 1
    assert said(served.predict({"key": ["a", "b", "c"]})) == [1, 2, 3]
    assert len(served.cache) == 1


def test_a_load_that_failed_is_tried_again(one) -> None:
    cache = ModelCache()
    place = predictor(one).current.levels[0].place(Catalog.open("sales", one).partition_id("a"))

    def fail():
        raise OSError("the store is away")

    with pytest.raises(OSError, match="away"):
        cache.load(place, fail)
    assert place not in cache
    served = predictor(one)
    assert cache.load(place, lambda: served.model_of("a")) is cache.load(place, fail)


def test_an_answer_that_takes_too_long_is_given_up_between_models(one) -> None:
    with pytest.raises(DeadlineError):
        predictor(one).answer(ask("a"), deadline=time.monotonic() - 1)


def test_a_new_version_answers_once_its_models_are_loaded(one) -> None:
    served = predictor(one, also=(1,))
    assert said(served.predict({"key": ["a", "b"]})) == [1, 2]
    assert not served.refresh()
    train(one, "second", SECOND)
    promote(one, "second")
    began = served.current
    assert served.refresh()
    assert (served.current.version, began.version) == (2, 1)
    # b had been asked for, d had not; a is the very same model.
    assert [served.is_warm(ask(key)) for key in "abd"] == [True, True, False]
    assert served.cache.loads == 3
    assert said(served.predict({"key": ["a", "b", "d"]})) == [1, 20, 40]
    assert said(served.predict([{}], "b", version=1)) == [2]
    assert served.versions() == [2, 1]
    with pytest.raises(VersionNotServedError, match="2, 1 is"):
        served.predict([{}], "b", version=3)
    Catalog.open("sales", one).rollback(1)
    assert served.refresh()
    assert (served.current.version, said(served.predict([{}], "b"))) == (3, [2])


@pytest.mark.parametrize("what", ["document", "table", "models"])
def test_a_bad_version_changes_nothing_until_a_good_one_follows(one, what) -> None:
    served = predictor(one)
    served.predict([{}], "b")
    train(one, "second", SECOND)
    version = promote(one, "second")
    if what == "models":
        damage(one, "second")
    else:
        folder = Path(one.url, "catalogs", "sales")
        path = folder / {"document": "versions/0002.json"}.get(what, version.document.table.path)
        path.write_bytes(path.read_bytes()[:-9])
    for _ in range(2):
        assert not served.refresh()
        assert served.refused is not None
        assert served.refused.reference == "catalog://sales@2"
        assert said(served.predict([{}], "b")) == [2]
    if what == "models":
        Catalog.open("sales", one).rollback(1)
        assert served.refresh()
        assert served.refused is None
        assert (served.current.version, said(served.predict([{}], "b"))) == (3, [2])


def test_a_version_of_which_a_serde_raises_an_error_is_refused_as_others_are(
    one, monkeypatch
) -> None:
    served = predictor(one)
    served.predict([{}], "b")
    train(one, "second", SECOND)
    promote(one, "second")
    tries = []

    def read(self, file_path: str):
        tries.append(file_path)
        raise ModuleNotFoundError("No module named 'theirs'")

    monkeypatch.setattr(Constants, "read", read)
    for _ in range(2):
        assert not served.refresh()
        assert isinstance(served.refused.error, ModuleNotFoundError)
        assert said(served.predict([{}], "b")) == [2]
    assert len(tries) == 1


def test_a_refused_version_is_tried_again_less_and_less_often(one, monkeypatch) -> None:
    served = predictor(one)
    train(one, "second", SECOND)
    promote(one, "second")
    path = Path(one.url, "catalogs/sales/versions/0002.json")
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    tries: list[float] = []
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def opened(*args):
        tries.append(now - 1000)
        return open_served(*args)

    monkeypatch.setattr("partwise.serving.predictor.open_served", opened)
    while now < 4000:
        assert not served.refresh()
        now += 2
    assert tries == [0, 8, 24, 56, 120, 248, 504, 1016, 1616, 2216, 2816]
    path.write_bytes(content)
    now += 600
    assert served.refresh()
    assert (served.current.version, served.refused) == (2, None)


def test_a_predictor_that_is_closed_stops_warming(one, monkeypatch) -> None:
    served = predictor(one, warm="all")
    train(one, "second", SECOND)
    promote(one, "second")
    loaded = Predictor.loaded
    loads = []

    def close_first(self, level, place):
        self.close()
        loads.append(place)
        return loaded(self, level, place)

    monkeypatch.setattr(Predictor, "loaded", close_first)
    assert not served.refresh()
    assert (len(loads), served.current.version, served.refused) == (1, 1, None)


def test_a_named_version_and_a_run_stay_what_they_are(one) -> None:
    named, run = predictor(one, "catalog://sales@1"), predictor(one, "run://first")
    train(one, "second", SECOND)
    promote(one, "second")
    assert not named.refresh()
    assert not run.refresh()
    assert said(named.predict([{}], "b")) == said(run.predict([{}], "b")) == [2]
    assert (run.name, run.current.reference) == ("first", "run://first")
    with pytest.raises(InputError, match="nothing that can be served"):
        predictor(one, "sales")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_stays_what_it_is_when_a_catalog_beside_it_has_a_newer_version(one, is_first) -> None:
    train(one, "run", {"a": 7.0})
    names = ["run://run", "catalog://sales"]
    reference, fallback = names if is_first else reversed(names)
    served = predictor(one, reference, fallback=(fallback,))
    train(one, "run", {"a": 8.0})
    train(one, "second", {"b": 20.0})
    Catalog.open("sales", one).retire(["a"])
    promote(one, "second")
    assert served.refresh()
    assert said(served.predict({"key": ["a", "b"]})) == [7, 20]


def test_all_models_can_be_loaded_at_the_start(one) -> None:
    served = predictor(one, warm="all")
    assert all(served.is_warm(ask(key)) for key in FIRST)
    assert served.cache.loads == 3
    served.close()
    assert not served.is_warm(ask("a"))


def test_all_models_of_a_new_version_are_loaded_though_the_old_ones_fill_the_cache(one) -> None:
    size = predictor(one, warm="all").cache.bytes // len(FIRST)
    served = predictor(one, warm="all", cache_bytes=3 * size)
    train(one, "second", {key: 10 * value for key, value in FIRST.items()})
    promote(one, "second")
    assert served.refresh()
    assert [served.is_warm(ask(key)) for key in FIRST] == [True] * 3
    loads = served.cache.loads
    assert said(served.predict({"key": [*FIRST]})) == [10, 20, 30]
    assert served.cache.loads == loads


def test_so_are_those_whose_place_answers_of_the_old_version_take_meanwhile(one, monkeypatch):
    size = predictor(one, warm="all").cache.bytes // len(FIRST)
    served = predictor(one, warm="all", cache_bytes=3 * size)
    train(one, "second", {key: 10 * value for key, value in FIRST.items()})
    promote(one, "second")

    def answer(_: float) -> None:
        assert said(served.predict({"key": [*FIRST]})) == [*FIRST.values()]

    monkeypatch.setattr(served._is_closed, "wait", answer)
    assert served.refresh()
    assert [served.is_warm(ask(key)) for key in FIRST] == [True] * 3
    loads = served.cache.loads
    assert said(served.predict({"key": [*FIRST]})) == [10, 20, 30]
    assert served.cache.loads == loads


def test_predictions_that_json_has_not_are_text(local_store) -> None:
    found = [Decimal("1.50"), b"\x00\xff", dt.timedelta(seconds=1.5), None]
    train(local_store, "run", {"a": 1.0})
    promote(local_store, "run")
    served = predictor(local_store)
    answer = replace(
        served.answer(ask("a", len(found))), outputs={"prediction": np.array(found, object)}
    )
    assert json.loads(render_json(answer, "sales"))["outputs"] == {
        "prediction": ["1.50", "00ff", "1.5", None]
    }


class Named(Constants):
    """Reads models that say their features as CatBoost's do, and predict the length of a text."""

    feature_names_ = ("key", "x")

    def read(self, file_path: str) -> "Named":
        return self

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        return frame["key"].str.len().to_numpy(float) + frame["x"].to_numpy()


class Spelled(Constants):
    """Reads models that say their features as LightGBM's do, and predict a number."""

    def read(self, file_path: str) -> "Spelled":
        return self

    def feature_name(self) -> list[str]:
        return ["unit%20price", "a%0Ab", "%00", "as_is"]

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        return np.full(len(frame), 5.0)


def test_columns_are_known_however_a_library_spells_them() -> None:
    model = ServedModel(Spelled(), None, 0)
    model.check_columns(["unit price", "a\nb", "", "as is", "a%0Ab"], ())
    with pytest.raises(ColumnError, match=r"does not know the columns 'unitprice'"):
        model.check_columns(["unitprice"], ())


def test_features_are_known_by_whichever_name_a_library_has_for_them(local_store) -> None:
    train(local_store, "run", {"abc": 1.0}, serde=Named())
    promote(local_store, "run")
    served = predictor(local_store, serde=Named())
    assert said(served.predict([{"x": 2}], "abc")) == [5]
    with pytest.raises(ColumnError, match=r"does not know the columns 'y'"):
        served.predict([{"x": 2, "y": 1}], "abc")
