"""`partwise catalog`: which model is used for each key, how that came about, and changes to it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from cyclopts import App, Parameter
from cyclopts.validators import Number

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import CATALOGS, versions_of
from partwise.catalogs.evaluated import evaluations_of
from partwise.flows.cli import output
from partwise.flows.cli.options import AnyStore, Count, Days, Force, Json
from partwise.flows.cli.pages import check_page, write_page
from partwise.flows.cli.parsing import COMMON
from partwise.formatting import counted, shortened
from partwise.runs.key_texts import key_columns_text, key_texts
from partwise.store.store import Store
from partwise.store.versions import is_name

catalog = App(
    name="catalog",
    help="Show which model is used for each key; go back, pin, retire and tidy up.",
    default_parameter=COMMON,
)

Name = Annotated[str, Parameter(name="NAME", help="The catalog.")]
Reference = Annotated[str, Parameter(name="NAME[@VERSION]")]
Key = Annotated[
    str,
    Parameter(name="KEY", help="A key, with commas between several columns, or its partition_id."),
]
_CHAMPION = ("run_id", "generation", "since_version", "margin", "reason", "pinned", "retired")


@catalog.command(name="list")
def print_catalogs(*, store: AnyStore = "artifacts", as_json: Json = False) -> int:
    """List the catalogs in a store, each with its newest version.

    One that cannot be read has no version, and the reason stands below; the exit code stays 0.

    Args:
        as_json: Print a JSON object per catalog.
    """
    opened = Store.of(store)
    names = filter(is_name, opened.list_folder(CATALOGS))

    def read(name: str) -> tuple[Mapping[str, Any], Sequence[Any]]:
        found = Catalog.open(name, opened)
        document = found.document
        made = (document.created_at, document.origin.action, document.origin.who)
        return _record(found), (name, found.version, document.table.rows, len(found.runs), *made)

    return output.print_listed(
        (name for name in names if versions_of(opened, name).there()),
        read,
        ("catalog", "version", "keys", "runs", "made (UTC)", "by", "who"),
        f"There are no catalogs in {opened.url}.",
        as_json=as_json,
    )


@catalog.command(name="show")
def show_catalog(
    name: Reference,
    /,
    *,
    most: Annotated[int, Parameter(validator=Number(gte=0))] = 20,
    to: Path | None = None,
    in_browser: Annotated[bool, Parameter(name="--open")] = False,
    force: Force = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Show a version of a catalog: how it came about, and the champions of its first keys.

    Args:
        name: The catalog, such as sales@3; without a version the newest.
        most: How many keys are shown.
        to: Write it to this .html file as well, with what it changed and pictures of its metrics.
        in_browser: Open that page in a browser.
        as_json: Print a JSON object, and one per key.
    """
    check_page(to, in_browser=in_browser, as_json=as_json, force=force)
    opened = Catalog.open(name, store)
    table = opened.table.slice(0, most)
    if as_json:
        return output.print_json(_record(opened), *_rows(table))
    document = opened.document
    keys = key_columns_text(opened.key_columns)
    marked = {column: pc.sum(opened.table[column]).as_py() for column in ("pinned", "retired")}
    counts = [counted(document.table.rows, "key")]
    counts += [f"{n:,} {column}" for column, n in marked.items() if n]
    output.console().print(opened.reference, style="bold")
    fields = {"keys": keys or "none: one model of all rows", "has": ", ".join(counts)}
    fields["made"] = shortened(document.told)
    fields |= {name: f"{n:,}" for name, n in document.origin.counts.items()}
    if document.origin.comparison is not None:
        fields["comparison"] = document.origin.comparison.run_id
    fields["runs"] = shortened(", ".join(run.run_id for run in opened.runs))
    output.print_fields(fields)
    _print_rows(table, _CHAMPION)
    if (more := opened.table.num_rows - table.num_rows) > 0:
        output.print_line(f"and {counted(more, 'more key')}: --most {opened.table.num_rows}")
    if to is not None or in_browser:
        from partwise.reports.catalog_page import render_catalog

        name = f"{opened.name}-{opened.version}.html"
        write_page(name, render_catalog(opened), to, force=force, in_browser=in_browser)
    return 0


