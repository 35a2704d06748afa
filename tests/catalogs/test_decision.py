"""Rules as pure functions: a comparison and a version in, champions and reasons out."""

import datetime as dt
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from partwise.catalogs.contest import Contest
from partwise.catalogs.decision import Decision, decide, decide_retirement
from partwise.catalogs.rows import COLUMNS
from partwise.catalogs.rules import (
    Everything,
    Improvement,
    NewKeys,
    Retire,
    Rule,
    TheseKeys,
    rule_text,
)
from partwise.errors import InputError
from partwise.evaluation.paired import confidence
from partwise.evaluation.scores import Predicted, find_metric
from partwise.tables.keys.partition_keys import key_columns, partition_id, partition_ids

KEYS = key_columns(pa.schema([("shop", pa.string())]), ["shop"])


def ids(shops: list[str]) -> list[str]:
    return partition_ids(pa.table({"shop": pa.array(shops, pa.string())}), KEYS)


def models(run_id: str, shops: list[str], *, exported: bool = True, **values: Any) -> pa.Table:
    """The models of a run as rows of a catalog; `values` are of all rows."""
    names = ids(shops)
    file = {"filename": "model.txt", "bundle": "bundles/x.zip", "offset": 0, "size_bytes": 1}
    file |= {"stored_bytes": 1, "compression": "", "serde": "lightgbm"}
    rows = [
        {
            "key.shop": shop,
            "partition_id": name,
            "run_id": run_id,
            "generation": 1,
            "owner": name,
            "native": {"model": {**file, "sha256": f"{run_id} {shop}"}},
            "onnx": {"run_id": f"{run_id}-onnx", "generation": 1} if exported else None,
            "rows": 100,
            "metrics": [("holdout_rmse", 1.0)],
            "comparison": "",
            "reason": "",
            "pinned": False,
            "retired": False,
            **values,
        }
        for shop, name in zip(shops, names, strict=True)
    ]
    schema = pa.schema([pa.field("key.shop", pa.string()), *COLUMNS])
    return pa.Table.from_pylist(rows, schema=schema).sort_by("partition_id")


def contest(shops: list[str], values: list[tuple[float, ...]], **given: Any) -> Contest:
    """A comparison of sales@1, night and perhaps others; what is not given speaks for all."""
    table = np.array(values, float).reshape(len(shops), -1)
    n, m = table.shape
    names = ("catalog://sales@1", "run://night@1", "run://other@1")[:m]
    keys = pa.table({"key.shop": shops, "partition_id": ids(shops)})
    usual: dict[str, Any] = {
        "metric": "rmse",
        "maximized": False,
        "confidences": np.full((n, m, m), 0.9999),
        "rows": np.full(n, 60),
        "unlabelled": np.zeros(n, int),
        "lost": np.zeros((n, m), int),
        "seen": np.zeros((n, m), bool),
        "failed": np.zeros((n, m), bool),
        "winners": np.full(n, -1),
    }
    more = {
        key: np.array(value) if isinstance(value, list) else value for key, value in given.items()
    }
    return Contest(
        run_id="cmp", generation=1, references=names, keys=keys, values=table, **usual | more
    )


def test_a_tie_is_no_win_and_is_told_of() -> None:
    values = [(1.0, 1.0), (2.0, 1.0), (NAN, NAN)]
    found = contest(["a", "b", "c"], values, winners=np.array([-1, 1, -1]))
    assert found.standing == "night 1, none 2 (1 of them tied)"


def decided(rule: Rule, *args: Any, base: pa.Table | None = None, **given: Any) -> Decision:
    return decide(rule, *args, key_columns=KEYS, base=base, **given)


def verdict(decision: Decision, shop: str) -> tuple[str, str]:
    row = decision.verdicts.filter(pa.compute.equal(decision.verdicts["key.shop"], shop))
    return row["verdict"][0].as_py(), row["reason"][0].as_py()


