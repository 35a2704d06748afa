"""Versions of catalogs as MLflow shows them: a run and a version of a registered model for each.

A catalog is an experiment and one registered model, however many keys it has: a run or a model for
each of 10,000 keys takes MLflow 20 minutes, and makes pages that nobody reads. What was shown is
found by its tag, so that to show it again changes nothing.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from partwise.catalogs.catalog import Catalog
from partwise.errors import InputError, OutputError
from partwise.evaluation.scores import find_metric
from partwise.publishing.mlflow_model import ADDRESS, address_of
from partwise.redaction import masked, without_secrets
from partwise.runs.key_texts import key_texts
from partwise.runs.ledger import KEY_PREFIX, key_names, metric_values
from partwise.runs.metrics import dense_metric

TAG, STORE = "partwise.catalog", "partwise.store"
ALIAS = "champion"
_OF_MODELS = {"mlflow.experimentKind": "custom_model_development"}
"""Else its pages are those of language models."""
WORST = 20
MOST_METRICS = 30
QUANTILES = {"p05": 0.05, "median": 0.5, "p95": 0.95}
_SURROUNDINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""What the environment does not say otherwise. MLflow's own are 120 s and seven retries: a quarter
of an hour for a server that is not there. And it tells its makers what it is used for."""
_PLAIN = ("partition_id", "run_id", "generation", "since_version", "promoted_at", "rows")
_WHY = ("comparison", "margin", "reason", "pinned", "retired", "unseen_since")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A version as MLflow has it."""

    run_id: str
    experiment_id: str
    model_version: str
    """The version of the registered model."""
    is_new: bool
    """Whether any of it was made now."""


def check_mlflow(tracking_uri: str) -> None:
    """Refuse what cannot be MLflow's address, or a machine without its client.

    Raises:
        InputError: The client is not installed, or the address has a password.
    """
    if find_spec("mlflow") is None:
        raise InputError("Showing catalogs in MLflow needs its client: install partwise[mlflow].")
    if masked(tracking_uri) != tracking_uri:
        raise InputError(
            "The tracking URI has a password in it: set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD instead."
        )


def show_in_mlflow(
    catalog: Catalog, tracking_uri: str, *, experiment: str = "", model: str = ""
) -> Shown:
    """Show a version of a catalog in MLflow.

    `experiment` and `model`, a registered one, are names there; empty: the catalog's.

    Raises:
        InputError: The client is not installed, or the address has a password.
        OutputError: MLflow cannot be reached, or refuses.
        IntegrityError: The version's table is gone, or was changed.
    """
    check_mlflow(tracking_uri)
    catalog.table  # noqa: B018 (a damaged one is no matter of MLflow's)
    with _surroundings():
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
        try:
            return _show(client, catalog, experiment or catalog.name, model or catalog.name)
        except (InputError, OutputError):
            raise
        # The client raises its own, those of requests, and of what stores artifacts.
        except Exception as error:
            reason = without_secrets(" ".join(str(error).split()))[:200].rstrip(".")
            raise OutputError(
                f"{catalog.reference} cannot be shown in MLflow at {tracking_uri}: "
                f"{type(error).__name__}: {reason}. Once it is there, repeat "
                f"partwise catalog mlflow {catalog.name}@{catalog.version}."
            ) from error


@contextmanager
def _surroundings() -> Iterator[None]:
    added = {name: value for name, value in _SURROUNDINGS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _show(client: Any, catalog: Catalog, experiment: str, model: str) -> Shown:
    reference, store = f"{catalog.name}@{catalog.version}", catalog.store.url
    named = f"name = {_quoted(model)}"
    registered = client.search_registered_models(named)
    theirs = registered[0].tags.get(STORE) if registered else store
    if theirs != store:
        raise OutputError(
            f"The registered model {model!r} of MLflow is not that of a catalog in {store}, but "
            f"of {theirs or 'something else'}: give another --experiment and --model."
        )
    found = client.get_experiment_by_name(experiment)
    experiment_id = (
        found.experiment_id if found else client.create_experiment(experiment, tags=_OF_MODELS)
    )
    found_runs = client.search_runs([experiment_id], f"tags.`{TAG}` = '{reference}'")
    # Not by the filter: a path may have quotes of both kinds.
    runs = [each for each in found_runs if each.data.tags.get(STORE) == store]
    is_new = not runs or runs[0].info.status != "FINISHED"
    run_id = runs[0].info.run_id if runs else _new_run(client, catalog, experiment_id, reference)
    if is_new:
        _log(client, catalog, run_id)
        client.set_terminated(run_id, "FINISHED", _made_at(catalog))
    if not registered:
        client.create_registered_model(model, {STORE: store}, f"The catalog {catalog.name}.")
    versions = {
        each.tags[TAG]: each
        for each in client.search_model_versions(named)
        # One whose run was deleted there is not this one: its files go with the run.
        if TAG in each.tags and (each.tags[TAG] != reference or each.run_id == run_id)
    }
    if reference not in versions:
        is_new = True
        versions[reference] = client.create_model_version(
            model,
            f"runs:/{run_id}/model",
            run_id,
            {TAG: reference},
            description=catalog.document.told,
        )
    number = str(versions[reference].version)
    aliases = registered[0].aliases if registered else {}
    newest = max(versions, key=lambda name: int(name.rpartition("@")[2]))
    # Last: who asks for the champion finds all of it. An older version never takes its place.
    if newest == reference and str(aliases.get(ALIAS)) != number:
        is_new = True
        client.set_registered_model_alias(model, ALIAS, number)
    return Shown(run_id=run_id, experiment_id=experiment_id, model_version=number, is_new=is_new)


def _quoted(name: str) -> str:
    """Return a name as a filter of MLflow's has it, which knows no escapes."""
    quote = '"' if "'" in name else "'"
    if quote in name:
        raise InputError(
            f"The name {name!r} of a model has quotes of both kinds, which MLflow cannot search "
            "for: give another --model."
        )
    return f"{quote}{name}{quote}"