@catalog.command(name="diff")
def compare_versions(
    before: Reference,
    after: Reference,
    /,
    *,
    most: Annotated[int, Parameter(validator=Number(gte=0))] = 100,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Compare two versions: which keys got another champion, came, went, were pinned or retired.

    Args:
        before: The earlier version, such as sales@3.
        after: The later version, such as sales@7, or sales for the newest.
        most: How many keys are shown; all with --json.
        as_json: Print a JSON object per key.
    """
    opened = Store.of(store)
    old, new = Catalog.open(before, opened), Catalog.open(after, opened)
    table = old.diff(new)
    if as_json:
        return output.print_json(*_rows(table))
    counts = {each["values"]: each["counts"] for each in table["change"].value_counts().to_pylist()}
    said = ", ".join(f"{n:,} {change}" for change, n in sorted(counts.items())) or "no difference"
    output.print_line(f"{old.reference} -> {new.reference}: {said}")
    shown = ("change", "run_id_before", "run_id", "margin", "reason")
    _print_rows(table.slice(0, most), shown)
    if (more := table.num_rows - most) > 0:
        output.print_line(f"and {counted(more, 'more key')}: --most {table.num_rows}")
    return 0


@catalog.command(name="history")
def show_history(
    name: Name, key: Key, /, *, store: AnyStore = "artifacts", as_json: Json = False
) -> int:
    """Show which champions a key has had, on what grounds, and how what they predicted came true.

    Args:
        as_json: Print a JSON object per version that changed it, and per evaluation.
    """
    opened = Catalog.open(name, store)
    table, judged = opened.history(key), evaluations_of(opened, key)
    if as_json:
        return output.print_json(*_rows(table), *judged.to_pylist())
    _print_rows(table, ("version", "made_at", "action", "who", *_CHAMPION))
    if judged.num_rows:
        rows = list(zip(*(column.to_pylist() for column in judged.columns), strict=True))
        output.print_table(judged.column_names, rows)
    return 0


@catalog.command(name="rollback")
def roll_back(
    name: Name, version: int, /, *, store: AnyStore = "artifacts", as_json: Json = False
) -> int:
    """Make a version with the rows of an earlier one; pinned keys stay as they are.

    Args:
        version: The number of the version to go back to.
        as_json: Print a JSON object.
    """
    before = Catalog.open(name, store)
    return _tell(before, before.rollback(version), as_json)


@catalog.command(name="pin")
def pin_keys(
    name: Name, /, *keys: Key, store: AnyStore = "artifacts", as_json: Json = False
) -> int:
    """Have keys keep their champions, whatever a promotion would change.

    Args:
        as_json: Print a JSON object.
    """
    before = Catalog.open(name, store)
    return _tell(before, before.pin(keys), as_json)


@catalog.command(name="unpin")
def unpin_keys(
    name: Name, /, *keys: Key, store: AnyStore = "artifacts", as_json: Json = False
) -> int:
    """Have promotions change the champions of pinned keys again.

    Args:
        as_json: Print a JSON object.
    """
    before = Catalog.open(name, store)
    return _tell(before, before.unpin(keys), as_json)


@catalog.command(name="retire")
def retire_keys(
    name: Name, /, *keys: Key, store: AnyStore = "artifacts", as_json: Json = False
) -> int:
    """Take the champions of keys away: inference goes on to its next level for them.

    Args:
        as_json: Print a JSON object.
    """
    before = Catalog.open(name, store)
    return _tell(before, before.retire(keys), as_json)


@catalog.command(name="mlflow")
def show_in_mlflow(
    name: Reference,
    /,
    *,
    tracking_uri: Annotated[str, Parameter(env_var="MLFLOW_TRACKING_URI")],
    experiment: str = "",
    model: str = "",
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Show a version of a catalog in MLflow: a run, and a version of one registered model.

    What is there already stays as it is. Needs the extra mlflow.

    Args:
        name: The catalog, such as sales@3; without a version the newest.
        tracking_uri: Of the MLflow server, such as http://mlflow:5000.
        experiment: The experiment. Default: it has the catalog's name.
        model: The registered model. Default: it has the catalog's name.
        as_json: Print a JSON object.
    """
    from partwise.publishing import mlflow_view

    found = Catalog.open(name, store)
    shown = mlflow_view.show_in_mlflow(found, tracking_uri, experiment=experiment, model=model)
    if as_json:
        return output.print_json({"reference": found.reference, **asdict(shown)})
    said = "is" if shown.is_new else "was already"
    output.print_line(
        f"{found.reference} {said} run {shown.run_id} of MLflow, and version "
        f"{shown.model_version} of its model."
    )
    return 0


@catalog.command(name="verify")
def verify(reference: Reference, /, *, store: AnyStore = "artifacts", as_json: Json = False) -> int:
    """Read all of a catalog, its models too, and compare it with every checksum.

    The exit code is 1 where something differs.

    Args:
        reference: The catalog, all versions of it, or one.
        as_json: Print a JSON object per damage.
    """
    from partwise.catalogs.verification import verify_catalog

    found = verify_catalog(reference, Store.of(store))
    return output.print_damages(
        found.damages, found.files, found.size_bytes, found.name, as_json=as_json
    )


@catalog.command(name="gc")
def collect_versions(
    name: Name,
    /,
    *,
    keep: Count = 30,
    older_than_days: Days = 30.0,
    dry_run: bool = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Remove old versions, and what promotions left behind that died.

    `partwise runs gc` then deletes the models that these alone drew on.

    Args:
        keep: How many of the newest versions stay in any case.
        older_than_days: Only those go that were made so many days ago.
        dry_run: Only list what would go.
        as_json: Print a JSON object per file.
    """
    from partwise.catalogs.garbage import collect_catalog_garbage

    age = timedelta(days=older_than_days)
    found = collect_catalog_garbage(
        Store.of(store), name, keep=keep, older_than=age, dry_run=dry_run
    )
    return output.print_garbage(found, name, dry_run=dry_run, as_json=as_json)


def _tell(before: Catalog, after: Catalog, as_json: bool) -> int:
    """Print what became of a change."""
    if as_json:
        return output.print_json({**_record(after), "is_new": after.version != before.version})
    said = f"{after.reference}: {counted(before.diff(after).num_rows, 'key')} changed"
    if after.version == before.version:
        said = f"{after.reference} is so already: no new version."
    output.print_line(said)
    return 0


def _record(found: Catalog) -> dict[str, Any]:
    """Return a version as a JSON line has it."""
    document = found.document
    names = {"format_version", "keys", "runs", "table", "token"}
    return {
        "reference": found.reference,
        **document.model_dump(mode="json", exclude=names),
        "key_columns": {column.name: column.key_class for column in found.key_columns},
        "n_keys": document.table.rows,
        "runs": [run.run_id for run in found.runs],
    }


def _rows(table: pa.Table) -> Sequence[Mapping[str, Any]]:
    """Return rows for JSON, with the key as it is typed."""
    texts = key_texts(table)
    rows = table.to_pylist()
    for row in rows:
        if "metrics" in row:
            row["metrics"] = dict(row["metrics"] or ())
    return [{"key": text, **row} for text, row in zip(texts, rows, strict=True)]


def _print_rows(table: pa.Table, names: Sequence[str]) -> None:
    if not table.num_rows:
        return
    columns = [table[name].to_pylist() for name in names]
    output.print_table(("key", *names), list(zip(key_texts(table), *columns, strict=True)))