def champion(decision: Decision, shop: str) -> dict[str, Any]:
    table = decision.champions
    return table.filter(pa.compute.equal(table["key.shop"], shop)).to_pylist()[0]


NAN = float("nan")
CASES = [
    ((10.0, 9.0), {}, ("replaced", "Improvement()")),
    ((10.0, 9.9), {}, ("kept", "it is better by less than 2 %")),
    ((10.0, 10.0), {}, ("kept", "it is a tie")),
    ((10.0, 11.0), {}, ("kept", "it is worse")),
    ((0.0, 0.0), {}, ("kept", "it is a tie")),
    ((0.0, -1.0), {}, ("kept", "rmse of the champion is 0")),
    ((10.0, 5.0), {"rows": [10]}, ("kept", "fewer rows count than min_rows=50")),
    (
        (10.0, 5.0),
        {"confidences": [[[0.5, 0.01], [0.99, 0.5]]]},
        ("kept", "it may be luck: the confidence is below 0.999"),
    ),
    ((10.0, 5.0), {"lost": [[0, 3]]}, ("kept", "it gave no finite number for some rows")),
    ((10.0, 5.0), {"lost": [[3, 0]]}, ("replaced", "Improvement()")),
    ((10.0, 5.0), {"seen": [[False, True]]}, ("kept", "it was trained on these rows")),
    ((10.0, 5.0), {"seen": [[True, False]]}, ("kept", "the champion was trained on these rows")),
    ((10.0, NAN), {"failed": [[False, True]]}, ("kept", "it raised")),
    ((10.0, NAN), {}, ("kept", "it has no value")),
    ((NAN, 5.0), {}, ("replaced", "Improvement()")),
    ((NAN, 5.0), {"rows": [49]}, ("kept", "fewer rows count than min_rows=50")),
    ((NAN, NAN), {}, ("kept", "it has no value")),
    ((0.8, 0.9), {"metric": "auc", "maximized": True}, ("replaced", "Improvement()")),
    ((0.8, 0.7), {"metric": "auc", "maximized": True}, ("kept", "it is worse")),
]


@pytest.mark.parametrize(("values", "given", "expected"), CASES)
def test_each_clause_refuses_by_its_own_reason(values, given, expected):
    base, night = models("old", ["a"]), models("night", ["a"])
    found = decided(
        Improvement(), [base, night], base=base, contest=contest(["a"], [values], **given)
    )
    assert verdict(found, "a") == expected
    is_new = expected[0] == "replaced"
    assert champion(found, "a")["run_id"] == ("night" if is_new else "old")
    assert found.changed == is_new


def test_a_champion_has_what_it_won_with():
    base, night = models("old", ["a", "b"]), models("night", ["a", "b"])
    values = [(10.0, 8.0), (10.0, 12.0)]
    found = decided(
        Improvement("rmse"), [base, night], base=base, contest=contest(["a", "b"], values)
    )
    row = champion(found, "a")
    assert (row["rows"], dict(row["metrics"]), row["margin"]) == (60, {"rmse": 8.0}, 0.2)
    assert (row["comparison"], row["reason"]) == ("cmp@1", "Improvement(metric='rmse')")
    assert (row["since_version"], row["promoted_at"]) == (None, None), "its version knows"
    untouched = base.filter(pa.compute.equal(base["key.shop"], "b")).to_pylist()[0]
    assert champion(found, "b") == untouched
    assert found.counts == {"replaced": 1, "kept": 1}
    assert found.reasons == [("kept", "it is worse", 1)]


def test_a_key_that_is_named_like_a_column_of_a_comparison_keeps_its_values():
    found = contest(["a", "b"], [(1.0, 2.0), (3.0, 1.0)])
    keys = found.keys.rename_columns(["key.rows", "partition_id"])
    table = replace(found, keys=keys).table
    assert table["key.rows"].to_pylist() == ["a", "a", "b", "b"]
    assert table["rows"].to_pylist() == [60, 60, 60, 60]


