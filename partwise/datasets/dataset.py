"""The handle of a dataset's version: schema, statistics, and its rows as a source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.datasets.manifest import (
    DATASETS,
    NOUN,
    ColumnDocument,
    DatasetManifest,
    versions_of,
)
from partwise.datasets.rows import DatasetRows
from partwise.errors import DatasetNotFoundError, InputError, RunFormatError
from partwise.formatting import counted
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source
from partwise.sources.references import is_reference
from partwise.store.store import Store
from partwise.store.versions import check_name, is_name, parse_reference
from partwise.tables.filters import Filter


@dataclass(frozen=True, slots=True)
class Dataset:
    """A version of a dataset: rows that do not change any more.

    A plain value without secrets. It can be given to a flow as `data`.

    Example:
        >>> sales = Dataset.open("sales", store="/data/models")  # doctest: +SKIP
        >>> sales.version, sales.statistics["price"].max  # doctest: +SKIP
        (3, 99.5)
    """

    store: Store
    manifest: DatasetManifest

    @classmethod
    def open(
        cls, name: str, version: int | None = None, store: Store | str | Path = "artifacts"
    ) -> "Dataset":
        """Open a version of a dataset.

        Args:
            name: The dataset's name.
            version: Its number, from 1; None: the newest.
            store: The artifact store: its URL, a folder, or a `Store`.

        Raises:
            InputError: The name is not a safe name.
            DatasetNotFoundError: The store has no such dataset, or not this version.
            RunFormatError: The manifest is damaged, or of a newer format.
            SignatureError: Signing keys are configured, and none of them signed the manifest.
            StoreError: The store cannot be read.
        """
        versions = versions_of(Store.of(store), check_name(name, NOUN))
        try:
            number, content = versions.read(version)
        except FileNotFoundError:
            raise DatasetNotFoundError(versions.why_not_found(version)) from None
        path = versions.path(number)
        manifest = DatasetManifest.from_bytes(content, path)
        if (manifest.name, manifest.version) != (name, number):
            raise RunFormatError(
                f"{path} is that of {manifest.reference}; the folder was "
                "renamed or copied: register the rows under the new name."
            )
        versions.remember(number)
        return cls(versions.store, manifest)

    @classmethod
    def of(cls, reference: str, store: Store | str | Path = "artifacts") -> "Dataset":
        """Open what `dataset://NAME@VERSION`, or `dataset://NAME` for the newest, stands for."""
        name, version = parse_reference(reference, NOUN)
        return cls.open(name, version, store)

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self.manifest.name

    @property
    def version(self) -> int:
        """The number of this version, from 1."""
        return self.manifest.version

    @property
    def reference(self) -> str:
        """What names this version: `dataset://NAME@VERSION`."""
        return self.manifest.reference

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its rows, names and types."""
        return self.manifest.fingerprint

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.manifest.rows

    @property
    def schema(self) -> pa.Schema:
        """Its Arrow schema; a label's field has the metadata `partwise.role` = `label`."""
        return self.manifest.schema_with_roles

    @property
    def statistics(self) -> dict[str, ColumnDocument]:
        """The statistics of each column, by its name."""
        return {column.name: column for column in self.manifest.columns}

    @property
    def default_columns(self) -> list[str] | None:
        """The columns read where none are named; None: all."""
        excluded = set(self.manifest.excluded)
        names = [name for name in self.manifest.schema.names if name not in excluded]
        return names if excluded else None

    def open_rows(self) -> DatasetRows:
        """Return its rows as `open_source` reads them; no part is opened yet."""
        return DatasetRows(self.store, self.manifest)

    def source(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002 (the word of every reader of tables)
    ) -> Source:
        """Return its rows as a source; `open_source` has the arguments.

        Raises:
            ColumnError: A column is missing.
            InputError: The filter is malformed.
        """
        return open_source(self, columns=columns, filter=filter)

    def __repr__(self) -> str:
        return f"Dataset({self.reference!r}, {counted(self.rows, 'row')}, {self.store.url!r})"


def list_versions(store: Store, name: str) -> list[int]:
    """Return the numbers of a dataset's versions, ascending."""
    return versions_of(store, name).there()


def list_datasets(store: Store | str | Path = "artifacts") -> list[Dataset]:
    """Return the newest version of each dataset in a store, by name.

    Raises:
        RunFormatError: A manifest is damaged, or of a newer format.
        StoreError: The store cannot be read.
    """
    opened = Store.of(store)
    return [Dataset.open(name, store=opened) for name in dataset_names(opened)]


def dataset_names(store: Store) -> list[str]:
    """Return the names of the datasets in a store, sorted."""
    names = store.list_folder(DATASETS)
    return [name for name in names if is_name(name) and list_versions(store, name)]


def resolve_references(data: Any, store: Callable[[], Store]) -> Any:
    """Return what a caller gives as data, with datasets in place of `dataset://` names.

    `dataset://NAME` is the version that is the newest at this moment; `store` is asked only when
    there is such a name. A dataset of another store is refused: the run could not be resumed.
    """
    if isinstance(data, list | tuple):
        return [resolve_references(item, store) for item in data]
    if is_reference(data):
        return Dataset.of(data, store())
    if isinstance(data, Dataset) and data.store.url != (wanted := store().url):
        raise InputError(
            f"{data.reference} lies in {data.store.url}, and the run in {wanted}: register the "
            "dataset there, or pass that store."
        )
    return data