def _new_run(client: Any, catalog: Catalog, experiment_id: str, reference: str) -> str:
    origin = catalog.document.origin
    tags = {
        TAG: reference,
        STORE: catalog.store.url,
        "partwise.action": origin.action,
        "partwise.rule": str(origin.rule)[:500],
        "partwise.runs": ", ".join(run.run_id for run in catalog.runs)[:500],
        "mlflow.user": origin.who,
        "mlflow.source.name": catalog.reference,
        "mlflow.note.content": f"Version {catalog.version}, made by {catalog.document.told}.",
    }
    if origin.comparison is not None:
        tags["partwise.comparison"] = origin.comparison.run_id
    run = client.create_run(experiment_id, _made_at(catalog), tags, run_name=reference)
    return str(run.info.run_id)


def _made_at(catalog: Catalog) -> int:
    return int(catalog.document.created_at.timestamp() * 1000)


def _log(client: Any, catalog: Catalog, run_id: str) -> None:
    from mlflow.entities import Metric

    at, step = _made_at(catalog), catalog.version
    metrics = [Metric(name, value, at, step) for name, value in figures_of(catalog).items()]
    client.log_batch(run_id, metrics)
    with tempfile.TemporaryDirectory(prefix="mlflow-") as folder:
        champions = champion_rows(catalog.table)
        pq.write_table(champions, Path(folder, "champions.parquet"))
        pa.csv.write_csv(champions, Path(folder, "champions.csv"))
        pa.csv.write_csv(worst_rows(catalog, champions), Path(folder, "worst.csv"))
        _write_model(catalog, Path(folder, "model"))
        client.log_artifacts(run_id, folder)