def test_pins_stay_and_say_what_would_have_been():
    base = models("old", ["a", "b"], pinned=True)
    night = models("night", ["a", "b"])
    values = [(10.0, 8.0), (10.0, 12.0)]
    for rule in (Improvement(), Everything(), TheseKeys(("a",))):
        found = decided(rule, [base, night], base=base, contest=contest(["a", "b"], values))
        assert found.champions.equals(base)
        assert verdict(found, "a") == ("pinned", "but for that, it would be replaced")
    assert verdict(found, "b")[0] == "pinned"


def test_a_retired_key_comes_back_only_by_its_name():
    base = models("old", ["a"], retired=True, native=None, onnx=None, owner=None)
    night = models("night", ["a"])
    for rule in (Improvement(), Everything(), NewKeys()):
        found = decided(
            rule, [base.slice(0, 0), night], base=base, contest=contest(["a"], [(NAN, 5.0)])
        )
        assert found.champions.equals(base)
        assert verdict(found, "a")[0] == "retired"
    found = decided(TheseKeys(("a",)), [night], base=base)
    assert champion(found, "a")["run_id"] == "night"
    assert not champion(found, "a")["retired"]


def test_keys_that_appear_need_rows_and_a_value_or_always():
    base = models("old", ["a"])
    night = models("night", ["a", "b", "c", "d"])
    shops = ["a", "b", "c", "d"]
    values = [(1.0, 1.0), (NAN, 5.0), (NAN, 5.0), (NAN, NAN)]
    given = {"rows": [60, 60, 10, 60]}
    found = decided(
        Improvement(), [base, night], base=base, contest=contest(shops, values, **given)
    )
    assert verdict(found, "b") == ("new", "Improvement()")
    assert verdict(found, "c") == ("left out", "fewer rows count than min_rows=50")
    assert verdict(found, "d") == ("left out", "it has no value")
    always = Improvement(new="always")
    found = decided(always, [base, night], base=base, contest=contest(shops, values, **given))
    assert [verdict(found, shop)[0] for shop in shops] == ["kept", "new", "new", "new"]
    assert dict(champion(found, "d")["metrics"]) == {}


def test_keys_that_disappear_stay_and_are_marked():
    base, night = models("old", ["a", "b"]), models("night", ["a"])
    found = decided(
        Improvement(), [base, night], base=base, contest=contest(["a"], [(1.0, 2.0)]), version=4
    )
    assert verdict(found, "b") == ("unseen", "the data has no rows of it")
    assert champion(found, "b")["unseen_since"] == 4
    again = decided(
        Improvement(),
        [base, night],
        base=found.champions,
        contest=contest(["a"], [(1.0, 2.0)]),
        version=5,
    )
    assert again.champions.equals(found.champions)
    back = decided(
        Improvement(),
        [base, night],
        base=found.champions,
        contest=contest(["a", "b"], [(1.0, 2.0), (1.0, NAN)]),
        version=6,
    )
    assert champion(back, "b")["unseen_since"] is None


def test_after_a_rollback_it_is_compared_with_what_is_served():
    """The comparison was with version 1, and a rollback has put another model in its place."""
    old, night = models("old", ["a"]), models("night", ["a"])
    served = models("older", ["a"])
    found = decided(Improvement(), [old, night], base=served, contest=contest(["a"], [(10.0, 5.0)]))
    assert verdict(found, "a") == ("kept", "the champion was not compared")


def test_the_same_comparison_again_changes_nothing():
    base, night = models("old", ["a", "b"]), models("night", ["a", "b"])
    sure = np.array([[[0.5, 0.0001], [0.9999, 0.5]], [[0.5, 0.6], [0.4, 0.5]]])
    found_by = contest(["a", "b"], [(10.0, 8.0), (10.0, 12.0)], confidences=sure)
    for rule in (Improvement(), Everything()):
        first = decided(rule, [base, night], base=base, contest=found_by)
        again = decided(rule, [base, night], base=first.champions, contest=found_by)
        assert (first.changed, again.changed) == (1, 0)
        assert again.champions.equals(first.champions)


