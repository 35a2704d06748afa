"""A version of a catalog as a page for people."""

import re
from datetime import timedelta

import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.garbage import collect_catalog_garbage
from partwise.flows.cli.main import main
from partwise.reports.catalog_page import MOST_VERSIONS, render_catalog
from partwise.store.store import Store
from tests.one_catalog import promote, train, train_and_promote

NASTY = "<script>alert(1)</script>"


@pytest.fixture
def catalog(local_store: Store) -> Catalog:
    train_and_promote(local_store, "one", {"a": 1.0, "b": 2.0, NASTY: 3.0})
    train(local_store, "two", {"b": 4.0})
    return promote(local_store, "two").pin(["a"])


def row_of(page: str, section: str, key: str) -> list[str]:
    """Return the cells of a key's row in a section."""
    _, _, rest = page.partition(f"<h2>{section}</h2>")
    part, _, _ = rest.partition("</section>")
    (row,) = re.findall(rf"<tr><th scope=\"row\"><bdi>{re.escape(key)}</bdi></th>(.*?)</tr>", part)
    return re.findall(r"<td[^>]*>(.*?)</td>", row)


def test_a_page_says_what_changed_since_the_version_before(catalog: Catalog) -> None:
    pinned = render_catalog(catalog)
    assert "<h1>sales, version 3</h1>" in pinned
    assert row_of(pinned, "Changes", "a")[0] == "pinned"
    assert row_of(pinned, "Keys", "a")[-1] == "pinned"
    second = render_catalog(Catalog.open("sales@2", catalog.store))
    assert row_of(second, "Changes", "b")[:3] == ["changed", "one", "two"]
    assert row_of(second, "Keys", "b")[:2] == ["two", "2"]
    first = render_catalog(Catalog.open("sales@1", catalog.store))
    assert "It is the first version." in first


def test_texts_of_others_are_shown_as_they_are(catalog: Catalog) -> None:
    page = render_catalog(catalog)
    assert NASTY not in page
    assert row_of(page, "Keys", "&lt;script&gt;alert(1)&lt;/script&gt;")[0] == "one"


def test_versions_that_were_removed_are_left_out(catalog: Catalog) -> None:
    now = timedelta()
    collect_catalog_garbage(catalog.store, "sales", keep=1, older_than=now, dry_run=False)
    page = render_catalog(catalog)
    assert "The version before it was removed." in page
    assert page.count("<td>pin</td>") == 1
    assert "<td>promote</td>" not in page


def test_only_the_newest_versions_are_listed(local_store: Store) -> None:
    catalog = train_and_promote(local_store, "one", {"a": 1.0})
    for _ in range(MOST_VERSIONS):
        catalog = catalog.pin(["a"]).unpin(["a"])
    assert len(re.findall(r"<td>(?:un)?pin</td>", render_catalog(catalog))) == MOST_VERSIONS


def test_a_page_is_written_once_and_only_where_it_is_one(
    catalog: Catalog, tmp_path, capsys
) -> None:
    words = ["catalog", "show", "sales", "--store", catalog.store.url, "--to"]
    assert main([*words, str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text() == render_catalog(catalog)
    for more, message in (
        (["a.html"], "a.html exists"),
        (["a.txt"], "ends in .html"),
        (["b.html", "--json"], "--json prints the numbers"),
    ):
        assert main([*words, str(tmp_path / more[0]), *more[1:]]) == 2
        assert message in capsys.readouterr().err
