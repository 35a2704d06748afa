"""Files that a user's function reads besides its rows: a resume compares their checksums."""

import hashlib
from collections.abc import Sequence

from partwise.errors import InputError, SourceError
from partwise.sources.files.discovery import FoundFile, absolute_path, find_files
from partwise.sources.files.remote_files import at_once


def checksums(paths: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of files, by the name under which a caller gave them.

    In folders and globs, names that begin with "." or "_" do not count. A file of these is named by
    the path that was given, with its own path below that.
    """
    found: dict[str, str] = {}
    for text in map(str, paths):
        try:
            whole = absolute_path(text)
            # The format does not matter here; without one, the suffix would have to tell it.
            files = find_files([whole], form="csv")
            for file, checksum in zip(files, at_once(_checksum, files), strict=True):
                inner = file.path[len(file.base) :].lstrip("/")
                found[text if file.path == whole else f"{text}: {inner}"] = checksum
        except (SourceError, OSError) as error:
            raise InputError(f"files= names {text!r}, which cannot be read: {error}") from error
    return found


def _checksum(file: FoundFile) -> str:
    with file.fetched().open() as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
