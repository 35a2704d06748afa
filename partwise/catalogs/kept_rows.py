"""What a server was asked and answered, as files of rows that an evaluation reads.

They stand under served/NAME of the store, where only servers write and nobody changes a file. Each
has the answers of one version. Its name has its size, so that a listing tells how much is there.
"""

import json
import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import InputError, IntegrityError
from partwise.runs.contents import READ_THREADS
from partwise.runs.own_checksums import check_own_checksum, check_own_signature, write_sealed
from partwise.store.signing import given_key, is_configured
from partwise.store.store import Store
from partwise.store.strict_json import parse_json

SERVED_SCHEME = "served://"
REQUEST_ID, ANSWERED_AT = "request_id", "answered_at"
_ABOUT = b"partwise"
_FILE = re.compile(r"\d+-\d+-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Whose answers are in a file."""

    version: int
    """Of the catalog, or the generation of the run."""
    key_columns: tuple[str, ...]
    levels: tuple[str, ...]
    """What was asked in turn, as catalog://sales@7 or run://ID; model_level counts them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptRows:
    """Rows of several files, the oldest first."""

    about: About
    """That of the newest version among them."""
    rows: pa.Table
    """Those columns that were wanted."""
    names: tuple[str, ...]
    """All columns that there are."""


def folder_of(name: str) -> str:
    """Return where the rows of a model that is served as `name` stand."""
    return f"served/{name}"


def kept_files(store: Store, name: str) -> dict[str, tuple[int, int]]:
    """Return the version and the size in bytes of each file, by its path."""
    folder = folder_of(name)
    paths = (f"{folder}/{each}" for each in store.list_folder(folder) if _FILE.fullmatch(each))
    return {path: _parts(path)[:2] for path in paths}


def _parts(path: str) -> tuple[int, int, str]:
    """Return the version, the size and the token in the name of a file."""
    version, size, token = path.rpartition("/")[2].removesuffix(".parquet").split("-")
    return int(version), int(size), token


def write_kept(store: Store, name: str, rows: pa.Table, about: About) -> int:
    """Write a file of rows, and return its size in bytes."""
    described = rows.replace_schema_metadata({_ABOUT: json.dumps(asdict(about))})
    token = secrets.token_hex(8)
    key = given_key(store) if is_configured(store) else None
    content = write_sealed(described, _purpose(name, about.version, token), key)
    file = f"{about.version:08d}-{len(content)}-{token}.parquet"
    store.create(f"{folder_of(name)}/{file}", content)
    return len(content)


def _purpose(name: str, version: int, token: str) -> str:
    """Return what a file is signed for: its path, but for the size that is known only later."""
    return f"{folder_of(name)}/{version:08d}-{token}"


def read_kept(store: Store, reference: str, wanted: Callable[[str, About], bool]) -> KeptRows:
    """Read the rows that were kept.

    `reference` is served://NAME for all of them, or served://NAME@VERSION; `wanted` tells of a
    column whether it is read.

    Raises:
        InputError: There are none, or their columns are of types that do not go together.
        IntegrityError: A file is damaged.
        SignatureError: Keys are configured, and none of them signed a file.
    """
    name, _, version = reference.removeprefix(SERVED_SCHEME).partition("@")
    files = [
        path
        for path, (made_by, _) in kept_files(store, name).items()
        if version in ("", str(made_by))
    ]
    if not files:
        raise InputError(
            f"Nothing is kept for {reference} in this store. Name a model whose server keeps "
            "requests, or a version of which it has kept some."
        )

    def read(path: str) -> tuple[About, Sequence[str], pa.Table]:
        content = store.read(path)
        if is_configured(store):
            made_by, _, token = _parts(path)
            check_own_signature(content, _purpose(name, made_by, token), path, store)
        try:
            if not check_own_checksum(content, path):
                raise ValueError("it has no checksum")
            file = pq.ParquetFile(pa.BufferReader(content))
            found = parse_json(file.schema_arrow.metadata[_ABOUT])
            about = About(
                version=int(found["version"]),
                key_columns=tuple(found["key_columns"]),
                levels=tuple(found["levels"]),
            )
            names = file.schema_arrow.names
            rows = file.read([name for name in names if wanted(name, about)])
        # Of our own errors RunFormatError is a ValueError.
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise IntegrityError(f"The file {path} of kept requests is damaged.") from error
        return about, names, rows.replace_schema_metadata(None)

    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = list(threads.map(read, files))
    try:
        rows = pa.concat_tables([each for _, _, each in found], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(
            f"The requests that are kept for {reference} have a column of several types; name one "
            f"version, of which all are alike, or delete the other files. {error}"
        ) from error
    return KeptRows(
        about=max((about for about, _, _ in found), key=lambda about: about.version),
        rows=rows.sort_by(ANSWERED_AT),
        names=tuple(dict.fromkeys(name for _, names, _ in found for name in names)),
    )
