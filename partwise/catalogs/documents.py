"""Where a catalog lies, and the document that makes a version of it.

    <store>/catalogs/<name>/
        versions/0003.json        a version: created exclusively, last, and never changed
        versions/0003.gone        it was removed; its document stays
        tables/<token>.parquet    the champions of a version, one row a key
    <store>/runs/<id>/held/<name>-0003-<token>.json   what it draws on: see `partwise.runs.holds`

The token is drawn when a commit begins, so that no two of them share a name.
"""

import getpass
import os
import socket
from datetime import datetime
from typing import ClassVar

from pydantic import Field, JsonValue

from partwise.runs.documents import Document, Part, RunOrigin
from partwise.store.store import Store
from partwise.store.versions import Versions
from partwise.tables.keys.partition_keys import KeyColumn

CATALOGS = "catalogs"
VERSIONS = "versions"
TABLES = "tables"
NOUN = "catalog"
CATALOG_SCHEME = f"{NOUN}://"


def this_user() -> str:
    """Return who is at work, as `Origin.who` has it: user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


class Origin(Part):
    """How a version came about."""

    action: str
    """What was done: promote, rollback, pin, unpin, retire."""
    rule: dict[str, JsonValue] = Field(default_factory=dict)
    """By which rule, or with which keys."""
    comparison: RunOrigin | None = None
    """On the grounds of which comparison."""
    who: str = Field(default_factory=this_user)
    counts: dict[str, int] = Field(default_factory=dict)
    """What came of it, such as won, lost, new."""

    def is_same(self, other: "Origin") -> bool:
        """Whether both are one action, by whoever: what it made need not be made again."""
        ours, theirs = (
            (each.action, each.rule, each.comparison and each.comparison.model_dump())
            for each in (self, other)
        )
        return ours == theirs


class TableDocument(Part):
    """The table of a version."""

    # Whoever may write to a store may write any document: its paths are not to lead elsewhere.
    path: str = Field(pattern=r"^tables/[0-9a-f]{16}\.parquet$")
    """Relative to the catalog's folder."""
    rows: int
    size_bytes: int
    sha256: str


class DrawnRun(Part):
    """A run with models that a version names."""

    run_id: str
    ledgers: tuple[str, ...]
    """Those that describe them, relative to the run: they are held as well."""


class VersionDocument(Document):
    """`versions/000N.json`: all that is known of a version but its rows."""

    format_version: int = 1
    sealed_since: ClassVar[int | None] = 1
    name: str
    version: int = Field(ge=1)
    base: int = Field(ge=0)
    """The version that it was made from, one less; 0: it is the first."""
    keys: tuple[KeyColumn, ...]
    table: TableDocument
    runs: tuple[DrawnRun, ...]
    origin: Origin
    created_at: datetime
    partwise_version: str
    token: str = Field(pattern="^[0-9a-f]{16}$")
    """Random: its holds have it, and by it a creator whose response was lost knows the document."""

    @property
    def reference(self) -> str:
        """What names this version: `catalog://NAME@VERSION`."""
        return reference_of(self.name, self.version)

    @property
    def told(self) -> str:
        """Who made it, when, and by which rule."""
        when = self.created_at.isoformat(sep=" ", timespec="seconds")
        rule = ", ".join(f"{name} {value}" for name, value in self.origin.rule.items())
        return f"{self.origin.who} at {when} by {self.origin.action}" + (f" ({rule})" * bool(rule))


def reference_of(name: str, version: int) -> str:
    """Return what names a version of a catalog."""
    return f"{CATALOG_SCHEME}{name}@{version}"


def catalog_path(name: str, *names: str) -> str:
    """Return a path below the folder of a catalog, relative to the store."""
    return "/".join((CATALOGS, name, *names))


def versions_of(store: Store, name: str) -> Versions:
    """Return the versions of a catalog."""
    return Versions(
        store=store,
        folder=catalog_path(name),
        documents=VERSIONS,
        noun=NOUN,
        made_by="partwise promote, or promote_models,",
    )


def hold_name(name: str, version: int, token: str) -> str:
    """Return the name that a version's hold has in each run."""
    return f"{name}-{version:04d}-{token}"