def test_of_several_the_best_that_may_win_wins():
    base, night, other = (models(name, ["a"]) for name in ("old", "night", "other"))
    by = contest(["a"], [(10.0, 7.0, 8.0)], lost=[[0, 1, 0]])
    assert (
        champion(decided(Improvement(), [base, night, other], base=base, contest=by), "a")["run_id"]
        == "other"
    )


def test_without_a_proved_export_a_model_is_left_out():
    base = models("old", ["a"])
    night = models("night", ["a"], exported=False)
    by = contest(["a"], [(10.0, 5.0)])
    found = decided(Improvement(), [base, night], base=base, contest=by, needs_export=True)
    assert verdict(found, "a") == ("kept", "it has no proved export to ONNX")


def exports_from(run_id: str, table: pa.Table) -> pa.Table:
    """The same models with the exports of another run."""
    onnx = {"run_id": run_id, "generation": 1}
    return pa.Table.from_pylist(
        [{**row, "onnx": onnx} for row in table.to_pylist()], schema=table.schema
    )


def test_these_keys_may_be_the_same_time_of_day_twice_in_an_autumn_night():
    zoned = key_columns(pa.schema([("at", pa.timestamp("us", "UTC"))]), ["at"])
    first = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Zurich"))
    keys = (first, first.replace(fold=1))
    names = pa.chunked_array([[partition_id(key, zoned) for key in keys]])
    night = models("night", ["a", "b"])
    night = night.set_column(night.column_names.index("partition_id"), "partition_id", names)
    assert decide(TheseKeys(keys), [night], key_columns=zoned).counts == {"new": 2}


def test_a_champion_gets_the_export_that_was_made_after_its_promotion():
    at = {"rows": 60, "since_version": 3, "comparison": "cmp@1", "reason": "Improvement()"}
    base = models("old", ["a", "b"], exported=False, pinned=True, **at)
    exported = models("old", ["a", "b"])
    for rule in (Everything(), TheseKeys(("a", "b"))):
        found = decided(rule, [exported], base=base, needs_export=True)
        assert (found.changed, found.exported) == (2, 2)
        assert found.champions.equals(
            base.set_column(base.column_names.index("onnx"), "onnx", exported["onnx"])
        ), "what it won with stays"
    assert verdict(found, "a") == ("pinned", "it is the champion, and has an export now")
    again = decided(Everything(), [exported], base=found.champions, needs_export=True)
    assert (again.changed, again.exported) == (0, 0)
    assert again.champions.equals(found.champions)
    only = decided(TheseKeys(("a",)), [exported], base=base)
    assert (champion(only, "a")["onnx"]["run_id"], champion(only, "b")["onnx"]) == (
        "old-onnx",
        None,
    )
    assert decided(NewKeys(), [exported], base=base).changed == 0
    newer = decided(Everything(), [exports_from("newer", exported)], base=found.champions)
    assert champion(newer, "a")["onnx"]["run_id"] == "newer"
    assert decided(Everything(), [base], base=newer.champions).changed == 0, "it takes none away"


