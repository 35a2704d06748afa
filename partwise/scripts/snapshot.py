"""The source directory of a script, packed by content: a run can be repeated from itself.

    <store>/runs/<run_id>/snapshots/<sha256>-<token>.tar.gz

The same files give the same bytes, whenever and wherever they are packed: names in order, no times,
no owners. So the checksum tells two snapshots apart. The token is drawn when one is packed, so that
no name is given twice, and a garbage collection that stood still deletes nothing new; earlier
releases wrote names without. Only
regular files, folders and symbolic links that stay in the folder are in it, and what lies outside
cannot be written when it is unpacked.
"""

import gzip
import hashlib
import importlib
import io
import itertools
import os
import secrets
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from partwise.errors import InputError, IntegrityError, PartwiseError
from partwise.formatting import shortened, size
from partwise.runs.documents import SNAPSHOTS
from partwise.shuffle.shard_cache import is_disk_full

LARGEST_BYTES = 300_000_000
"""Of all files, before they are packed: as AzureML has it."""
LARGEST_COUNT = 20_000
_LARGEST_TAR_BYTES = LARGEST_BYTES + 8192 * (LARGEST_COUNT + 2)
"""With the headers, padding and long names of all files."""
_GZIP = 16 + zlib.MAX_WBITS
IGNORE_FILES = (".gitignore", ".partwiseignore")
"""In the order of their say: what the second one has about a file counts more."""
_ALWAYS_IGNORED = (".git/", "__pycache__/", "*.pyc", ".ipynb_checkpoints/", ".venv/")
_SHOWN = 3
# `_walk` calls itself: 1,500 folders in each other met Python's limit.
_DEEPEST = 200
# What unpacks: Python has `filter="data"`, which keeps files within their folder, since 3.11.4.
_tar: Any = (
    tarfile if hasattr(tarfile, "data_filter") else importlib.import_module("backports.tarfile")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A packed folder."""

    content: bytes
    """A tar file, compressed by gzip."""
    name: str
    """Where it lies, relative to the folder of its run."""


def snapshot_name(sha256: str) -> str:
    """Return a name that no other snapshot has, relative to the folder of its run."""
    return f"{SNAPSHOTS}/{sha256}-{secrets.token_hex(4)}.tar.gz"


def sha256_of_snapshot(name: str) -> str:
    """Return the checksum of a snapshot's tar file, which its name holds."""
    return name.removeprefix(f"{SNAPSHOTS}/")[:64]


def take_snapshot(directory: Path) -> Snapshot:
    """Pack a folder, but for what its .gitignore and .partwiseignore files leave out."""
    if not directory.is_dir():
        raise InputError(
            f"source_directory={str(directory)!r}: there is no such folder; name the one that the "
            "script is in."
        )
    paths = list(_walk(directory, "", [("", GitIgnoreSpec.from_lines(_ALWAYS_IGNORED))]))
    _check_size(directory, paths)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            _add(archive, directory, path)
    plain = packed.getvalue()
    return Snapshot(
        content=gzip.compress(plain, compresslevel=1, mtime=0),
        # Not of the compressed bytes, which are others where zlib is another one.
        name=snapshot_name(hashlib.sha256(plain).hexdigest()),
    )


def unpack_snapshot(content: bytes, name: str, target: Path) -> None:
    """Unpack a snapshot of this name into a new folder; nothing is written outside of it.

    Raises:
        IntegrityError: The bytes differ from their checksum, or would be written elsewhere.
    """
    with _opened(content, name) as (archive, members):
        target.mkdir(parents=True)
        archive.extractall(target, members, filter="data")


def read_snapshot_names(content: bytes, name: str) -> frozenset[str]:
    """Return the names of all files in a snapshot of this name.

    Raises:
        IntegrityError: The bytes differ from their checksum, or are not a snapshot.
    """
    with _opened(content, name) as (_, members):
        return frozenset(member.name for member in members)


@contextmanager
def _opened(content: bytes, name: str) -> Iterator[tuple[tarfile.TarFile, list[tarfile.TarInfo]]]:
    """Give the archive of a snapshot with its members, once its checksum is known to be right."""
    try:
        # No more than a snapshot can have: a few bytes can expand to any size.
        plain = zlib.decompressobj(wbits=_GZIP).decompress(content, _LARGEST_TAR_BYTES)
    except zlib.error:
        plain = b""
    if hashlib.sha256(plain).hexdigest() != sha256_of_snapshot(name):
        raise IntegrityError(
            f"The snapshot {name} differs from its checksum, so it was changed or "
            "damaged; run the script from its source directory again."
        )
    try:
        with _tar.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            # Who chose the name chose the checksum, too, and headers alone are 512 bytes each.
            members = list(itertools.islice(archive, LARGEST_COUNT + 1))
            if len(members) > LARGEST_COUNT:
                raise IntegrityError(
                    f"The snapshot {name} has more than {LARGEST_COUNT:,} files, which none that "
                    "partwise packs has; run the script from its source directory again."
                )
            yield archive, members
    except (_tar.TarError, ValueError, OSError) as error:
        if isinstance(error, PartwiseError) or is_disk_full(error):
            raise
        raise IntegrityError(f"The snapshot {name} cannot be unpacked: {error}.") from error


def _walk(root: Path, folder: str, rules: list[tuple[str, GitIgnoreSpec]]) -> Iterator[Path]:
    """Yield the files and links of a folder that are not ignored, in the order of their names."""
    here = root / folder
    rules = [*rules, *_rules_of(here, folder)]
    if folder.count("/") > _DEEPEST:
        raise InputError(
            f"The source directory {str(root)!r} has more than {_DEEPEST} folders in each other: "
            f"{shortened(folder)!r}; name what the script does not need in a file .partwiseignore "
            "there."
        )
    try:
        entries = sorted(os.scandir(here), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            f"The source directory {str(root)!r} cannot be packed: {shortened(folder)!r}: "
            f"{error.strerror}."
        ) from error
    for entry in entries:
        name = f"{folder}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        if _is_ignored(f"{name}/" if is_folder else name, rules):
            continue
        if is_folder:
            # As git does: nothing below an ignored folder can be taken back in.
            yield from _walk(root, f"{name}/", rules)
        else:
            yield root / name


def _rules_of(here: Path, folder: str) -> Iterator[tuple[str, GitIgnoreSpec]]:
    for name in IGNORE_FILES:
        path = here / name
        if path.is_file():
            text = path.read_text("utf-8-sig", errors="replace")
            yield folder, GitIgnoreSpec.from_lines(text.splitlines())


def _is_ignored(name: str, rules: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """Whether a file is ignored: the rule that stands nearest to it decides."""
    for folder, spec in reversed(rules):
        found = spec.check_file(name.removeprefix(folder)).include
        if found is not None:
            return found
    return False


def _check_size(directory: Path, paths: list[Path]) -> None:
    sizes = [(path.lstat().st_size, path) for path in paths]
    total = sum(bytes_ for bytes_, _ in sizes)
    if total <= LARGEST_BYTES and len(paths) <= LARGEST_COUNT:
        return
    largest = sorted(sizes, key=lambda one: -one[0])[:_SHOWN]
    shown = ", ".join(f"{path.relative_to(directory)} ({size(bytes_)})" for bytes_, path in largest)
    raise InputError(
        f"source_directory={str(directory)!r} has {len(paths):,} files of {size(total)}, and the "
        f"limit is {LARGEST_COUNT:,} files of {size(LARGEST_BYTES)}; the largest are {shown}. Name "
        "what the script does not need in a file .partwiseignore there, and hand data over as "
        "inputs=."
    )


def _add(archive: tarfile.TarFile, directory: Path, path: Path) -> None:
    member = tarfile.TarInfo(path.relative_to(directory).as_posix())
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        member.type = tarfile.SYMTYPE
        member.linkname = _link_target(directory, path)
        archive.addfile(member)
        return
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{path} is not a file, folder or link, and cannot be part of a snapshot; name it in a "
            "file .partwiseignore in the source directory."
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"The source directory cannot be packed: {error}.") from error
    # Of the file as it was read: it may be written to at this moment.
    member.size = len(content)
    # As git has it: with another umask it is the same snapshot.
    member.mode = 0o755 if mode & 0o111 else 0o644
    archive.addfile(member, io.BytesIO(content))


def _link_target(directory: Path, path: Path) -> str:
    """Return where a link leads, relative to its own folder."""
    root = directory.resolve()
    target = Path(os.path.normpath(path.parent.resolve() / os.readlink(path)))
    try:
        is_outside = not (target.is_relative_to(root) and path.resolve().is_relative_to(root))
    except (OSError, RuntimeError) as error:  # RuntimeError: before Python 3.13
        raise InputError(
            f"The link {path.relative_to(directory)} leads to {os.readlink(path)!r} and from there "
            "to itself: delete it, or name it in a file .partwiseignore."
        ) from error
    if is_outside:
        raise InputError(
            f"The link {path.relative_to(directory)} leads to {os.readlink(path)!r}, out of the "
            f"source directory {str(directory)!r}: copy the file there, hand it over as an input, "
            "or name the link in a file .partwiseignore."
        )
    return os.path.relpath(target, path.parent.resolve())
