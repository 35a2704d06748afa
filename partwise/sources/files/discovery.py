"""Finding the files that a path, glob, directory or URL stands for."""

import glob
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from partwise.choices import Format
from partwise.errors import SourceError
from partwise.sources.files.file_parts import (
    REQUESTED_BYTES,
    BlocksReader,
    FileParts,
    PartsReader,
    RangesReader,
)
from partwise.sources.files.remote_files import Access, at_once, bucket_of, filesystem_of
from partwise.sources.table_formats.roots import tables_among

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_TEXT: dict[str, Format] = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json"}
_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    **{f"{name}{end}": form for name, form in _TEXT.items() for end in ("", *_COMPRESSIONS)},
    ".orc": "orc",
    ".arrow": "ipc",
    ".arrows": "ipc",
    ".ipc": "ipc",
    ".feather": "ipc",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "excel",
    ".ods": "excel",
}
_GLOB = frozenset("*?[")
_FETCHED_BYTES = 8 * 2**20
"""Of a file that is fetched at once; a reader's buffers of a larger one take as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """One file of a source."""

    path: str
    """An absolute path, or a URL."""

    format: Format
    """By its suffix, or as the caller chose."""

    base: str
    """The directory that the caller named: `key=value` parts below it are columns."""

    size_bytes: int
    """Its size."""

    version: str
    """What changes when it is written again: mtime and ctime in ns, or the store's marks."""

    identity: str | None = None
    """Equal only where the content is: on a disk the version and the inode, which no copy takes
    along as it does an mtime; on a store the etag or the generation. None: nothing here says it."""

    access: Access | None = None
    """What opens the bucket of a URL; None for a local path."""

    content: bytes | FileParts | None = field(default=None, repr=False)
    """All of it, or the parts that are read, where they were fetched."""

    @property
    def is_far(self) -> bool:
        """Whether it lies in a bucket, and was not fetched."""
        return self.access is not None and self.content is None

    @property
    def is_small_and_far(self) -> bool:
        """Whether it is better fetched at once: each look at a bucket is a request, or three."""
        return self.is_far and self.size_bytes <= _FETCHED_BYTES

    def fetched(self) -> "FoundFile":
        """Return a small file of a bucket with its content; another one as it is."""
        if not self.is_small_and_far:
            return self
        # With its end: without, some stores are asked for that first.
        content = self._fetch(0, self.size_bytes) if self.size_bytes else b""
        return replace(self, content=content)

    def with_start(self) -> "FoundFile":
        """Return a file with its content if it is small and in a bucket, of a larger one its start.

        For whoever looks at its first rows several times: Arrow reads a block and the next one for
        them.
        """
        if not self.is_far or self.is_small_and_far:
            return self.fetched()
        return self.with_spans([(0, min(2 * REQUESTED_BYTES, self.size_bytes))])

    def with_spans(self, spans: Sequence[tuple[int, int]]) -> "FoundFile":
        """Return a file of a bucket with its bytes from so many on to so many, fetched at once.

        Those that it has of others it keeps.
        """
        cuts = [
            (start, min(start + REQUESTED_BYTES, end))
            for begin, end in spans
            for start in range(begin, end, REQUESTED_BYTES)
        ]
        starts, ends = [start for start, _ in cuts], [end for _, end in cuts]
        path = self.bare_path()
        found = self.filesystem().cat_ranges([path] * len(cuts), starts, ends, on_error="raise")
        before = self.content.parts if isinstance(self.content, FileParts) else {}
        parts = {**before, **dict(zip(starts, found, strict=True))}
        return replace(self, content=FileParts(size_bytes=self.size_bytes, parts=parts))

    def open(self, *, reads_ahead: bool = True) -> pa.NativeFile:
        """Open it for reading at any position.

        Of a bucket, blocks are fetched ahead, unless the reader has buffers of its own.
        """
        if isinstance(self.content, FileParts):
            return pa.PythonFile(PartsReader(self.content), mode="r")
        if self.content is not None:
            return pa.BufferReader(self.content)
        if self.access is None:
            # A mapped file that is cut short while it is read kills the process (SIGBUS).
            return pa.OSFile(self.path)
        reader = BlocksReader if reads_ahead else RangesReader
        return pa.PythonFile(reader(self.size_bytes, self._fetch), mode="r")

    def open_stream(self) -> pa.NativeFile:
        """Open it for reading from front to end, decompressed if its name ends in .gz and such."""
        opened = self.open()
        if isinstance(self.content, FileParts):
            start = b"".join(part for _, part in sorted(self.content.parts.items()))
            opened = pa.PythonFile(BlocksReader(self.size_bytes, self._fetch, start), mode="r")
        return pa.input_stream(opened, self.compression)

    @contextmanager
    def streamed(self) -> Iterator[pa.NativeFile]:
        """Give `open_stream` to a reader that reads on by a thread of its own.

        Of a bucket that would be requests, after the reader is done with: it is closed. A file on a
        disk is not: closed under that thread, its number might be that of another file by then.
        """
        stream = self.open_stream()
        try:
            yield stream
        finally:
            if self.access is not None:
                stream.close()

    def _fetch(self, start: int, end: int) -> bytes:
        fetched: bytes = self.filesystem().cat_file(self.bare_path(), start=start, end=end)
        return fetched

    @property
    def compression(self) -> str | None:
        """Of the whole file, by its name, as Arrow calls it."""
        return _COMPRESSIONS.get(os.path.splitext(self.path)[1].lower())

    def check_unchanged(self) -> None:
        """Raise `SourceError` when the file was replaced since it was found."""
        # Not the inode: some network file systems number a file again on each machine.
        now = _stamp(self.filesystem(), self.bare_path(), self.path)
        # Services that speak S3 may list an etag without its quotes.
        versions = {version.replace('"', "") for version in (now.version, self.version)}
        if now.size_bytes != self.size_bytes or len(versions) > 1:
            raise SourceError(
                f"File {self.path!r} changed while it was in use: run again with files at rest."
            )

    def bare_path(self) -> str:
        """The path as its file system knows it."""
        filesystem = self.filesystem()
        return self.path if filesystem is None else str(filesystem._strip_protocol(self.path))

    def filesystem(self) -> Any:
        """The fsspec file system of a URL; None for a local path."""
        return None if self.access is None else filesystem_of(self.path, self.access)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamp:
    """What a file system says of a file's content."""

    size_bytes: int
    version: str
    identity: str | None
    settled_at: int = 0
    """When its clock will surely have moved on, in ns since 1970: all that is written to the file
    from then on has another version."""