def test_a_champion_that_stays_in_a_comparison_gets_an_export():
    base = models("old", ["a", "b"], exported=False)
    served, night, other = base, models("night", ["a", "b"]), models("old", ["a", "b"])
    by = contest(["a", "b"], [(10.0, 12.0, 10.0), (10.0, 5.0, 10.0)])
    found = decided(Improvement(), [served, night, other], base=base, contest=by)
    assert verdict(found, "a") == ("kept", "it is worse, and the champion has an export now")
    assert (found.changed, found.exported) == (2, 1)
    assert champion(found, "a") == {
        **base.filter(pa.compute.equal(base["key.shop"], "a")).to_pylist()[0],
        "onnx": champion(found, "a")["onnx"],
    }
    assert champion(found, "a")["onnx"]["run_id"] == "old-onnx"
    assert champion(found, "b")["run_id"] == "night"
    # A version that was compared has the export of then, and not that of now.
    now = exports_from("newer", other)
    by = contest(["a", "b"], [(10.0, 12.0), (10.0, 12.0)])
    assert decided(Improvement(), [other, night], base=now, contest=by).champions.equals(now)


def test_of_two_exports_of_a_champion_the_one_that_it_has_stays():
    base, first = models("old", ["a"], exported=False), models("old", ["a"])
    by = contest(["a"], [(10.0, 10.0, 10.0)])
    given = [base, first, exports_from("second", first)]
    found = decided(Improvement(), given, base=base, contest=by)
    assert champion(found, "a")["onnx"]["run_id"] == "old-onnx"
    again = decided(Improvement(), given, base=found.champions, contest=by)
    assert again.champions.equals(found.champions)


def test_a_first_version_of_all_models_of_a_run():
    night = models("night", ["b", "a"])
    found = decided(Everything(), [night])
    assert found.champions["key.shop"].to_pylist() == night["key.shop"].to_pylist()
    assert found.counts == {"new": 2}
    assert dict(champion(found, "a")["metrics"]) == {"holdout_rmse": 1.0}, "those of its training"
    again = decided(Everything(), [night], base=found.champions)
    assert again.changed == 0
    assert verdict(again, "a") == ("kept", "it is the champion")


def test_new_and_named_keys_only():
    base, night = models("old", ["a"]), models("night", ["a", "b", "c"])
    found = decided(NewKeys(), [night], base=base)
    assert verdict(found, "a") == ("kept", "it has a champion")
    assert found.counts == {"new": 2, "kept": 1}
    found = decided(TheseKeys(("c",)), [night], base=base)
    assert found.champions["key.shop"].to_pylist() == sorted(["a", "c"], key=ids_of)
    assert verdict(found, "b") == ("left out", "the rule does not name it")
    with pytest.raises(InputError, match="names the key 'd', of which there is no model"):
        decided(TheseKeys(("d",)), [night], base=base)


def test_a_key_column_may_have_another_width_than_that_of_the_catalog():
    base, night = models("old", ["a", "b"]), models("night", ["a", "c"])
    base = base.set_column(0, "key.shop", base["key.shop"].cast(pa.large_string()))
    found = decided(NewKeys(), [night], base=base)
    assert found.champions["key.shop"].to_pylist() == sorted(["a", "b", "c"], key=ids_of)
    compared = contest(["a"], [(2.0, 1.0)])
    found = decided(Improvement(), [base, night], base=base, contest=compared, version=4)
    assert champion(found, "a")["run_id"] == "night"
    assert verdict(found, "b") == ("unseen", "the data has no rows of it")


def test_keys_that_the_data_lacks_for_long_are_retired():
    gone = models("old", ["gone", "lately"], unseen_since=3)
    gone = gone.set_column(
        gone.column_names.index("unseen_since"),
        "unseen_since",
        pa.array([3 if shop == "gone" else 9 for shop in gone["key.shop"].to_pylist()], pa.int32()),
    )
    base = pa.concat_tables(
        [gone, models("old", ["there"]), models("old", ["pinned"], pinned=True, unseen_since=2)]
    )
    found = decide_retirement(Retire(unseen_for_versions=7), base, 10)
    assert found.changed == 1
    assert verdict(found, "gone") == ("retired", "Retire(unseen_for_versions=7)")
    assert verdict(found, "lately") == ("unseen", "")
    assert verdict(found, "there") == ("kept", "")
    assert verdict(found, "pinned") == ("pinned", "but for that, it would be retired")
    row = champion(found, "gone")
    assert (row["retired"], row["native"], row["unseen_since"]) == (True, None, 3)
    assert champion(found, "lately")["run_id"] == "old"
    again = decide_retirement(Retire(unseen_for_versions=7), found.champions, 11)
    assert again.changed == 0
    assert again.champions.equals(found.champions)
    assert verdict(again, "gone") == ("retired", "it was before")
    assert decide_retirement(Retire(unseen_for_versions=8), base, 10).changed == 0


