"""Rules by which models become champions, as values: compared, written down, shown by forms."""

from datetime import date, time, timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, field_serializer, field_validator

from partwise.form_schema import for_forms
from partwise.formatting import shortened, value_text
from partwise.settings import Settings, kind_field
from partwise.tables.keys.key_values import plain_value
from partwise.tables.keys.partition_keys import Key, KeyClass

_FROZEN = ConfigDict(extra="forbid", frozen=True, json_schema_extra=for_forms)


class Improvement(Settings):
    """Replace a champion only by a model that is better beyond luck, on the same rows.

    Example:
        >>> Improvement("rmse", by=0.02).min_rows
        50
    """

    model_config = _FROZEN | ConfigDict(title="Better on the same rows")

    kind: Literal["improvement"] = kind_field("improvement")
    metric: str = Field(
        default="",
        kw_only=False,
        description="The metric that the comparison was made by. Empty: whichever it is.",
    )
    by: float = Field(
        default=0.02,
        ge=0,
        description="By how much a model has to be better, as a share of the champion's value on "
        "these rows: 0.02 is 2 %.",
    )
    by_absolute: float = Field(
        default=0.0,
        ge=0,
        description="By how much it has to be better, in units of the metric. Of a metric that may "
        "be 0 or below, give this one, and by=0.",
    )
    min_rows: int = Field(default=50, ge=1, description="On how many rows, at least.")
    confidence: float = Field(
        default=0.999,
        ge=0,
        le=1,
        description="How sure it has to be, by a paired test over the rows, that it was not luck. "
        "Of metrics that are tested by a bootstrap, such as auc, 0.9995 is the most.",
    )
    new: Literal["compared", "always"] = Field(
        default="compared",
        description='Which models keys without a champion get: "compared", the best that has a '
        'value on enough rows; or "always", the best there is.',
    )


class Everything(Settings):
    """Take over all models: those of a run, or of each key the best one of a comparison."""

    model_config = _FROZEN | ConfigDict(title="All models")

    kind: Literal["everything"] = kind_field("everything")


class TheseKeys(Settings):
    """Take over the models of some keys, as `Everything` does of all; also of retired ones."""

    model_config = _FROZEN | ConfigDict(title="The models of these keys")

    kind: Literal["these_keys"] = kind_field("these_keys")
    keys: tuple[Any, ...] = Field(
        kw_only=False,
        min_length=1,
        description="The keys, as the command line takes them. From Python also as values.",
    )

    @field_validator("keys")
    @classmethod
    def _are_keys(cls, keys: tuple[Any, ...]) -> tuple[Key, ...]:
        return tuple(
            tuple(map(_key_value, key)) if isinstance(key, list | tuple) else _key_value(key)
            for key in keys
        )

    @field_serializer("keys", when_used="json")
    def _as_typed(self, keys: tuple[Key, ...]) -> list[Any]:
        return [list(map(_typed, key)) if isinstance(key, tuple) else _typed(key) for key in keys]


def _key_value(value: Any) -> Any:
    """Return a value of a key as Python has it; ValueError where no key has such a value."""
    key_class, plain = plain_value(value)
    if key_class is None:
        raise ValueError(
            f"{shortened(repr(value), 80)} is of type {type(value).__name__}, which no key is of: "
            "give values such as texts, numbers, dates or bytes"
        )
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    elif isinstance(value, np.datetime64 | np.timedelta64):
        made = value.item()
        # Of nanoseconds it is their number, which Arrow knows for a time.
        is_number = isinstance(made, int) and key_class is not KeyClass.INTEGER
        value = pa.scalar(value).as_py() if is_number else made
    # Plain, times are numbers.
    return value if isinstance(value, date | time | timedelta) and plain is not None else plain


def _typed(value: Any) -> Any:
    """Return a value as JSON has it, else as the command line takes it."""
    is_finite = not isinstance(value, float) or value - value == 0
    is_json = value is None or isinstance(value, bool | int | float | str)
    return value if is_json and is_finite else value_text(value)


class NewKeys(Settings):
    """Take over the models of keys without a champion, as `Everything` does of all."""

    model_config = _FROZEN | ConfigDict(title="The models of new keys")

    kind: Literal["new_keys"] = kind_field("new_keys")


class Retire(Settings):
    """Retire the keys that the data has lacked for long; those that are pinned stay.

    It takes neither a comparison nor models. What comparisons had no rows of is known by their
    promotions, see `unseen_since` in the rows of a catalog.

    Example:
        >>> Retire(unseen_for_versions=30).unseen_for_versions
        30
    """

    model_config = _FROZEN | ConfigDict(title="Retire keys without rows")

    kind: Literal["retire"] = kind_field("retire")
    unseen_for_versions: int = Field(
        ge=1, description="For how many versions of the catalog they have had no rows, at least."
    )


Rule = Improvement | Everything | TheseKeys | NewKeys | Retire


def rule_text(rule: Rule) -> str:
    """Return a rule as Python writes it, without what is not said.

    Example:
        >>> rule_text(Improvement("rmse", min_rows=100))
        "Improvement(metric='rmse', min_rows=100)"
    """
    said = {name: value for name, value in rule if name in rule.model_fields_set - {"kind"}}
    if isinstance(rule, TheseKeys) and len(rule.keys) > 5:
        said["keys"] = (*rule.keys[:5], "...")
    return f"{type(rule).__name__}({', '.join(f'{k}={v!r}' for k, v in said.items())})"