_CONTENT_MARKS = ("ETag", "etag", "generation", "md5Hash")
"""What stores say of the content of an object, and of nothing else that is equal by chance."""
_OTHER_MARKS = ("mtime", "LastModified", "last_modified", "created")
_TICK_NS = 20_000_000
"""Kernels stamp files with the time of the last tick of their clock, of 1 to 10 ms."""
_COARSE_TICK_NS = 2_000_000_000
"""File systems that keep whole seconds, FAT every second one."""


def _stamp(filesystem: Any, path: str, shown: str, listed: Any = None) -> _Stamp:
    try:
        if filesystem is None:
            found = os.stat(path)
            is_folder = stat.S_ISDIR(found.st_mode)
        else:
            info = listed or filesystem.info(path)
            is_folder = info.get("type") == "directory"
    except OSError as exc:
        raise SourceError(f"File {shown!r} cannot be read: {exc.strerror or exc}.") from exc
    if is_folder:
        raise SourceError(f"File {shown!r} cannot be read: it is a folder.")
    if filesystem is None:
        return _stamp_on_disk(found)
    content = [str(info[mark]) for mark in _CONTENT_MARKS if info.get(mark)]
    others = [str(info[mark]) for mark in _OTHER_MARKS if info.get(mark)]
    version = " ".join(content or others[:1])
    return _Stamp(
        size_bytes=int(info["size"]), version=version, identity=version if content else None
    )


def _stamp_on_disk(found: os.stat_result) -> _Stamp:
    written = found.st_ctime_ns
    tick = _TICK_NS if written % 10**9 else _COARSE_TICK_NS
    version = f"{found.st_mtime_ns} {written}"
    # Of a clock that is ahead of ours nobody knows when it moves on.
    is_ahead = written > time.time_ns()
    return _Stamp(
        size_bytes=found.st_size,
        version=version,
        identity=None if is_ahead else f"{version} {found.st_ino}",
        settled_at=0 if is_ahead else written + tick,
    )