def ids_of(shop: str) -> str:
    return ids([shop])[0]


def test_an_improvement_needs_a_comparison_by_its_metric():
    night = models("night", ["a"])
    with pytest.raises(InputError, match="goes by a comparison"):
        decided(Improvement(), [night])
    with pytest.raises(InputError, match=r"was made by rmse.*goes by mae"):
        decided(Improvement("mae"), [night, night], contest=contest(["a"], [(1.0, 2.0)]))


def test_a_rule_is_written_as_it_was_said():
    assert rule_text(Improvement("rmse", by_absolute=0.5)) == (
        "Improvement(metric='rmse', by_absolute=0.5)"
    )
    assert rule_text(Everything()) == "Everything()"
    assert rule_text(TheseKeys(tuple("abcdefg"))).endswith("'e', '...'))")


@pytest.mark.parametrize(
    ("given", "key", "written"),
    [
        (np.int64(7), 7, 7),
        (np.str_("a"), "a", "a"),
        (np.datetime64("2026-03-01"), dt.date(2026, 3, 1), "2026-03-01"),
        (np.datetime64("2026-03-01T12", "ns"), dt.datetime(2026, 3, 1, 12), "2026-03-01T12:00:00"),  # noqa: DTZ001
        (pa.scalar(True), True, True),
        (b"\x00\xff", b"\x00\xff", "00ff"),
        (memoryview(b"\xff"), b"\xff", "ff"),
        (dt.timedelta(days=1), dt.timedelta(days=1), "86400"),
        (float("inf"), float("inf"), "inf"),
        (["a", np.int64(1), None], ("a", 1, None), ["a", 1, None]),
    ],
)
def test_keys_of_a_rule_are_values_and_are_written_as_the_command_line_takes_them(
    given, key, written
):
    rule = TheseKeys((given,))
    assert rule.keys == (key,)
    assert rule.model_dump(mode="json")["keys"] == [written]


def test_what_is_no_key_is_none_of_a_rule():
    for value in (np.array([1, 2]), {1}, object(), ("a", 1j)):
        with pytest.raises(InputError, match=r"keys: .* is of type .*, which no key is of"):
            TheseKeys((value,))


@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_of_equally_good_models_next_to_none_is_replaced(correlation):
    """With by=0.02 alone it is more than a third of all keys, every night."""
    n, rows = 2_000, 60
    generator = np.random.default_rng(11)
    shared, *own = generator.normal(size=(3, n, rows))
    metric = find_metric("rmse")
    one, other = (correlation**0.5 * shared + (1 - correlation) ** 0.5 * each for each in own)
    values, sure = np.empty((n, 2)), np.full((n, 2, 2), 0.5)
    zeros = np.zeros(rows)
    for key in range(n):
        pair = [Predicted(labels=zeros, predictions=each[key]) for each in (one, other)]
        values[key] = [metric(each) for each in pair]
        sure[key, 1, 0] = confidence(metric, pair[1], pair[0])
    shops = [f"shop {number}" for number in range(n)]
    base, night = models("old", shops), models("night", shops)
    by = contest(shops, [tuple(each) for each in values], confidences=sure)
    lucky = decided(Improvement(confidence=0), [base, night], base=base, contest=by)
    assert lucky.changed > 0.3 * n
    found = decided(Improvement(), [base, night], base=base, contest=by)
    assert found.changed <= 0.005 * n
