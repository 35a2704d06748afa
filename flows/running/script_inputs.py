"""Inputs of a script as a caller gives them: names of files, or rows."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from partwise.blocks import FilesBlock, QueryBlock
from partwise.datasets.dataset import resolve_references
from partwise.errors import InputError
from partwise.flows.orchestration.saved_blocks import names_block
from partwise.flows.running.connections import open_rows
from partwise.sources.descriptions import Source
from partwise.sources.opening import data_of_recipe, open_source
from partwise.sources.references import is_reference
from partwise.store.store import Store


def open_inputs(
    inputs: Mapping[str, Any], store: Store
) -> tuple[dict[str, str | Source], dict[str, Any]]:
    """Return the inputs of a script, and how those are written down that can be opened again.

    An input is a path, a URL, the name of a dataset, artifacts of a run, a block or the name of
    one, data as `train_models` takes it, or what this function wrote down.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs= is {type(inputs).__name__}: give a mapping of name to path.")
    opened: dict[str, str | Source] = {}
    written: dict[str, Any] = {}
    for name, given in inputs.items():
        if isinstance(given, PurePath | str) and not _are_rows(given):
            opened[name] = written[name] = str(given)
            continue
        columns = rows_filter = None
        if isinstance(given, Mapping) and {"columns", "filter"} & given.keys():
            columns, rows_filter = given.get("columns"), given.get("filter")
            given = data_of_recipe(given)
        data = resolve_references(open_rows(given), lambda: store)
        source = open_source(data, columns=columns, filter=rows_filter)
        opened[name] = source
        if (recipe := source.description().recipe) is not None:
            written[name] = recipe
    return opened, written


def is_path(given: Any) -> bool:
    """Whether an input is a file or folder of this machine, by its path."""
    return isinstance(given, PurePath) or (
        isinstance(given, str) and "://" not in given and not _are_rows(given)
    )


def _are_rows(given: str | PurePath) -> bool:
    """Whether a text names rows, and no files to be handed over as they are."""
    text = str(given)
    return is_reference(text) or any(names_block(text, kind) for kind in (FilesBlock, QueryBlock))