def format_of_name(path: str) -> Format | None:
    """Return the format that the end of a file's name says; None: it says none."""
    name = path.lower()
    return next((form for suffix, form in _SUFFIXES.items() if name.endswith(suffix)), None)


def is_hidden(relative: str) -> bool:
    """Whether a path below a directory is a leftover or marker, such as _SUCCESS or .crc files."""
    parts = PurePosixPath(relative).parts
    # ~$ is what Excel puts beside a workbook that is open.
    return any(part.startswith((".", "_", "~$")) and "=" not in part for part in parts)


def _in_directory(base: str, paths: list[str], shown: str, form: Format | None) -> list[str]:
    """The data files among those below a directory, sorted; they must be of one format."""
    # Before leftovers go: the folder of a log begins with "_" or ".", as they do.
    if form in (None, "parquet", "orc") and (tables := tables_among(paths)):
        raise tables[0].refusal(f"What lies in {shown!r}")
    visible = [path for path in paths if not is_hidden(path[len(base) :].lstrip("/"))]
    if form is not None and visible:
        return sorted(visible)
    files = sorted(path for path in visible if format_of_name(path))
    formats = sorted({str(format_of_name(path)) for path in files})
    if not files:
        raise SourceError(f"Directory {shown!r} holds no file that ends in {', '.join(_SUFFIXES)}.")
    if len(formats) > 1:
        raise SourceError(
            f"Directory {shown!r} holds files of several formats ({', '.join(formats)}): "
            "name one kind with a glob, such as '*.parquet'."
        )
    return files


def _glob_base(pattern: str) -> str:
    """The part of a glob in front of its first wildcard, up to a slash."""
    first = next(index for index, char in enumerate(pattern) if char in _GLOB)
    return pattern[:first].rpartition("/")[0] or "/"


def _walk_error(error: OSError) -> None:
    raise SourceError(f"Directory {error.filename!r} cannot be read: {error.strerror}.") from error


def _walk(path: str) -> list[str]:
    """All files below a directory; links to directories are followed, each directory once."""
    paths: list[str] = []
    seen: set[str] = set()
    for folder, folders, names in os.walk(path, onerror=_walk_error, followlinks=True):
        # A link to a folder above would lead round for ever.
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        paths += [os.path.join(folder, name) for name in names]
    return paths


