"""Where a dataset lies, and the manifest that makes a version of it.

    <store>/datasets/<name>/
        manifests/0003.json     a version: created exclusively, last, and never changed
        parts/<token>/*.parquet the rows of one version, in the order of their names

The token is drawn when a registration begins, so that no two of them share a folder: one that died
leaves nothing but a folder to which no manifest refers.
"""

import base64
import re
from datetime import datetime
from typing import ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from partwise.errors import InputError
from partwise.runs.documents import Document, is_run_id
from partwise.sources.references import DATASET_SCHEME, is_reference
from partwise.tables.roles import with_label_role

DATASETS = "datasets"
MANIFESTS = "manifests"
PARTS = "parts"

_MANIFEST_FILE = re.compile(r"(\d{4,})\.json")
_REFERENCE = re.compile(r"dataset://([^@]*)(?:@([1-9][0-9]{0,8}))?")


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartDocument(_Value):
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


class ColumnDocument(_Value):
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


class RunOrigin(_Value):
    """The run whose output rows a version holds."""

    run_id: str
    generation: int
    ledger_sha256: str
    """Of the run's consolidated ledger: which outcome of the run it is."""


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
        return _decode_schema(self.arrow_schema)

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


def encode_schema(schema: pa.Schema) -> str:
    """Return a schema as `DatasetManifest.arrow_schema` holds it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def is_dataset_name(name: str) -> bool:
    """Whether a name can be that of a dataset: as that of a run, but not like that of a file."""
    return is_run_id(name) and "." not in name


def check_dataset_name(name: str) -> str:
    """Return the name of a dataset when it is a safe one on every store."""
    if not is_dataset_name(name):
        raise InputError(
            f"The dataset name {name[:80]!r} is not a safe name; use 1 to 64 letters, digits, '-' "
            "and '_', beginning with a letter or digit."
        )
    return name


def parse_reference(text: str) -> tuple[str, int | None]:
    """Return the name, and the version if there is one, of NAME, NAME@VERSION or dataset://....

    Raises:
        InputError: It is not of this form.

    Example:
        >>> parse_reference("dataset://sales@3")
        ('sales', 3)
    """
    match = _REFERENCE.fullmatch(text if is_reference(text) else f"{DATASET_SCHEME}{text}")
    if match is None:
        raise InputError(
            f"{text[:80]!r} names no dataset: write {DATASET_SCHEME}NAME@VERSION, such as "
            f"{DATASET_SCHEME}sales@3, or {DATASET_SCHEME}NAME for the newest."
        )
    return check_dataset_name(match[1]), int(match[2]) if match[2] else None


def dataset_path(name: str, *names: str) -> str:
    """Return a path below the folder of a dataset, relative to the store."""
    return "/".join((DATASETS, name, *names))


def manifest_file(version: int) -> str:
    """Return the name of a version's manifest, relative to the dataset."""
    return f"{MANIFESTS}/{version:04d}.json"


def version_number(filename: str) -> int:
    """Return the version whose manifest has this file name; 0 for any other file."""
    match = _MANIFEST_FILE.fullmatch(filename)
    return int(match[1]) if match else 0
