"""Catalogs that were damaged, forged or set back: refused, and found by `verify`."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import VersionDocument
from partwise.catalogs.garbage import collect_catalog_garbage
from partwise.catalogs.verification import verify_catalog
from partwise.errors import (
    CatalogNotFoundError,
    InputError,
    IntegrityError,
    PartwiseError,
    RunFormatError,
    SignatureError,
)
from partwise.runs.documents import sha256_of
from partwise.runs.own_checksums import write_sealed
from partwise.store import signing
from partwise.store.signing import KEYS_VARIABLE, STATE_VARIABLE
from partwise.store.store import Store
from tests.one_catalog import all_words, promote, said, train, train_and_promote, words

FIRST = {"a": 1.0, "b": 2.0}
SECOND = {"b": 20.0, "d": 4.0}


@pytest.fixture
def two(local_store) -> Store:
    """A store with two versions of a catalog."""
    train_and_promote(local_store, "first", FIRST)
    train_and_promote(local_store, "second", SECOND)
    return local_store


def files(store: Store) -> list[Path]:
    paths = store.list("catalogs/") + store.list("runs/first/held/") + store.list("runs/first/bund")
    return [Path(store.url, path) for path in paths]


def test_a_changed_byte_anywhere_is_found_and_gives_no_other_model(two) -> None:
    whole = all_words(two)
    assert verify_catalog("sales", two).damages == []
    for path in files(two):
        content = path.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 20)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            try:
                assert all_words(two) == whole
            except PartwiseError:
                assert verify_catalog("sales", two).damages != []
        path.write_bytes(content)
    assert all_words(two) == whole


def test_what_is_gone_is_found(two) -> None:
    # Of the newest version only who has seen it knows.
    for path in [path for path in files(two) if path.name != "0002.json"]:
        content = path.read_bytes()
        path.unlink()
        assert len(verify_catalog("sales", two).damages) in (1, 2), path
        path.write_bytes(content)
    verified = verify_catalog("sales@2", two)
    assert (verified.damages, verified.files) == ([], 4)
    with pytest.raises(CatalogNotFoundError, match="has no version 5"):
        verify_catalog("sales@5", two)
    (table,) = [
        path for path in files(two) if Catalog.open("sales", two).document.table.path in str(path)
    ]
    table.unlink()
    with pytest.raises(IntegrityError, match=r"table of catalog://sales@2, is gone: restore"):
        Catalog.open("sales", two).row("a")


def rewrite(store: Store, change) -> None:
    """Have the table of the newest version be another one, as whoever writes the store could."""
    catalog = Catalog.open("sales", store)
    content = write_sealed(change(catalog.table))
    document = catalog.document
    store.write(f"catalogs/sales/{document.table.path}", content)
    table = document.table.model_copy(update={"sha256": sha256_of(content)})
    changed = document.model_copy(update={"table": table})
    path = "catalogs/sales/versions/0002.json"
    store.write(path, changed.to_bytes(path, store))


def with_column(name: str, values: list) -> pa.Table:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        kind = table.schema.field(name).type
        column = table[name].to_pylist()
        column[0] = values[0] if not isinstance(column[0], dict) else column[0] | values[0]
        return table.set_column(place, name, pa.array(column, kind))

    return change


STRANGE = {
    "run": with_column("run_id", ["../../x"]),
    "partition_id": with_column("partition_id", ["../x"]),
    "owner": with_column("owner", ["a/../x"]),
    "columns": lambda table: table.drop_columns(["reason"]),
    "type": lambda table: table.set_column(
        table.column_names.index("rows"), "rows", table["rows"].cast(pa.int32())
    ),
    "key class": lambda table: table.set_column(0, "key.key", pa.array([1] * table.num_rows)),
    "bundle": with_column(
        "native",
        [
            {
                "model": {
                    "filename": "a",
                    "bundle": "../x",
                    "offset": 0,
                    "size_bytes": 1,
                    "stored_bytes": 1,
                    "compression": "stored",
                    "sha256": "",
                    "serde": "plain",
                }
            }
        ],
    ),
    "filename": with_column(
        "native",
        [
            {
                "model": {
                    "filename": "../a",
                    "bundle": "bundles/x.zip",
                    "offset": 0,
                    "size_bytes": 1,
                    "stored_bytes": 1,
                    "compression": "stored",
                    "sha256": "",
                    "serde": "plain",
                }
            }
        ],
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_table_of_what_partwise_never_writes_is_refused(two, case) -> None:
    rewrite(two, STRANGE[case])
    with pytest.raises(RunFormatError):
        Catalog.open("sales", two).table  # noqa: B018
    assert verify_catalog("sales", two).damages != []
    with pytest.raises(RunFormatError):
        words(Catalog.open("sales", two))


def test_a_renamed_folder_is_refused(two) -> None:
    shutil.copytree(Path(two.url, "catalogs/sales"), Path(two.url, "catalogs/other"))
    with pytest.raises(RunFormatError, match="renamed or copied"):
        Catalog.open("other", two)


def test_a_newer_format_is_named(two) -> None:
    path = Path(two.url, "catalogs/sales/versions/0002.json")
    values = json.loads(path.read_bytes()) | {"format_version": 2}
    path.write_text(json.dumps(values))
    with pytest.raises(RunFormatError, match="format version 2"):
        Catalog.open("sales", two)


def test_a_path_in_a_document_leads_nowhere_else(two) -> None:
    document = Catalog.open("sales", two).document.model_dump()
    document["table"]["path"] = "../../x.parquet"
    with pytest.raises(ValueError, match=r"table.path"):
        VersionDocument.model_validate(document)


@pytest.fixture
def keys(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(signing, "_of_blocks", {})
    monkeypatch.setenv(KEYS_VARIABLE, f"ours:{'a1' * 32}")


def test_with_keys_an_unsigned_version_is_refused(two, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(signing, "_of_blocks", {})
    monkeypatch.setenv(KEYS_VARIABLE, f"ours:{'a1' * 32}")
    with pytest.raises(SignatureError, match="beside which that does not count"):
        Catalog.open("sales", two)
    assert len(verify_catalog("sales", two).damages) >= 2


@pytest.mark.usefixtures("keys")
def test_a_version_is_signed_for_its_place(two) -> None:
    versions = Path(two.url, "catalogs/sales/versions")
    shutil.copy(versions / "0001.json", versions / "0003.json")
    with pytest.raises(SignatureError, match="belongs elsewhere"):
        Catalog.open("sales@3", two)


@pytest.mark.usefixtures("keys")
def test_an_older_version_put_back_is_refused(two) -> None:
    Catalog.open("sales", two)
    newest = Path(two.url, "catalogs/sales/versions/0002.json")
    content = newest.read_bytes()
    newest.unlink()
    with pytest.raises(SignatureError, match="number 1, and number 2 had been signed"):
        Catalog.open("sales", two)
    assert any("older than" in damage for damage in verify_catalog("sales", two).damages)
    newest.write_bytes(content)
    # So is one that is hidden by a mark of its removal.
    Path(two.url, "catalogs/sales/versions/0002.gone").write_bytes(b"")
    with pytest.raises(SignatureError, match="number 1, and number 2 had been signed"):
        Catalog.open("sales", two)


def test_old_versions_go_and_their_numbers_are_never_given_again(two) -> None:
    for value in (5.0, 6.0, 7.0):
        train(two, "second", {"b": value})
        promote(two, "second", value=value)
    # No store takes this name: somebody has left it there.
    strange = Path(two.url, "catalogs/sales/tables/copy [1].parquet")
    strange.touch()
    assert (
        collect_catalog_garbage(two, "sales", keep=2, older_than=timedelta(days=1), dry_run=False)
        == []
    )
    told = collect_catalog_garbage(two, "sales", keep=2, older_than=timedelta(0), dry_run=True)
    before = all_words(two)
    gone = collect_catalog_garbage(two, "sales", keep=2, older_than=timedelta(0), dry_run=False)
    assert (gone, sorted(before)) == (told, [1, 2, 3, 4, 5])
    after = all_words(two)
    assert after == {number: before[number] for number in (4, 5)}
    assert strange.exists()
    with pytest.raises(CatalogNotFoundError, match="has no version 2; it has 4, 5"):
        Catalog.open("sales@2", two)
    with pytest.raises(CatalogNotFoundError, match="has no version 2"):
        Catalog.open("sales", two).rollback(2)
    assert verify_catalog("sales", two).damages == []
    assert Catalog.open("sales", two).history("b")["version"].to_pylist() == [4, 5]
    assert Catalog.open("sales", two).rollback(4).version == 6
    with pytest.raises(InputError, match="keep is 0"):
        collect_catalog_garbage(two, "sales", keep=0, older_than=timedelta(0), dry_run=True)
    with pytest.raises(CatalogNotFoundError, match="no catalog 'other'"):
        collect_catalog_garbage(two, "other", keep=1, older_than=timedelta(0), dry_run=True)


def test_a_reader_of_a_version_that_goes_meanwhile_hears_it(two) -> None:
    one = Catalog.open("sales@1", two)
    collect_catalog_garbage(two, "sales", keep=1, older_than=timedelta(0), dry_run=False)
    with pytest.raises(CatalogNotFoundError, match="has no version 1; it has 2"):
        one.row("a")
    assert words(Catalog.open("sales", two)) == said({**FIRST, **SECOND})


def test_a_collection_that_died_is_ended_by_the_next(two, monkeypatch) -> None:
    delete = Store.delete
    left = [1]

    def die(store: Store, path: str) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        delete(store, path)

    monkeypatch.setattr(Store, "delete", die)
    arguments = {"keep": 1, "older_than": timedelta(0), "dry_run": False}
    with pytest.raises(KeyboardInterrupt):
        collect_catalog_garbage(two, "sales", **arguments)
    monkeypatch.undo()
    with pytest.raises(CatalogNotFoundError):
        Catalog.open("sales@1", two)
    assert len(collect_catalog_garbage(two, "sales", **arguments)) == 1
    assert collect_catalog_garbage(two, "sales", **arguments) == []
    assert len(two.list("catalogs/sales/tables/")) == 1
    assert verify_catalog("sales", two).damages == []


def test_a_table_without_a_version_goes_after_a_day(two, monkeypatch) -> None:
    two.write(f"catalogs/sales/tables/{'ab' * 8}.parquet", b"table")
    arguments = {"keep": 9, "older_than": timedelta(0), "dry_run": False}
    assert collect_catalog_garbage(two, "sales", **arguments) == []
    monkeypatch.setattr("partwise.catalogs.garbage.UNUSED_FOR", timedelta(seconds=-1))
    assert collect_catalog_garbage(two, "sales", **arguments) == [
        (f"catalogs/sales/tables/{'ab' * 8}.parquet", 5)
    ]