def _each_once(paths: list[str]) -> list[str]:
    """The paths without those that lead, by links, to a file that one before them leads to."""
    return list({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def _local_files(path: str, form: Format | None) -> tuple[str, list[str]]:
    """The base and the files of a local path, directory or glob."""
    if os.path.isfile(path) or (os.path.islink(path) and not os.path.isdir(path)):
        return os.path.dirname(path), [path]
    if os.path.isdir(path):
        return path, _each_once(_in_directory(path, _walk(path), path, form))
    if not _GLOB.intersection(path):
        raise SourceError(f"There is no file or directory {path!r}.")
    base = _glob_base(path)
    matches = sorted(glob.glob(path, recursive=True))
    visible = [match for match in matches if not is_hidden(match[len(base) :].lstrip("/"))]
    # A link that leads nowhere stays: it is refused by name, not passed over.
    files = [match for match in visible if not os.path.isdir(match)]
    if not files and len(visible) < len(matches):
        raise SourceError(
            f"All that matches {path!r} begins with '.' or '_', which marks leftovers: "
            "name such files one by one."
        )
    if not files:
        raise SourceError(f"No file matches {path!r}.")
    return base, _each_once(files)


def _remote_files(
    url: str, access: Access, form: Format | None
) -> tuple[Any, str, list[tuple[str, Any]]]:
    """The file system, base and files of a URL, each with what a listing says of it."""
    filesystem = filesystem_of(url, access)
    listed: dict[str, Any] = {}
    try:
        path = str(filesystem._strip_protocol(url))
        if _GLOB.intersection(path):
            listed = filesystem.glob(path, detail=True)
            base = _glob_base(path)
            files = [
                name for name in sorted(listed) if not is_hidden(name[len(base) :].lstrip("/"))
            ]
        elif filesystem.isfile(path):
            base, files = path.rpartition("/")[0], [path]
        else:
            listed = filesystem.find(path, detail=True)
            base, files = path, _in_directory(path, list(listed), url, form) if listed else []
    except SourceError:
        raise
    except Exception as exc:  # every store has its own exceptions
        raise SourceError(f"{url!r} cannot be listed: {type(exc).__name__}: {exc}.") from exc
    if not files:
        raise SourceError(f"There is no file at {url!r}.")
    if not bucket_of(url).startswith("s3:"):
        # Azure tells the etag of one file in another form, by which it would have changed since.
        listed = {}
    return filesystem, base, [(name, listed.get(name)) for name in files]


def absolute_path(path: str | os.PathLike[str]) -> str:
    """The path or URL as another process would have to name it."""
    text = os.fspath(path)
    if not text.strip():
        raise SourceError(f"The path of the source is {text!r}: name a file or directory.")
    text = text.removeprefix("file://")
    if "://" in text:
        return text
    return os.path.abspath(os.path.expanduser(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a file is, before it is looked at."""

    filesystem: Any
    name: str
    """As its file system knows it."""
    base: str
    access: Access | None
    listed: Any = None
    """What its file system said of it when it was found; None: nothing."""

    @property
    def shown(self) -> str:
        """Its absolute path, or URL."""
        if self.filesystem is None:
            return self.name
        return str(self.filesystem.unstrip_protocol(self.name))

    def stamp(self) -> _Stamp:
        """Look at it."""
        return _stamp(self.filesystem, self.name, self.shown, self.listed)


def _places(path: str, form: Format | None, access: Access, folder: str | None) -> list[_Place]:
    """The files of a path or URL; with a folder that it is below, the one of that name alone."""
    if "://" not in path:
        base, names = _local_files(path, form) if folder is None else (folder, [path])
        return [_Place(filesystem=None, name=name, base=base, access=None) for name in names]
    if folder is None:
        filesystem, base, files = _remote_files(path, access, form)
    else:
        filesystem = filesystem_of(path, access)
        base, name = map(str, map(filesystem._strip_protocol, (folder, path)))
        files = [(name, None)]
    return [
        _Place(filesystem=filesystem, name=name, base=base, access=access, listed=listed)
        for name, listed in files
    ]


def _format_of(shown: str) -> Format:
    found = format_of_name(shown)
    if found is None:
        raise SourceError(
            f"The format of file {shown!r} cannot be determined from its name: it must end "
            f"in one of {', '.join(_SUFFIXES)}; else say it with "
            "--file-format, or in Python Files(..., format=...)."
        )
    return found


def find_files(
    paths: Sequence[str],
    form: Format | None = None,
    access: Access | None = None,
    folder: str | None = None,
) -> list[FoundFile]:
    """Find the files behind absolute paths, directories, globs and URLs.

    They are in the order of `paths`, sorted within a directory or glob. `form` None: by their
    suffixes. With a `folder`, each path is that of a file below it, whatever signs it has.
    """
    places: dict[str, _Place] = {}
    for path in paths:
        for place in _places(path, form, access or Access(), folder):
            real = os.path.realpath(place.name) if place.filesystem is None else place.shown
            if real in places:
                raise SourceError(
                    f"File {place.shown!r} is named twice by the source: its rows would count "
                    "twice."
                )
            places[real] = place
    found = list(places.values())
    formats = [form or _format_of(place.shown) for place in found]
    if len(set(formats)) > 1:
        raise SourceError(
            f"The source mixes files of several formats ({', '.join(sorted(set(formats)))}): use "
            "one, or a list of one source for each."
        )
    # Where no listing says it, each is a request.
    stamps = at_once(_Place.stamp, found)
    # Nothing is read before: what was written since a look at a file would bear its time stamps.
    settled_at = max((stamp.settled_at for stamp in stamps), default=0)
    time.sleep(max(0, settled_at - time.time_ns()) / 1e9)
    return [
        FoundFile(
            path=place.shown,
            format=each,
            base=place.base,
            size_bytes=stamp.size_bytes,
            version=stamp.version,
            identity=stamp.identity,
            access=place.access,
        )
        for place, each, stamp in zip(found, formats, stamps, strict=True)
    ]
