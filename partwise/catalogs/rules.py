"""Rules by which models become champions, as values: compared, written down, shown by forms."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from partwise.form_schema import for_forms
from partwise.settings import Settings, kind_field

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
