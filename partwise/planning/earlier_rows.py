"""How an earlier run read its rows: those that meet its keys and models are read so too."""

from collections.abc import Mapping
from typing import Any

from partwise.errors import RunIdError
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn


def keys_of_run(run_id: str, store: Store) -> tuple[KeyColumn, ...]:
    """Return the key columns of the run of an ID, which no call changes; none: there is no run."""
    try:
        run = Run.find_if_there(run_id, store)
    except RunIdError:
        return ()
    return () if run is None else run.key_columns


def recipe_of(training: Run) -> Mapping[str, Any] | None:
    """Return how the rows of a training run, or of the one it exported, are read; None: unknown."""
    trained_by = training.document.training_run_id
    trained = training if trained_by is None else Run.open(trained_by, training.store)
    if not trained.generation:
        return None
    recipe: Mapping[str, Any] | None = trained.read_generation_document().written_call.get("data")
    return recipe
