"""Where a dataset lies, and the manifest that makes a version of it.

    <store>/datasets/<name>/
        manifests/0003.json     a version: created exclusively, last, and never changed
        parts/<token>/*.parquet the rows of one version, in the order of their names

The token is drawn when a registration begins, so that no two of them share a folder: one that died
leaves nothing but a folder to which no manifest refers.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

import pyarrow as pa
from pydantic import Field, JsonValue, field_validator

from partwise.runs.documents import Document, Part, RunOrigin
from partwise.sources.references import DATASET_SCHEME
from partwise.store.store import Store
from partwise.store.versions import Versions
from partwise.tables.roles import with_label_role

DATASETS = "datasets"
MANIFESTS = "manifests"
PARTS = "parts"
NOUN = "dataset"

_ORDER = b"partwise.order"
"""Metadata of a field: the fingerprint of the order of its categories."""


class PartDocument(Part):
    """A file of rows."""

    # Whoever may write to a store may write any manifest: its paths are not to lead elsewhere.
    path: str = Field(pattern=r"^parts/[0-9A-Za-z_-]+/[0-9A-Za-z_-]+\.parquet$")
    """Relative to the dataset's folder."""
    rows: int
    size_bytes: int
    sha256: str
    footer_bytes: int
    """The Parquet metadata at its end, with length and magic number."""
    footer_sha256: str


class ColumnDocument(Part):
    """A column and its statistics."""

    name: str
    type: str
    memory_bytes: int
    """In Arrow memory."""
    nulls: int
    nans: int = 0
    min: JsonValue = None
    """Without NaN; text where JSON has no such type. None: no value, or a type without order."""
    max: JsonValue = None
    mean: float | None = None
    """Of finite numbers."""
    distinct: int | None
    """Distinct values but null, exact up to 4,096, else about. None: unknown."""


class DatasetManifest(Document):
    """`manifests/000N.json`: all that is known of a version."""

    format_version: int = 2
    sealed_since: ClassVar[int | None] = 2
    name: str
    version: int = Field(ge=1)
    description: str
    rows: int
    columns: tuple[ColumnDocument, ...]
    excluded: tuple[str, ...]
    """Columns that are read only when they are named."""
    label: tuple[str, ...]
    """Columns that a model is to predict."""
    parts: tuple[PartDocument, ...]
    fingerprint: str
    """SHA-256 over the rows in their order, with names and types; parts make no difference."""
    arrow_schema: str
    """The schema as an Arrow IPC message in base64."""
    source: dict[str, JsonValue]
    """Where the rows came from."""
    source_fingerprint: str | None
    """By which the source was found unchanged."""
    origin: RunOrigin | None
    created_at: datetime
    partwise_version: str
    writer: str
    """Random: by it a creator whose response was lost knows the manifest as its own."""

    @field_validator("arrow_schema")
    @classmethod
    def _is_schema(cls, text: str) -> str:
        try:
            _decode_schema(text)
        except (ValueError, OSError) as error:
            raise ValueError("it is not an Arrow schema") from error
        return text

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows, without roles."""
        schema = _decode_schema(self.arrow_schema)
        for place, field in enumerate(schema):
            if _ORDER in (metadata := field.metadata or {}):
                left = {key: value for key, value in metadata.items() if key != _ORDER}
                schema = schema.set(place, field.with_metadata(left or None))
        return schema

    @property
    def orders(self) -> dict[str, str]:
        """Fingerprints of the orders of ordered columns; an earlier release wrote none down."""
        schema = _decode_schema(self.arrow_schema)
        marks = {field.name: (field.metadata or {}).get(_ORDER) for field in schema}
        return {name: mark.decode() for name, mark in marks.items() if mark is not None}

    @property
    def schema_with_roles(self) -> pa.Schema:
        """The schema; a label's field has the metadata `partwise.role` = `label`."""
        schema = self.schema
        for name in self.label:
            place = schema.get_field_index(name)
            schema = schema.set(place, with_label_role(schema.field(place)))
        return schema

    @property
    def reference(self) -> str:
        """What names this version: `dataset://NAME@VERSION`."""
        return f"{DATASET_SCHEME}{self.name}@{self.version}"

    def mark_of(self, column: str) -> str:
        """Return "label" or "excluded" where a column is marked so, "" where it is not."""
        if column in self.label:
            return "label"
        return "excluded" if column in self.excluded else ""

    @property
    def size_bytes(self) -> int:
        """The size of all parts."""
        return sum(part.size_bytes for part in self.parts)


def encode_schema(schema: pa.Schema, orders: Mapping[str, str]) -> str:
    """Return a schema as `DatasetManifest.arrow_schema` holds it, with `DatasetManifest.orders`."""
    for name, mark in orders.items():
        place = schema.get_field_index(name)
        field = schema.field(place)
        schema = schema.set(place, field.with_metadata({**(field.metadata or {}), _ORDER: mark}))
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def dataset_path(name: str, *names: str) -> str:
    """Return a path below the folder of a dataset, relative to the store."""
    return "/".join((DATASETS, name, *names))


def versions_of(store: Store, name: str) -> Versions:
    """Return the versions of a dataset."""
    return Versions(
        store=store,
        folder=dataset_path(name),
        documents=MANIFESTS,
        noun=NOUN,
        made_by="partwise data register, or register_dataset,",
    )