def _write_model(catalog: Catalog, folder: Path) -> None:
    """Write the model that reads the catalog: no code, and nothing that is unpickled."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSchema, ParamSpec

    with tempfile.TemporaryDirectory(prefix="mlflow-") as beside:
        Path(beside, ADDRESS).write_bytes(address_of(catalog))
        pyfunc.save_model(
            str(folder),
            loader_module="partwise.publishing.mlflow_model",
            data_path=str(Path(beside, ADDRESS)),
            signature=ModelSignature(params=ParamSchema([ParamSpec("key", "string", "")])),
            pip_requirements=["partwise", "mlflow"],
        )


def figures_of(catalog: Catalog) -> dict[str, float]:
    """Return what a version is like in numbers: counts of keys, and its models' metrics."""
    table = catalog.table
    figures: dict[str, float] = {"keys": table.num_rows}
    for name in ("pinned", "retired"):
        figures[name] = pc.sum(table[name]).as_py() or 0
    figures["unseen"] = table.num_rows - table["unseen_since"].null_count
    figures["new_in_this_version"] = (
        pc.sum(pc.equal(table["since_version"], catalog.version)).as_py() or 0
    )
    for verdict, count in catalog.document.origin.counts.items():
        figures[f"verdict/{verdict.replace(' ', '_')}"] = count
    margins = table["margin"].drop_null().to_numpy()
    spread = [("margin", margins), *((name, values) for name, (_, values) in metric_values(table))]
    for name, values in spread[: MOST_METRICS + 1]:
        finite = values[np.isfinite(values)]
        if len(finite):
            at = np.quantile(finite, list(QUANTILES.values()))
            figures[f"{name}/mean"] = float(finite.mean())
            figures |= {f"{name}/{q}": float(v) for q, v in zip(QUANTILES, at, strict=True)}
    # MLflow refuses a name with anything else in it.
    return {_safe(name): float(value) for name, value in figures.items()}


def _safe(name: str) -> str:
    return "".join(each if each.isalnum() or each in "_-. /" else "_" for each in name)[:250]


def champion_rows(table: pa.Table) -> pa.Table:
    """Return the rows of a version as flat columns, with a column for each metric."""
    keys = key_names(table.column_names)
    flat = pa.table({"key": pa.array(key_texts(table), pa.string())})
    for name in (*keys, *_PLAIN, *_WHY):
        # As people call it; beside one that the catalog has itself.
        shown = name.removeprefix(KEY_PREFIX)
        taken = shown in flat.column_names or (name in keys and shown in (*_PLAIN, *_WHY))
        flat = flat.append_column(name if taken else shown, _as_csv(table[name]))
    for name, found in islice(metric_values(table), MOST_METRICS):
        column = dense_metric(table.num_rows, *found)
        flat = flat.append_column(f"metrics.{name}", pa.array(column, mask=np.isnan(column)))
    return flat


def _as_csv(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as what CSV has: dates and times as texts, others as they are."""
    kind = column.type
    plain = pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)
    if plain or pa.types.is_string(kind):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return pa.chunked_array([pa.array([str(value) for value in column.to_pylist()])])


def worst_rows(catalog: Catalog, champions: pa.Table) -> pa.Table:
    """Return the rows of the keys whose models have the worst values of the first metric."""
    asked = str(catalog.document.origin.rule.get("metric") or "")
    names = [name for name in champions.column_names if name.startswith("metrics.")]
    chosen = next((name for name in names if name == f"metrics.{asked}"), names[0] if names else "")
    if not chosen:
        return champions.slice(0, 0)
    try:
        maximized = find_metric(chosen.removeprefix("metrics.").removeprefix("holdout_")).maximized
    except InputError:  # one of a user's own
        maximized = False
    there = champions.filter(pc.is_valid(champions[chosen]))
    order = "ascending" if maximized else "descending"
    return there.sort_by([(chosen, order), ("partition_id", "ascending")]).slice(0, WORST)
