"""Folds: each row is scored once, by a model of the rows of the other folds."""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from partwise.errors import ColumnError
from partwise.evaluation.backtest import TooShort
from partwise.evaluation.split import Split
from partwise.form_schema import for_forms
from partwise.formatting import counted
from partwise.outcomes import Skip
from partwise.settings import Settings, kind_field
from partwise.tables.column_names import columns_there
from partwise.tables.sorting import groupable


class CrossValidation(Settings):
    """Divide rows into folds at random, by the partition's seed, or whole groups of rows.

    Rows that have an order in time need a `Backtest`: a fold is predicted from rows after it too.

    Example:
        >>> CrossValidation(folds=4, group="customer").folds
        4
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, title="Cross-validation", json_schema_extra=for_forms
    )

    kind: Literal["cross_validation"] = kind_field("cross_validation")
    folds: int = Field(default=5, kw_only=False, ge=2, description="How many, at most.")
    group: str | SkipJsonSchema[None] = Field(
        default=None,
        title="Group column",
        description="Rows with equal values in it are in one fold; null is a value as well.",
    )
    too_short: TooShort = Field(
        default="fewer",
        description="What becomes of a partition with fewer rows, or groups, than folds: it is "
        'skipped ("skip"), or has "fewer" folds.',
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """The group column, if there is one."""
        return () if self.group is None else (self.group,)

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str],  # noqa: ARG002 (others look at them)
    ) -> None:
        """Refuse a group column that is missing, or of a type whose values cannot be compared.

        Raises:
            ColumnError: With the column in its message.
        """
        if self.group is None:
            return
        what = f"The group column {self.group!r} of the cross-validation"
        if self.group not in schema.names:
            raise ColumnError(f"{what} is missing; {columns_there(schema.names, self.group)}")
        kind = schema.field(self.group).type
        if pa.types.is_nested(getattr(kind, "storage_type", kind)):
            raise ColumnError(f"{what} is {kind}: give one of plain values.")

    def splits(self, table: pa.Table, seed: int) -> list[Split] | Skip:
        """Return a split for each fold; a Skip where there are too few rows or groups."""
        codes, count = np.arange(table.num_rows), table.num_rows
        if self.group is not None:
            # Without a dictionary, whose values that no row has would count as groups.
            column = groupable(table.column(self.group))
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            codes, count = encoded.indices.to_numpy(), len(encoded.dictionary)
        folds = min(self.folds, count)
        if folds < 2 or (folds < self.folds and self.too_short == "skip"):
            there = counted(count, "row" if self.group is None else "group")
            there += "" if self.group is None else f" of {self.group!r}"
            return Skip(f"too short for cross-validation: {there} for {self.folds} folds")
        # Dealt out in turn, so that folds differ by one at most.
        fold_of = np.empty(count, dtype=np.int64)
        fold_of[np.random.default_rng(seed).permutation(count)] = np.arange(count) % folds
        of_row = fold_of[codes]
        return [Split(train=of_row != fold, test=of_row == fold) for fold in range(folds)]
