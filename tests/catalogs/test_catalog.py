"""Versions of a catalog: what they hold, how they change, and what is refused."""

import dataclasses
import datetime as dt
import json
import threading
from datetime import UTC

import numpy as np
import pyarrow as pa
import pytest

from partwise import Catalog
from partwise.catalogs import commit
from partwise.catalogs.commit import commit_version
from partwise.catalogs.documents import Origin, versions_of
from partwise.catalogs.rows import as_today, champions_of, replaced
from partwise.catalogs.rules import Everything, Retire
from partwise.errors import (
    CatalogConflictError,
    CatalogNotFoundError,
    InputError,
    KeyClassError,
    ModelNotFoundError,
    PartitionNotFoundError,
    RunBusyError,
    SerdeError,
)
from partwise.models.serdes import serde_name
from partwise.planning.promotion import carry_out, prepare_promotion
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.store.lease import Lease
from tests.one_catalog import (
    Words,
    all_words,
    promote,
    said,
    schema,
    train,
    train_and_promote,
    words,
)
from tests.run_maker import RunMaker

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"b": 20.0, "d": 4.0}


def test_a_promotion_makes_a_version_that_reads_the_models_of_its_runs(store) -> None:
    one = train_and_promote(store, "first", FIRST)
    two = train_and_promote(store, "second", SECOND)
    assert (one.version, two.version, Catalog.open("sales", store).version) == (1, 2, 2)
    assert all_words(store) == {1: said(FIRST), 2: said({**FIRST, **SECOND})}
    opened = Catalog.open("catalog://sales@2", store)
    assert [run.run_id for run in opened.runs] == ["first", "second"]
    row = opened.row("b")
    assert (row["run_id"], row["generation"], row["since_version"]) == ("second", 1, 2)
    assert (row["metrics"], row["rows"], row["pinned"], row["retired"]) == (
        {"value": 20.0},
        1,
        False,
        False,
    )
    assert opened.row("a") == one.row("a")
    assert opened.table.equals(two.table)
    assert words(opened)["b"] == Run.open("second", store).model("b", Words())


def test_one_key_is_read_without_the_table(local_store, monkeypatch) -> None:
    monkeypatch.setattr(commit, "ROWS_PER_GROUP", 2)
    train_and_promote(local_store, "run", {f"k{i}": float(i) for i in range(9)})
    opened = Catalog.open("sales", local_store)
    assert opened._file.metadata.num_row_groups == 5
    for i in range(9):
        assert opened.row(f"k{i}")["metrics"] == {"value": float(i)}
        assert opened.model(f"k{i}", Words()) == f"k{i} {float(i)}"
    assert "table" not in vars(opened)
    assert opened.row(opened.partition_id("k3")) == opened.row("k3")
    with pytest.raises(PartitionNotFoundError, match=r"does not have the key 'K3'. Did you mean"):
        opened.row("K3")


def test_what_is_not_there_is_named_with_what_is(local_store) -> None:
    with pytest.raises(CatalogNotFoundError, match=r"no catalog 'sales' .+ none; partwise promote"):
        Catalog.open("sales", local_store)
    train_and_promote(local_store, "run", FIRST)
    with pytest.raises(CatalogNotFoundError, match="has no version 3; it has 1"):
        Catalog.open("sales@3", local_store)
    with pytest.raises(CatalogNotFoundError, match=r"no catalog 'slaes'.+\(.*there: sales\)"):
        Catalog.open("slaes", local_store)
    for wrong in ("sales@x", "a/b", "../x", "catalog://"):
        with pytest.raises(InputError):
            Catalog.open(wrong, local_store)
    with pytest.raises(SerdeError, match="Words"):
        Catalog.open("sales", local_store).model("a")


