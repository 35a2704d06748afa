"""Stages: each is a store of its own, a folder below `STAGES`."""

from typing import Any

import pyarrow as pa

from partwise.connector.data_connector import DataConnector
from partwise.errors import InputError

STAGES = "artifacts/stages"


def stage_store(name: str) -> str:
    """Return the store that a stage is, or a folder in it: "@db.schema.stage/path".

    A path or URL is taken as it is. Names are in upper case, as there.

    Raises:
        InputError: There is no name.
    """
    if "://" in name or name.startswith(("/", ".")):
        return name.rstrip("/")
    stage, _, folder = name.removeprefix("@").strip("/").partition("/")
    if not stage:
        raise InputError(f"{name!r} names no stage: write a name, a path or a URL.")
    return f"{STAGES}/{stage.upper()}/{folder}".rstrip("/")


def rows_of(frame: Any) -> Any:
    """Return rows as calls take them: those of a Snowpark frame by Arrow, all others as given.

    Such frames are theirs, where their package is installed, and those of `compat`.
    """
    module = type(frame).__module__.removeprefix("partwise.compat.")
    if not module.startswith("snowflake.snowpark."):
        return frame
    batches = list(frame.to_arrow_batches())
    if batches and all(isinstance(each, pa.Table) for each in batches):
        return pa.concat_tables(batches)
    # Of no rows there is no batch, and a session of theirs that tests use has rows of Python there.
    return frame.to_pandas()


def own_rows(dataset: Any) -> Any:
    """Return the rows of a connector of theirs, or of a frame, as calls take them."""
    connector = getattr(dataset, "rows", None)
    return rows_of(connector.to_arrow() if isinstance(connector, DataConnector) else dataset)
