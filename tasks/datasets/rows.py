"""Reading a dataset's parts: each is checked against the manifest before a row of it is used."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from partwise.tasks.data.discovery import FoundFile
from partwise.tasks.data.files import FileRows
from partwise.tasks.data.schemas import cast_batch
from partwise.tasks.datasets.dataset import Dataset
from partwise.tasks.datasets.manifest import PartDocument, dataset_path
from partwise.tasks.errors import IntegrityError, SourceError
from partwise.tasks.runs.store import Store


class _StoredFile(FoundFile):
    """A file of a store, which nothing replaces."""

    __slots__ = ()

    def check_unchanged(self) -> None:
        """Leave it to those who know its checksum."""


def stored_file(store: Store, path: str, size_bytes: int) -> FoundFile:
    """Return a Parquet file of a store as the reader of files takes it."""
    local = store.local_path(path)
    shown = f"{store.url}/{path}" if local is None else local
    return _StoredFile(
        path=shown,
        format="parquet",
        base=os.path.dirname(shown),
        size_bytes=size_bytes,
        version="",
        filesystem=store.filesystem(),
    )


class DatasetRows:
    """The rows of a version, in the order in which they were registered.

    What is known before reading comes from the manifest: no part is opened. Of each part its size
    and the SHA-256 of its metadata are compared when its turn comes, and its pages carry checksums,
    so that a changed, cut or missing part is told from a whole one without reading all columns.

    Args:
        dataset: The version.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.schema = dataset.schema
        self._memory = {column.name: column.memory_bytes for column in dataset.manifest.columns}

    @property
    def default_columns(self) -> list[str] | None:
        """All but the excluded ones, where the caller names none."""
        return self._dataset.default_columns

    @property
    def rows(self) -> int | None:
        """How many rows there are."""
        return self._dataset.rows

    def size_bytes(self, names: Sequence[str]) -> int:
        """The size of some columns in Arrow memory."""
        return sum(self._memory[name] for name in names)

    def identity(self) -> bytes:
        """What equal rows with equal labels have in common, wherever they lie."""
        return json.dumps([self._dataset.fingerprint, self._dataset.manifest.label]).encode()

    def recipe(self) -> dict[str, Any] | None:
        """What finds the version again from another process, in the store of the run."""
        return {"paths": [self._dataset.reference]}

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the columns `names` of all parts.

        Raises:
            IntegrityError: A part is missing, or is not as it was registered.
        """
        schema = pa.schema([self.schema.field(name) for name in names])
        for part in self._dataset.manifest.parts:
            self.check(part)
            path = dataset_path(self._dataset.name, part.path)
            file = stored_file(self._dataset.store, path, part.size_bytes)
            try:
                for batch in FileRows([file], [file.path]).batches(names):
                    yield cast_batch(batch, schema, {}, self._what(part))
            except SourceError as error:
                raise IntegrityError(
                    f"{self._what(part)} is damaged ({error}); restore it, or register the rows "
                    "again."
                ) from error

    def check(self, part: PartDocument) -> None:
        """Compare a part's size and metadata with the manifest: two requests.

        Raises:
            IntegrityError: They differ, or the part is missing.
        """
        path = dataset_path(self._dataset.name, part.path)
        store = self._dataset.store
        try:
            size = store.size(path)
            if size != part.size_bytes:
                raise IntegrityError(
                    f"{self._what(part)} has {size:,} bytes, and had {part.size_bytes:,} when it "
                    "was registered; restore it, or register the rows again."
                )
            footer = store.read_range(path, size - part.footer_bytes, part.footer_bytes)
        except FileNotFoundError:
            raise IntegrityError(
                f"{self._what(part)} is gone; restore it, or register the rows again."
            ) from None
        if hashlib.sha256(footer).hexdigest() != part.footer_sha256:
            raise IntegrityError(
                f"{self._what(part)} was changed after it was registered; restore it, or register "
                "the rows again."
            )

    def _what(self, part: PartDocument) -> str:
        dataset = self._dataset
        number = dataset.manifest.parts.index(part) + 1
        return (
            f"Part {number} of {len(dataset.manifest.parts)} of {dataset.reference} in "
            f"{dataset.store.url} ({part.path})"
        )
