"""What a predictor is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.errors import InputError
from partwise.formatting import shortened
from partwise.runs.run import ONLY
from partwise.tables.keys.partition_keys import Key

Values = Any
"""The values of a column: a list of those of JSON as Python has them, or a `pa.ChunkedArray`."""

POLICIES = {"on_missing": ("fail", "null"), "extra": ("fail", "ignore")}
"""What is said of rows and columns that fit no model, and its choices."""

OK, NOT_FINITE, NO_MODEL = 0, 1, 2
STATUS_TEXTS = ("ok", "not finite", "no model")
"""What the statuses of rows are called, by their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Rows, and whose models are to predict them."""

    columns: Mapping[str, Values]
    """All of the same length. Values of JSON: numbers, booleans, text, None."""
    n_rows: int
    key: Key = ONLY
    """The key of all rows, as `key_of_json` returns it or Python has it; ONLY: the key columns
    stand among the columns, or there are none."""
    on_missing: Literal["fail", "null"] = "fail"
    """What becomes of rows that no level has a model for."""
    extra: Literal["fail", "ignore"] = "fail"
    """What becomes of columns that a model does not know."""

    def __post_init__(self) -> None:
        """Refuse a choice that there is not.

        Raises:
            InputError: `on_missing` or `extra` has another value.
        """
        for name, choices in POLICIES.items():
            if (value := getattr(self, name)) not in choices:
                shown = shortened(repr(value), 80)
                raise InputError(f"{name} is {shown}: it is {' or '.join(map(repr, choices))}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedModel:
    """A model that answered for some rows."""

    run_id: str
    """"" where a constant answered."""
    key: str
    """Of the model, as text; "" where it has none."""
    level: int
    """Its place among the levels: 0 is that of the served reference itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Predictions for the rows of a question, in their order."""

    reference: str
    """What answered: catalog://sales@7 or run://ID."""
    version: int
    """Of the catalog, or the generation of the run."""
    outputs: Mapping[str, np.ndarray]
    """By name, shape (n,): "prediction", or "prediction_0"... of several classes; numbers, and text
    as objects. Where there is no prediction: NaN or None."""
    models: tuple[UsedModel, ...]
    """Those that answered, each once."""
    used: np.ndarray
    """Which of them answered for each row, int32, shape (n,); -1: none."""
    status: np.ndarray
    """OK, NOT_FINITE or NO_MODEL for each row, int8, shape (n,)."""
    cold: int = 0
    """How many models were loaded for it."""

    def to_arrow(self) -> pa.Table:
        """Return the outputs as a table, with model_run, model_key, model_level and status.

        Raises:
            InputError: Some models predict numbers and others text, which make no column.
        """
        columns: dict[str, Any] = {
            name: _column(name, values) for name, values in self.outputs.items()
        }
        places = pa.array(self.used, mask=self.used < 0)
        for name, values, kind in (
            ("model_run", [each.run_id for each in self.models], pa.string()),
            ("model_key", [each.key for each in self.models], pa.string()),
            ("model_level", [each.level for each in self.models], pa.int32()),
        ):
            columns[name] = pa.array(values, kind).take(places)
        columns["status"] = pa.array(STATUS_TEXTS).take(pa.array(self.status))
        return pa.table(columns)


def _column(name: str, values: np.ndarray) -> pa.Array:
    try:
        return pa.array(values, from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"The models of these rows give {name!r} in types that make no column, such as "
            "numbers and text: ask for the rows of each type on their own."
        ) from error