def test_the_same_again_is_the_same_version_and_no_change_is_none(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    assert promote(local_store, "first").version == 1
    train(local_store, "second", SECOND)
    two = promote(local_store, "second", base=one)
    again = promote(local_store, "second", base=one)
    assert (again.version, again.document) == (2, two.document)
    # Nothing of the attempt is left.
    assert len(local_store.list("catalogs/sales/tables/")) == 2
    assert len(local_store.list("runs/second/held/")) == 1


def test_of_two_promotions_of_one_base_the_other_hears_who_was_first(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    for name in ("second", "third"):
        train(local_store, name, {"b": 5.0 if name == "second" else 6.0})
    promote(local_store, "second", base=one, by=0.02)
    with pytest.raises(CatalogConflictError, match=r"Version 2 .+@.+ by promote \(run second, by"):
        promote(local_store, "third", base=one)
    assert all_words(local_store)[2] == said({**FIRST, "b": 5.0})
    assert local_store.list("runs/third/held/") == []
    # Also with the one that was made since removed.
    promote(local_store, "third")
    versions_of(local_store, "sales").remove(2)
    with pytest.raises(CatalogConflictError, match="made and removed since version 1"):
        promote(local_store, "third", base=one)


def test_many_at_once_make_one_version(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    names = [f"r{i}" for i in range(4)]
    for i, name in enumerate(names):
        train(local_store, name, {"a": 10.0 + i})
    made, refused = [], []

    def at_work(name: str) -> None:
        try:
            made.append(promote(local_store, name, base=one))
        except CatalogConflictError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=at_work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 3)
    assert versions_of(local_store, "sales").there() == [1, 2]
    assert words(made[0]) == all_words(local_store)[2]


def test_one_that_stood_still_makes_no_version(local_store, monkeypatch) -> None:
    train(local_store, "first", FIRST)
    monkeypatch.setattr(commit, "WITHIN_S", 0.0)
    with pytest.raises(CatalogConflictError, match="stood still for so long"):
        promote(local_store, "first")
    assert local_store.list("catalogs/") == []
    assert local_store.list("runs/first/held/") == []


def test_a_run_at_work_is_refused(local_store) -> None:
    train(local_store, "first", FIRST)
    with Lease.acquire(local_store, "runs/first"), pytest.raises(RunBusyError, match="first"):
        promote(local_store, "first")
    assert promote(local_store, "first").version == 1


def test_promotions_and_collections_of_one_run_wait_for_each_other(local_store) -> None:
    """Both give way, and neither asks another that does, unless it is told to."""
    train(local_store, "first", FIRST)
    lease = Lease.acquire(local_store, "runs/first", gives_way=True)

    def give_way() -> None:
        while not lease.is_wanted():
            pass
        lease.release()

    thread = threading.Thread(target=give_way)
    thread.start()
    assert promote(local_store, "first").version == 1
    thread.join()


def test_pins_stay_and_retired_keys_have_no_model(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    two = one.pin(["a", "b"])
    assert two.table["pinned"].to_pylist() == [True, True, False]
    assert two.pin(["a"]) is two
    three = two.retire(["b", "c"])
    row = three.row("b")
    assert (row["retired"], row["native"], row["run_id"], row["pinned"]) == (
        True,
        None,
        None,
        False,
    )
    assert row["since_version"] == 3
    with pytest.raises(ModelNotFoundError, match=r"'b' of catalog://sales@3 is retired"):
        three.model("b", Words())
    assert words(three) == said({"a": 1.0})
    assert three.model_set().models.num_rows == 1
    four = three.unpin(["a"])
    assert four.document.origin.rule["keys"] == [four.partition_id("a")]
    assert not four.row("a")["pinned"]
    assert words(Catalog.open("sales@1", local_store)) == said(FIRST)
    with pytest.raises(PartitionNotFoundError, match="does not have the key 'x'"):
        four.pin(["a", "x"])
    with pytest.raises(InputError, match="Name the keys to pin"):
        four.pin([])
    for key in ("abc", b"a", 7):
        with pytest.raises(InputError, match=f"retire takes several keys: .* retire.{{2}}{key!r}"):
            four.retire(key)
    with pytest.raises(CatalogConflictError, match=r"Version 3 .+ by retire"):
        two.unpin(["a"])


def test_a_promotion_retires_keys_without_rows(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    unseen = pa.array([None, 1, 1], pa.int32())
    place = one.table.column_names.index("unseen_since")
    table = one.table.set_column(place, "unseen_since", unseen)
    commit_version(
        local_store, "sales", base=one, champions=table, origin=Origin(action="promote", rule={})
    )
    rule = Retire(unseen_for_versions=2)
    planned = prepare_promotion("sales", local_store, rule)
    assert planned.title.endswith("would have 2 keys retired")
    done = carry_out(planned, local_store)
    assert done.title == "catalog://sales@3: 2 keys retired"
    assert words(Catalog.open("sales", local_store)) == said({"a": 1.0})
    assert Catalog.open("sales", local_store).document.origin.rule == {
        "kind": "retire", "unseen_for_versions": 2,
    }  # fmt: skip
    again = carry_out(prepare_promotion("sales", local_store, rule), local_store)
    assert again.title == "catalog://sales@3 stays: nothing changes"
    with pytest.raises(InputError, match="goes by the versions of the catalog alone"):
        prepare_promotion("sales", local_store, rule, models="first")
    with pytest.raises(CatalogNotFoundError):
        prepare_promotion("shops", local_store, rule)


def test_exports_of_other_models_are_refused(local_store) -> None:
    for name in ("one", "two"):
        train(local_store, name, FIRST)
    maker = RunMaker(local_store, "one-onnx", kind="export")
    maker.identity = dataclasses.replace(maker.identity, models=("run://one",))
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    maker.end(1)
    for models, exports, what in (("two", "one-onnx", "exports of 'one'"), ("one", "two", "no")):
        with pytest.raises(InputError, match=f"exports='{exports}' has {what}.*of '{models}' are"):
            prepare_promotion("sales", local_store, Everything(), models=models, exports=exports)
    planned = prepare_promotion(
        "sales", local_store, Everything(), models="run://one@1", exports="one-onnx"
    )
    assert planned.decision.changed == len(FIRST)


def test_a_rollback_is_a_new_version_and_leaves_what_is_pinned(local_store) -> None:
    train_and_promote(local_store, "first", FIRST)
    train(local_store, "second", {"a": 10.0, "b": 20.0, "d": 4.0})
    promote(local_store, "second").pin(["b"])
    three = Catalog.open("sales", local_store)
    four = three.rollback(1)
    assert (four.version, four.document.base) == (4, 3)
    assert words(four) == said({"a": 1.0, "b": 20.0, "c": 3.0})
    assert four.row("b") == three.row("b")
    assert four.row("c") == three.row("c")
    assert four.row("a")["since_version"] == 4
    assert [run.run_id for run in four.runs] == ["first", "second"]
    # What is compared next is what is used, not what was.
    assert promote(local_store, "second").row("a")["since_version"] == 5
    with pytest.raises(CatalogNotFoundError, match="no version 9"):
        four.rollback(9)
    table = four.history("a")
    assert table["version"].to_pylist() == [1, 2, 4, 5]
    assert table["run_id"].to_pylist() == ["first", "second", "first", "second"]
    assert table["action"].to_pylist() == ["promote", "promote", "rollback", "promote"]
    assert four.history("d")["version"].to_pylist() == [2, 5]
    assert four.history("b")["pinned"].to_pylist() == [False, False, True]
    with pytest.raises(PartitionNotFoundError):
        four.history("e")


def test_a_diff_names_what_changed(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    train(local_store, "second", SECOND)
    promote(local_store, "second").pin(["a"])
    last = Catalog.open("sales", local_store).retire(["c"])
    rows = one.diff(last).to_pylist()
    assert {row["key.key"]: row["change"] for row in rows} == {
        "a": "pinned",
        "b": "changed",
        "c": "retired",
        "d": "added",
    }
    assert {row["key.key"]: (row["run_id_before"], row["run_id"]) for row in rows} == {
        "a": ("first", "first"),
        "b": ("first", "second"),
        "c": ("first", None),
        "d": (None, "second"),
    }
    back = {row["key.key"]: row["change"] for row in last.diff(one).to_pylist()}
    assert back == {"a": "unpinned", "b": "changed", "c": "changed", "d": "removed"}
    assert last.diff(last).num_rows == 0


ZONE = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2026, 3, 1, 12)  # noqa: DTZ001 (a naive one)
KEYS = {
    "integer": (schema(k=pa.int64()), [1, 2, -(2**40), None], ["1", 1.5, NOON]),
    "string": (schema(k=pa.string()), ["1", "a/b", "ä ", "", "null", None], [1, 1.0, True]),
    "float": (schema(k=pa.float64()), [1.0, 0.0, float("inf"), None], ["x", NOON]),
    "boolean": (schema(k=pa.bool_()), [True, False, None], [2, "x"]),
    "naive time": (schema(k=pa.timestamp("us")), [NOON, None], [NOON.replace(tzinfo=ZONE), 1]),
    "zoned time": (
        schema(k=pa.timestamp("us", "UTC")),
        [NOON.replace(tzinfo=UTC), None],
        [NOON, "x"],
    ),
    "date": (schema(k=pa.date32()), [dt.date(2026, 3, 1), None], [NOON, 1]),
    "two columns": (
        schema(store=pa.string(), day=pa.int64()),
        [("a", 1), ("a", 2), ("a,b", 1), (None, 1), ("a", None)],
        ["a", ("a", "x"), (1, 1)],
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_each_key_is_its_own_champion_and_a_wrong_class_is_refused(local_store, case) -> None:
    kinds, keys, wrong = KEYS[case]
    kinds = pa.schema(
        [pa.field("a/b" if field.name == "k" else field.name, field.type) for field in kinds]
    )
    values = {key: float(i) for i, key in enumerate(keys)}
    run = train(local_store, "run", values, keys=kinds)
    promote(local_store, "run")
    opened = Catalog.open("sales", local_store)
    assert opened.key_columns == run.key_columns
    for key, value in values.items():
        assert opened.row(key)["metrics"] == {"value": value}
        assert opened.model(key, Words()) == run.model(key, Words())
    for key in wrong:
        if case == "integer" and key == "1":
            continue  # A text that stands for a key, as on the command line.
        with pytest.raises((KeyClassError, PartitionNotFoundError)):
            opened.row(key)
    assert opened.retire(keys[:1]).row(keys[0])["retired"]


def test_minus_zero_is_zero_and_another_zone_is_the_same_time(local_store) -> None:
    train(local_store, "run", {0.0: 1.0}, keys=schema(k=pa.float64()))
    assert promote(local_store, "run").model(-0.0, Words()) == "0.0 1.0"
    moment = NOON.replace(tzinfo=UTC)
    train(local_store, "times", {moment: 1.0}, keys=schema(k=pa.timestamp("us", "UTC")))
    times = promote(local_store, "times", "times")
    assert times.row(moment.astimezone(ZONE)) == times.row(moment)


def test_a_catalog_has_one_key_schema(local_store) -> None:
    train_and_promote(local_store, "texts", {"1": 1.0})
    train(local_store, "numbers", {1: 1.0}, keys=schema(key=pa.int64()))
    train(local_store, "others", {"1": 1.0}, keys=schema(other=pa.string()))
    for name in ("numbers", "others"):
        with pytest.raises(KeyClassError, match="the catalog"):
            promote(local_store, name)
    # Of another width, a class is the same.
    train(local_store, "wide", {"2": 1.0}, keys=schema(key=pa.large_string()))
    assert words(promote(local_store, "wide")) == {"1": "1 1.0", "2": "2 1.0"}


def test_integers_of_a_catalog_are_of_either_sign_where_one_type_holds_all(local_store) -> None:
    signed, unsigned = schema(key=pa.int64()), schema(key=pa.uint64())
    train(local_store, "first", {5: 1.0}, keys=signed)
    promote(local_store, "first")
    train(local_store, "second", {2**64 - 1: 2.0}, keys=unsigned)
    both = promote(local_store, "second")
    assert words(both) == {5: "5 1.0", 2**64 - 1: f"{2**64 - 1} 2.0"}
    assert both.table["key.key"].type == pa.uint64()
    train(local_store, "third", {-1: 3.0}, keys=signed)
    with pytest.raises(KeyClassError, match=r"^The values of 'key\.key' .* the keys -1 and 2"):
        promote(local_store, "third")


def test_rows_that_are_none_are_refused(local_store) -> None:
    train(local_store, "run", FIRST)
    rows = champions_of(Run.open("run", local_store))
    origin = Origin(action="promote")
    for wrong, why in (
        (rows.drop_columns(["reason"]), "have the columns"),
        (pa.concat_tables([rows, rows]), "one row for each key"),
    ):
        with pytest.raises(InputError, match=why):
            commit_version(local_store, "sales", base=None, champions=wrong, origin=origin)
    with pytest.raises(InputError, match="not a safe name"):
        commit_version(local_store, "a.b", base=None, champions=rows, origin=origin)
    base = commit_version(local_store, "sales", base=None, champions=rows, origin=origin)
    with pytest.raises(InputError, match="is not a version of 'other'"):
        commit_version(local_store, "other", base=base, champions=rows, origin=origin)


def test_a_set_of_models_is_that_of_the_named_runs(local_store) -> None:
    train_and_promote(local_store, "first", FIRST)
    train(local_store, "second", SECOND)
    catalog = promote(local_store, "second").refresh()
    found = catalog.model_set()
    assert (found.name, found.key_columns) == ("catalog://sales@2", catalog.key_columns)
    runs = dict(
        zip(found.models["owner"].to_pylist(), found.models["run_id"].to_pylist(), strict=True)
    )
    assert runs == {
        catalog.partition_id(key): run
        for key, run in zip("abcd", ["first", "second", "first", "second"], strict=True)
    }
    assert len(np.unique(found.models["hash"])) == 4
    assert catalog.model_set("onnx").models.num_rows == 0


def test_where_the_champion_is_the_same_the_row_stays_as_it_was(local_store) -> None:
    one = train_and_promote(local_store, "first", FIRST)
    rows = champions_of(Run.open("first", local_store))
    assert replaced(one.table, rows).equals(one.table)
    train(local_store, "first", {**FIRST, "b": 9.0})
    two = replaced(one.table, champions_of(Run.open("first", local_store)))
    # The same bytes of another generation are another model: its run says so.
    assert two["since_version"].to_pylist() == [None, None, None]


def test_the_document_says_how_it_came_about(local_store) -> None:
    train_and_promote(local_store, "first", FIRST)
    content = json.loads(local_store.read("catalogs/sales/versions/0001.json"))
    assert content["origin"]["action"] == "promote"
    assert "@" in content["origin"]["who"]
    assert content["table"]["rows"] == 3
    assert [run["run_id"] for run in content["runs"]] == ["first"]
    assert content["runs"][0]["ledgers"] == ["generations/0001.ledger.parquet"]


def exported(store, of: dict[str, float]) -> Run:
    """Make a run of exports, whose files are words too."""
    maker = RunMaker(store, "exports", "export", serde_name(Words()))
    maker.identity = dataclasses.replace(maker.identity, models=("run://run",))
    maker.begin("overwrite")
    maker.commit(*((key, "DONE", value) for key, value in of.items()))
    return maker.end(len(of))


def test_exports_are_noted_beside_their_models_unless_they_are_older(local_store) -> None:
    train(local_store, "run", {"a": 1.0, "b": 2.0})
    exports = exported(local_store, {"a": 10.0})
    rows = champions_of(Run.open("run", local_store), exports)
    origin = Origin(action="promote")
    catalog = commit_version(local_store, "sales", base=None, champions=rows, origin=origin)
    catalog = Catalog.open("sales", local_store)
    assert catalog.model("a", Words(), format="onnx") == "a 10.0"
    assert catalog.model("a", Words()) == "a 1.0"
    with pytest.raises(ModelNotFoundError, match=r"'b' of .+ has no model in the format 'onnx'"):
        catalog.model("b", Words(), format="onnx")
    with pytest.raises(InputError, match="format is 'pinned': give one of native, onnx"):
        catalog.model("a", Words(), format="pinned")
    models = catalog.model_set("onnx").models.to_pylist()
    assert [(row["run_id"], row["owner"]) for row in models] == [
        ("exports", catalog.partition_id("a"))
    ]
    # The run of exports is drawn on as well.
    assert [run.run_id for run in catalog.runs] == ["exports", "run"]
    with pytest.raises(InputError, match="'exports' is drawn on by catalog://sales@1"):
        remove_run(local_store, "exports")
    train(local_store, "other", {"a": 1.0})
    with pytest.raises(InputError, match="'exports' has no exports of the models of 'other'"):
        champions_of(Run.open("other", local_store), exports)
    # What was exported was the model of before.
    train(local_store, "run", {"a": 5.0, "b": 2.0})
    assert champions_of(Run.open("run", local_store), exports)["onnx"].null_count == 2


def test_a_run_of_one_model_makes_a_catalog_of_one_row(local_store) -> None:
    maker = RunMaker(
        local_store, "one", "train-distributed", serde_name(Words()), keys=schema(rank=pa.int64())
    )
    maker.begin("overwrite")
    maker.commit((0, "DONE", 3.0))
    maker.end(1)
    promote(local_store, "one")
    catalog = Catalog.open("sales", local_store)
    assert (catalog.key_columns, catalog.row()["partition_id"]) == ((), "all")
    assert catalog.model(serde=Words()) == "0 3.0"
    found = catalog.model_set()
    assert (found.key_columns, found.models["hash"].to_pylist()) == ((), [None])
    assert catalog.history()["version"].to_pylist() == [1]
    assert catalog.pin(["all"]).row()["pinned"]
    train(local_store, "many", FIRST)
    many = promote(local_store, "many", "others")
    with pytest.raises(InputError, match="name the key"):
        many.model(serde=Words())


def test_the_table_of_a_version_that_was_made_before_sketches_is_read(local_store) -> None:
    train(local_store, "night", {"a": 1.0, "b": 2.0})
    table = promote(local_store, "night").table

    def without(column, kind):
        array = pa.concat_arrays(column.chunks)
        fields = [array.field(name) for name in kind]
        return pa.StructArray.from_arrays(fields, names=kind, mask=array.is_null())

    files = ["model", "weights", "categories"]
    old = table.set_column(
        table.schema.get_field_index("native"), "native", without(table["native"], files)
    )
    place = old.schema.get_field_index("onnx")
    old = old.set_column(place, "onnx", without(old["onnx"], ["run_id", "generation", *files]))
    assert not old.equals(table)
    today = as_today(old)
    assert today.schema == table.schema
    assert today["native"].null_count == 0
    assert today["onnx"].null_count == 2
    assert today.drop_columns(["native", "onnx"]) == table.drop_columns(["native", "onnx"])
    assert as_today(table) == table
