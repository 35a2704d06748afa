"""`partwise catalog` on the command line."""

from pathlib import Path

import pytest

from partwise.store.store import Store
from tests import command_line
from tests.command_line import Ended
from tests.one_catalog import train_and_promote

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"b": 20.0, "d": 4.0}


@pytest.fixture
def store(local_store) -> Store:
    train_and_promote(local_store, "first", FIRST)
    train_and_promote(local_store, "second", SECOND)
    return local_store


@pytest.fixture
def partwise(store):
    def call(*words: object) -> Ended:
        return command_line.partwise("catalog", *words, "--store", store.url)

    return call


def test_list_and_show(partwise, store) -> None:
    listed = partwise("list")
    assert listed.code == 0
    assert listed.out.splitlines()[1].split()[:4] == ["sales", "2", "4", "2"]
    (record,) = partwise("list", "--json").lines
    assert (record["version"], record["n_keys"], record["runs"]) == (2, 4, ["first", "second"])
    shown = partwise("show", "sales", "--most", 2)
    assert "catalog://sales@2" in shown.out
    assert "by promote (run second)" in shown.out
    assert "and 2 more keys: --most 4" in shown.out
    record, *rows = partwise("show", "sales@1", "--json").lines
    assert record["origin"]["rule"] == {"run": "first"}
    assert [row["key"] for row in rows] == ["a", "b", "c"]
    assert rows[0]["metrics"] == {"value": 1.0}
    Path(store.url, "catalogs/sales/versions/0002.json").write_bytes(b"?")
    listed = partwise("list")
    assert (listed.code, "0002.json is not a JSON document" in listed.out) == (0, True)
    assert partwise("list", "--json").lines[0]["status"] == "UNREADABLE"


def test_changes_and_how_they_came_about(partwise) -> None:
    assert partwise("pin", "sales", "a", "b").out == "catalog://sales@3: 2 keys changed\n"
    assert "is so already: no new version" in partwise("pin", "sales", "a").out
    assert partwise("unpin", "sales", "a", "--json").lines[0]["is_new"]
    assert partwise("retire", "sales", "c").code == 0
    assert partwise("rollback", "sales", "1").out == "catalog://sales@6: 2 keys changed\n"
    history = partwise("history", "sales", "c")
    assert [line.split()[1] for line in history.out.splitlines()[1:]] == ["1", "5", "6"]
    assert [row["action"] for row in partwise("history", "sales", "c", "--json").lines] == [
        "promote",
        "retire",
        "rollback",
    ]
    diff = partwise("diff", "sales@1", "sales@2")
    assert "1 added, 1 changed" in diff.out
    assert partwise("diff", "sales@1", "sales@1").out.endswith("no difference\n")
    rows = partwise("diff", "sales@1", "sales@2", "--json").lines
    assert {row["key"]: row["change"] for row in rows} == {"b": "changed", "d": "added"}


def test_verify_and_gc(partwise, store) -> None:
    assert partwise("verify", "sales").out.endswith("all as they were written\n")
    assert "0 files of sales would be deleted" in partwise("gc", "sales", "--dry-run").out
    words = ("gc", "sales", "--keep", 1, "--older-than-days", 0)
    assert "2 files of sales would be deleted" in partwise(*words, "--dry-run").out
    assert len(partwise(*words, "--json").lines) == 2
    for path in store.list("runs/second/bundles/"):
        store.write(path, b"?")
    verified = partwise("verify", "sales", "--json")
    assert (verified.code, len(verified.lines)) == (1, 2)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["show", "slaes"], "There is no catalog 'slaes' in"),
        (["show", "sales@9"], "has no version 9; it has 1, 2."),
        (["history", "sales", "A"], "does not have the key 'A'. Did you mean 'a'?"),
        (["rollback", "sales", "7"], "has no version 7"),
        (["pin", "sales", "x"], "does not have the key 'x'"),
        (["pin", "sales"], "Name the keys to pin"),
        (["show", "a/b"], "is not a safe name"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(partwise, words, error) -> None:
    ended = partwise(*words)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.err
    assert ended.err.count("\n") == 1
