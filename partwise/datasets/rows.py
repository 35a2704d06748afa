"""Reading a dataset's parts: each is checked against the manifest before a row of it is used."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from partwise.datasets.manifest import DatasetManifest, PartDocument, dataset_path
from partwise.errors import IntegrityError, SourceError, StoreError
from partwise.runs.contents import READ_THREADS
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.file_set import Files
from partwise.sources.files.formats import read_batches
from partwise.sources.files.remote_files import Access
from partwise.sources.files.rows import FileFragment, FileRows
from partwise.sources.fragments import Fragment, Place
from partwise.store.store import Store
from partwise.tables.filters import Conditions
from partwise.tables.parquet_types import loses_order
from partwise.tables.schemas import cast_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredFile(FoundFile):
    """A file of a store, which nothing replaces."""

    opened: Any
    """The store's file system."""

    def filesystem(self) -> Any:
        """The store's own, with its keys."""
        return self.opened

    def check_unchanged(self) -> None:
        """Leave it to those who know its checksum."""


def stored_file(store: Store, path: str, size_bytes: int) -> FoundFile:
    """Return a Parquet file of a store as the reader of files takes it, in this process only."""
    local = store.local_path(path)
    shown = f"{store.url}/{path}" if local is None else local
    return _StoredFile(
        path=shown,
        format="parquet",
        base=os.path.dirname(shown),
        size_bytes=size_bytes,
        version="",
        access=None if store.filesystem() is None else Access(),
        opened=store.filesystem(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """A part, and where it belongs: a value without secrets."""

    store: Store
    reference: str
    """Of the dataset's version."""
    path: str
    """Relative to the store."""
    number: int
    """Its place, from 1."""
    of: int
    """How many parts there are."""
    document: PartDocument

    def __str__(self) -> str:
        return f"part {self.number} of {self.of} of {self.reference}"

    def file(self) -> FoundFile:
        """Return it as the reader of files takes it."""
        return stored_file(self.store, self.path, self.document.size_bytes)

    def check(self) -> None:
        """Compare its size and metadata with the manifest: two requests."""
        expected = self.document
        try:
            size = self.store.size(self.path)
            if size != expected.size_bytes:
                raise self.error(
                    f"has {size:,} bytes, and had {expected.size_bytes:,} when it was registered"
                )
            start = size - expected.footer_bytes
            footer = self.store.read_range(self.path, start, expected.footer_bytes)
        except FileNotFoundError:
            raise self.error("is gone") from None
        if hashlib.sha256(footer).hexdigest() != expected.footer_sha256:
            raise self.error("was changed after it was registered")

    def check_content(self) -> None:
        """Compare the whole part with the manifest, where it lies on this machine's disk.

        Once in a process: a part that is read in pieces is not read again for each. From a bucket
        only the columns asked for are fetched; there the checksums of pages, of the footer, and
        the number of rows have to do, and `partwise data verify` compares the rest.
        """
        path = self.store.local_path(self.path)
        if path is None:
            return
        about = os.stat(path)
        seen = (about.st_ino, about.st_size, about.st_mtime_ns)
        if not _is_as_registered(path, self.document.sha256, seen):
            raise self.error("was changed after it was registered")

    def error(self, what: str) -> IntegrityError:
        """Return the sentence that something is wrong with it."""
        return IntegrityError(f"{self.named} {what}; restore it, or register the rows again.")

    @property
    def named(self) -> str:
        """What a sentence about it begins with."""
        where = f"in {self.store.url} ({self.path})"
        return f"Part {self.number} of {self.of} of {self.reference} {where}"


@lru_cache(maxsize=4096)
def _is_as_registered(path: str, sha256: str, _seen: tuple[int, ...]) -> bool:
    """Whether a file has this checksum; asked again when what was seen of it is other."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFragment:
    """Some row groups of a part."""

    part: StoredPart
    row_groups: range | None
    names: tuple[str, ...]
    schema: pa.Schema
    """Of the batches that it gives."""
    known: Mapping[str, pa.Scalar]
    rows: int | None
    size_bytes: int
    row_bytes: int

    @property
    def place(self) -> Place:
        """A bucket can be read anywhere; a folder where this machine's disk is seen."""
        return "disk" if self.part.store.protocol == "file" else "anywhere"

    def __str__(self) -> str:
        return str(self.part)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows."""
        self.part.check()
        self.part.check_content()
        file = self.part.file()
        try:
            for batch in read_batches(
                file, self.names, self.schema, self.row_groups, self.row_bytes
            ):
                yield cast_batch(batch, self.schema, {}, str(self))
        except (PermissionError, ConnectionError, TimeoutError) as error:
            raise StoreError(f"{self.part.named} cannot be read: {error}.") from error
        except (SourceError, pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise self.part.error(f"is damaged ({reason})") from error


class DatasetRows:
    """The rows of a version, in the order in which they were registered.

    What is known before reading comes from the manifest: no part is opened. Of each part its size
    and the SHA-256 of its metadata are compared when its turn comes, and its pages carry checksums,
    so that a changed, cut or missing part is noticed without reading all columns.
    """

    def __init__(self, store: Store, manifest: DatasetManifest) -> None:
        self._manifest = manifest
        schema = manifest.schema_with_roles
        for place, field in enumerate(schema):
            # Such as were registered once: whatever order they had, none of a part's is theirs.
            if loses_order(field.type):
                kind = pa.dictionary(field.type.index_type, field.type.value_type)
                schema = schema.set(place, field.with_type(kind))
        self.schema = schema
        self._memory = {column.name: column.memory_bytes for column in manifest.columns}
        self.parts = [
            StoredPart(
                store=store,
                reference=manifest.reference,
                path=dataset_path(manifest.name, part.path),
                number=place + 1,
                of=len(manifest.parts),
                document=part,
            )
            for place, part in enumerate(manifest.parts)
        ]

    @property
    def rows(self) -> int | None:
        """How many rows there are."""
        return self._manifest.rows

    def size_bytes(self, names: Sequence[str]) -> int:
        """The size of some columns in Arrow memory."""
        return sum(self._memory[name] for name in names)

    def identity(self) -> bytes:
        """What equal rows with equal labels have in common, wherever they lie."""
        said: list[Any] = [self._manifest.fingerprint, self._manifest.label]
        # To the fingerprint of the manifest, categories and their values are the same.
        fields = [field for field in self.schema if pa.types.is_dictionary(field.type)]
        if coded := [(field.name, field.type.ordered) for field in fields]:
            said.append(coded)
        if orders := self._manifest.orders:
            said.append(orders)
        return json.dumps(said).encode()

    def recipe(self) -> dict[str, Any] | None:
        """What finds the version again from another process, in the store of the run."""
        return {"paths": [self._manifest.reference]}

    def buckets(self) -> frozenset[str]:
        """None but the store's own, whose keys every reader of a part has with the store."""
        return frozenset()

    def fragments(
        self, names: Sequence[str], conditions: Conditions | None, keys: Sequence[str] = ()
    ) -> list[Fragment]:
        """The parts, divided as files are, without what a filter's look at footers excludes."""
        with ThreadPoolExecutor(READ_THREADS) as threads:
            list(threads.map(StoredPart.check, self.parts))
        files = [part.file() for part in self.parts]
        by_path = {file.path: part for file, part in zip(files, self.parts, strict=True)}
        schema = pa.schema([self.schema.field(name) for name in names])
        fragments = FileRows(Files(list(by_path)), files).fragments(names, conditions, keys)
        return [
            # The file's own fragment would take the store's credentials along.
            PartFragment(
                part=by_path[fragment.file.path],
                row_groups=fragment.pieces,
                names=tuple(names),
                schema=schema,
                known=fragment.known,
                rows=fragment.rows,
                size_bytes=fragment.size_bytes,
                row_bytes=fragment.row_bytes,
            )
            for fragment in fragments
            if isinstance(fragment, FileFragment)
        ]
