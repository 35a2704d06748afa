"""What answers: a version with the levels that are asked after it, opened from a store."""

from dataclasses import dataclass, field
from typing import Any, Literal

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import CATALOG_SCHEME, NOUN, reference_of, versions_of
from partwise.errors import InputError
from partwise.models.serdes import ModelSerde, resolve_serde
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.run import Run
from partwise.serving.levels import Format, Level, open_level
from partwise.serving.model_cache import DEFAULT_BYTES
from partwise.store.store import Store
from partwise.store.versions import parse_reference
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes

Warm = Literal["recent", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorOptions:
    """How a predictor holds its models."""

    format: Format = "onnx"
    """"onnx": the proved exports; "native": the models as they were trained."""
    serde: ModelSerde | str | None = None
    """Reads models that no native serde wrote."""
    fallback: tuple[str | float, ...] = ()
    """What is asked where a key has no model: catalog://NAME or run://ID of fewer key columns or of
    one model; last a number, which is predicted for every row."""
    also: tuple[int, ...] = ()
    """Earlier versions of the catalog that can be asked by their numbers."""
    cache_bytes: int = DEFAULT_BYTES
    """Of loaded models, about."""
    warm: Warm = "recent"
    """Which models of a new version are loaded before it answers: those of the keys that are loaded
    of the old one; all, also at the start; none."""

    def __post_init__(self) -> None:
        """Refuse what could not be used.

        Raises:
            InputError: There is no such format, a number stands before the end of the fallback, or
                what ends it is none that can be predicted.
        """
        if self.format not in ("onnx", "native"):
            raise InputError(f'format={self.format!r}: it can be "onnx" or "native".')
        if self.warm not in ("recent", "all", "none"):
            raise InputError(f'warm={self.warm!r}: it can be "recent", "all" or "none".')
        numbers = [each for each in self.fallback[:-1] if not isinstance(each, str)]
        if numbers:
            raise InputError(
                f"fallback has {numbers[0]!r} before its end: that answers for every row, so that "
                "nothing after it is ever asked."
            )
        try:
            _ = self.constant
        except (OverflowError, TypeError, ValueError) as error:
            raise InputError(
                f"fallback ends with a {type(self.fallback[-1]).__name__} that cannot be "
                f"predicted: {error}. Give a number that is a double, or leave it out."
            ) from error

    @property
    def levels(self) -> list[str]:
        """The references in `fallback`."""
        return [each for each in self.fallback if isinstance(each, str)]

    @property
    def constant(self) -> float | None:
        """What answers where no level does; None: nothing."""
        last = self.fallback[-1] if self.fallback else None
        return None if last is None or isinstance(last, str) else float(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A version that answers, with the levels that are asked after it. It never changes."""

    levels: tuple[Level, ...]
    constant: float | None
    """What answers where no level does."""
    source: Catalog | Run
    """The version or the run that is served, as it was when it was opened."""
    met: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What was found for the keys that were asked for; see `groups.candidates_of`."""

    @property
    def reference(self) -> str:
        """What is served, as catalog://sales@7 or run://ID."""
        return self.levels[0].reference

    @property
    def version(self) -> int:
        """Of the catalog, or the generation of the run."""
        return self.levels[0].version

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        """Those of the first level."""
        return self.levels[0].key_columns

    @property
    def n_keys(self) -> int:
        """How many keys have a model of their own."""
        return len(self.levels[0])


def open_served(
    reference: str, store: Store, options: PredictorOptions, before: Served | None = None
) -> Served:
    """Open what a reference names, and the levels that are asked after it.

    Args:
        reference: What is served.
        store: Where it stands.
        options: Its levels, and how models are held.
        before: What answered of the same until now: its runs, and versions that were named by
            number, stay what they are.

    Raises:
        InputError: A reference is of no known form, or a level has other key columns.
        CatalogNotFoundError, RunNotFoundError: There is no such version or run.
        ModelNotFoundError: One has no model of the format.
        SignatureError, IntegrityError, RunFormatError: One is not to be trusted, or damaged.
    """
    serde = resolve_serde(options.serde)
    opened = [
        open_level(each, store, options.format, serde)
        if before is None or _is_followed(each)
        else (before.levels[place], before.source)
        for place, each in enumerate((reference, *options.levels))
    ]
    levels = tuple(level for level, _ in opened)
    own = {column.name: column for column in levels[0].key_columns}
    for level in levels[1:]:
        names = [column.name for column in level.key_columns]
        if missing := [name for name in names if name not in own]:
            raise InputError(
                f"{level.reference} has the key columns {names}, and {levels[0].reference} has "
                f"{list(own)}, without {missing[0]!r}: a fallback has some of them, or none."
            )
        check_key_classes(level.key_columns, [own[name] for name in names], level.reference)
    return Served(levels=levels, constant=options.constant, source=opened[0][1])


def newer_than(
    served: Served, reference: str, store: Store, options: PredictorOptions
) -> str | None:
    """Return the first of the levels of which there is another newest version; None: none.

    Raises:
        StoreError: The store cannot be listed.
    """
    for each, level in zip((reference, *options.levels), served.levels, strict=True):
        if not _is_followed(each):
            continue
        name = name_of(each)
        newest = max(versions_of(store, name).there(), default=level.version)
        if newest != level.version:
            return reference_of(name, newest)
    return None


def _is_followed(reference: str) -> bool:
    """Whether a reference names whatever version is the newest."""
    return reference.startswith(CATALOG_SCHEME) and "@" not in reference


def name_of(reference: str) -> str:
    """Return the name of the catalog, or the ID of the run, that a reference names.

    Raises:
        InputError: It names neither.
    """
    if reference.startswith(RUN_SCHEME):
        return reference.removeprefix(RUN_SCHEME)
    if not reference.startswith(CATALOG_SCHEME):
        raise InputError(
            f"{reference[:80]!r} is nothing that can be served: name catalog://NAME or run://ID."
        )
    return parse_reference(reference, NOUN)[0]
