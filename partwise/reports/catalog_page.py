"""A version of a catalog as one HTML file: how it came about, what it changed, its champions."""

from collections import Counter
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import reference_of, versions_of
from partwise.errors import CatalogNotFoundError
from partwise.formatting import number, shortened
from partwise.reports.distributions import describe_distribution
from partwise.reports.pages import page_environment
from partwise.runs.key_texts import key_texts
from partwise.runs.ledger import metric_values

MOST_VERSIONS = 20
MOST_CHANGES = 100
MOST_KEYS = 1_000
MOST_METRICS = 12
MOST_RUNS = 20


def render_catalog(catalog: Catalog) -> str:
    """Return a page on a version of a catalog: one HTML file without references to others.

    Raises:
        IntegrityError: Its table is gone, or was changed.
    """
    table = catalog.table
    runs = Counter(table["run_id"].drop_null().to_pylist()).most_common()
    keys = key_texts(table)
    metrics = [
        describe_distribution(shortened(name, 60), rows, values, keys.__getitem__)
        for name, (rows, values) in islice(metric_values(table), MOST_METRICS)
    ]
    before = _version(catalog, catalog.version - 1)
    changes = table.slice(0, 0) if before is None else before.diff(catalog)
    return (
        page_environment()
        .get_template("catalog.html.j2")
        .render(
            catalog=catalog,
            document=catalog.document,
            marked={name: pc.sum(table[name]).as_py() or 0 for name in ("pinned", "retired")},
            runs=runs[:MOST_RUNS],
            n_runs=len(runs),
            versions=_versions(catalog),
            before=before,
            changes=_with_keys(changes.slice(0, MOST_CHANGES)),
            n_changes=changes.num_rows,
            metrics=[metric for metric in metrics if not metric.is_plain],
            rows=_with_keys(table.slice(0, MOST_KEYS)),
            number=number,
        )
    )


def _with_keys(rows: pa.Table) -> list[tuple[str, dict[str, Any]]]:
    """Return rows, each behind its key as a text."""
    return list(zip(key_texts(rows), rows.to_pylist(), strict=True))


def _version(catalog: Catalog, version: int) -> Catalog | None:
    """Return another version; None: it was removed, or there is none before the first."""
    if version < 1:
        return None
    try:
        return Catalog.open(reference_of(catalog.name, version), catalog.store)
    except CatalogNotFoundError:
        return None


def _versions(catalog: Catalog) -> list[Catalog]:
    """Return this version and those before it, the newest first."""
    numbers = [n for n in versions_of(catalog.store, catalog.name).there() if n < catalog.version]
    found = (_version(catalog, number) for number in numbers[:-MOST_VERSIONS:-1])
    return [catalog, *(each for each in found if each is not None)]
