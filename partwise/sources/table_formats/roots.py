"""Finding the tables of a log that paths are, or are in: Delta, Iceberg and Hudi.

The files of such a table are Parquet like others, also those whose rows were deleted or rewritten
since. Only its log, a folder beside them, says which ones count.
"""

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from partwise.errors import SourceError
from partwise.sources.files.remote_files import Access, filesystem_of

TableFormat = Literal["Delta", "Iceberg", "Hudi"]

_LOGS: dict[str, TableFormat] = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata": "Iceberg"}
_IN_LOG = re.compile(r"/(_delta_log|\.hoodie|metadata)/")
_ENTRY = re.compile(r"^(\d{20}\.(json|checkpoint\..*parquet)|_last_checkpoint)$")
"""A file of Delta's log; a folder of its name that has none is not a log."""
_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_GLOB = re.compile(r"[*?\[]")
_LOOK_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoot:
    """The folder of a table."""

    format: TableFormat
    path: str
    """An absolute path, or a URL, without a slash at its end."""
    metadata: str | None = None
    """Of an Iceberg table, the file of metadata that a caller named."""

    def refusal(self, what: str) -> SourceError:
        """Return the error about a part of the table that a caller named."""
        if self.format == "Hudi":
            return self.unreadable()
        return SourceError(
            f"{what} belongs to the {self.format} table {self.path!r}, whose log says which of its "
            "files count: those deleted or rewritten lie there as well. Name the table's folder, "
            "and choose its rows with a filter."
        )

    def unreadable(self) -> SourceError:
        """Return the error about a table that nothing here reads."""
        return SourceError(
            f"{self.path!r} is a Hudi table, which is not read: its files hold rows that were "
            "deleted or rewritten. Write what it holds now to Parquet files with Spark, and name "
            "those, or read it with another library and give the Arrow stream."
        )


class TableFinder:
    """Looks at folders for the log of a table, at each of them once."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._formats: dict[str, TableFormat | None] = {}

    def table_at(self, path: str) -> TableRoot | None:
        """Return the table whose folder, or file of metadata, a path or URL is."""
        path = path.rstrip("/") or path
        if _METADATA.search(path) and f"{os.sep}metadata{os.sep}" in path:
            root = path.rpartition("/")[0].rpartition("/")[0]
            return TableRoot(format="Iceberg", path=root, metadata=path)
        folders = _folders(path)
        self._look(folders)
        for folder in folders:
            found = self._formats[folder]
            if found is not None:
                table = TableRoot(format=found, path=folder)
                if folder == path or os.path.realpath(path) == folder:
                    return table
                raise table.refusal(f"{path!r}")
        return None

    def check_matches(self, paths: Iterable[str]) -> None:
        """Raise `SourceError` where a file that a glob found lies in the folder of a table."""
        folders = {os.path.dirname(path): path for path in paths}
        above = {folder: _folders(folder) for folder in folders}
        self._look(list(dict.fromkeys(each for found in above.values() for each in found)))
        for folder, path in folders.items():
            for each in above[folder]:
                if (found := self._formats[each]) is not None:
                    raise TableRoot(format=found, path=each).refusal(f"File {path!r}")

    def _look(self, folders: Sequence[str]) -> None:
        new = [folder for folder in folders if folder not in self._formats]
        remote = [folder for folder in new if "://" in folder]
        self._formats |= {folder: _format_on_disk(folder) for folder in new if folder not in remote}
        if remote:
            filesystem = filesystem_of(remote[0], self._access)
            places = [(filesystem, folder, log) for folder in remote for log in _LOGS]
            with ThreadPoolExecutor(_LOOK_THREADS) as threads:
                there = list(threads.map(_has_log, places))
            self._formats |= dict.fromkeys(remote)
            for (_, folder, log), has_log in zip(places, there, strict=True):
                if has_log and self._formats[folder] is None:
                    self._formats[folder] = _LOGS[log]


def tables_among(paths: Iterable[str]) -> list[TableRoot]:
    """Return the tables whose logs are among the paths of files."""
    found: dict[str, TableFormat] = {}
    for path in paths:
        match = _IN_LOG.search(path)
        sign = {"metadata": _METADATA, "_delta_log": _ENTRY}.get(match[1]) if match else None
        if match and (sign is None or sign.search(path[match.end() :])):
            found.setdefault(path[: match.start()], _LOGS[match[1]])
    return [TableRoot(format=kind, path=path) for path, kind in found.items()]


def _folders(path: str) -> list[str]:
    """The folders that may be those of a table which a path is, or is in: itself, and those above.

    Of buckets each costs requests: those named key=value, which tables make, are left out.
    """
    if "://" not in path:
        # What is there by this name is not a pattern, though it may have signs of one.
        if not os.path.lexists(path) and (wildcard := _GLOB.search(path)):
            path = os.path.dirname(path[: wildcard.start()])
        # A link may lead into a table, or stand in the folder of one.
        places = PurePosixPath(path), PurePosixPath(os.path.realpath(path))
        return list(dict.fromkeys(str(each) for own in places for each in (own, *own.parents)))
    if wildcard := _GLOB.search(path):
        path = path[: wildcard.start()].rpartition("/")[0]
    protocol, _, rest = path.partition("://")
    parts = rest.rstrip("/").split("/")
    above = [
        f"{protocol}://{'/'.join(parts[:count])}"
        for count in range(len(parts) - 1, 1, -1)
        if "=" not in parts[count - 1]
    ]
    return [f"{protocol}://{'/'.join(parts)}", *above]


def _format_on_disk(folder: str) -> TableFormat | None:
    if any(map(_ENTRY.search, _names_in(os.path.join(folder, "_delta_log")))):
        return "Delta"
    if os.path.isfile(os.path.join(folder, ".hoodie", "hoodie.properties")):
        return "Hudi"
    names = _names_in(os.path.join(folder, "metadata"))
    return "Iceberg" if any(map(_METADATA.search, names)) else None


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _has_log(place: tuple[Any, str, str]) -> bool:
    filesystem, folder, log = place
    path = f"{filesystem._strip_protocol(folder)}/{log}"
    try:
        if not filesystem.exists(path):
            return False
        return log != "metadata" or any(map(_METADATA.search, filesystem.ls(path, detail=False)))
    except Exception:  # every store has its own exceptions
        # Keys may open nothing but the files that were named; what hinders reads is reported there.
        return False
