"""A file behind http or https as an input: asked for within limits of time, speed and size."""

import http.client
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from partwise.cluster_calls import in_time
from partwise.errors import InputError
from partwise.formatting import size
from partwise.gangs.checkpoints import new_file
from partwise.store.store import Store

WEB = ("http://", "https://")
OPEN_S = 60.0
"""For so long a server may take to answer, redirections and headers included."""
WINDOW_S = 60.0
LEAST_BYTES = 60 << 10
"""So much has to come in each `WINDOW_S`."""
LARGEST_BYTES = 16 << 30
"""Of an answer that does not say its length."""
SPARE_BYTES = 1 << 30
"""So much of the disk is left free."""
_PIECE_BYTES = 64 << 10
_ABOUT = ("ETag", "Last-Modified", "Content-Length")
"""What a web server says of a file that is another one when the file is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFile:
    """A file behind http or https."""

    url: str
    identity: str = ""

    def bring(self, name: str, folder: Path, store: Store) -> Path:  # noqa: ARG002 (the protocol)
        """Read it from the network to the disk."""
        path = folder / (PurePosixPath(urllib.parse.urlsplit(self.url).path).name or "file")
        with _opened(name, self.url) as source:
            if self.identity and _identity(self.url, source) != self.identity:
                raise changed(name, self.url)
            with new_file(path) as sink:
                _copy(source, sink, folder)
        return path


def find_web_file(name: str, url: str) -> WebFile:
    """Ask for a file behind http, and read none of it: not every server answers a HEAD request."""
    with _opened(name, url) as source:
        return WebFile(url=url, identity=_identity(url, source))


def vanished(name: str, what: str, why: str = "") -> InputError:
    """Return the error of an input that is not there any more."""
    return InputError(
        f"The input {name!r}, {what}, is not there{why}; put it back where it was, or name another "
        "one in inputs=."
    )


def changed(name: str, what: str) -> InputError:
    """Return the error of an input that is another one than when the run began."""
    return InputError(
        f"The input {name!r}, {what}, has changed since the run began, so that not all processes "
        "would have the same: begin the run again when it is written to its end."
    )


def _identity(url: str, source: Any) -> str:
    return "\n".join([url, *(str(source.headers.get(each)) for each in _ABOUT)])


@contextmanager
def _opened(name: str, url: str) -> Iterator[Any]:
    """Open a file behind http; what goes wrong with it names the input."""
    try:
        with _open_in_time(url) as source:
            yield source
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # the answer, which says why
        raise vanished(name, url, f" ({str(error) or type(error).__name__})") from error


def _open_in_time(url: str) -> Any:
    """Open a URL, or give it up: a limit of the socket holds for each of its bytes only."""
    opener = urllib.request.OpenerDirector()
    # A redirection to ftp:// or file:// finds nobody who opens it.
    for handler in (
        urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler, urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor, urllib.request.UnknownHandler,
    ):  # fmt: skip
        opener.add_handler(handler())
    return in_time(OPEN_S, opener.open, url, None, OPEN_S)


def _copy(source: Any, sink: IO[bytes], folder: Path) -> None:
    """Copy an answer to a file.

    Raises:
        OSError: It is cut short, too slow, or larger than it may be.
    """
    length = source.headers.get("Content-Length")
    promised = int(length) if length is not None and length.isdecimal() else None
    largest = LARGEST_BYTES if promised is None else promised
    _check_room(folder, promised or 0)
    began, before = time.monotonic(), 0
    # `read` would wait for a whole piece of a server that drips, and no limit be looked at.
    while piece := source.read1(_PIECE_BYTES):
        sink.write(piece)
        done = sink.tell()
        if done > largest:
            raise OSError(f"it goes on after {size(largest)}, and does not say its length")
        if time.monotonic() - began > WINDOW_S:
            if done - before < LEAST_BYTES:
                raise OSError(
                    f"{done - before} bytes came in {WINDOW_S:.0f} s: the server is too slow"
                )
            began, before = time.monotonic(), done
            _check_room(folder, 0)
    # Python ends quietly where a connection does, before all has come.
    if promised is not None and sink.tell() != promised:
        raise OSError(f"it ended after {sink.tell()} of {promised} bytes")


def _check_room(folder: Path, wanted: int) -> None:
    with suppress(FileNotFoundError):
        free = shutil.disk_usage(folder).free
        if free - wanted < SPARE_BYTES:
            raise OSError(
                f"it has {size(wanted)}, and {os.uname().nodename} has "
                f"{size(free)} of disk free, of which {size(SPARE_BYTES)} are kept"
            )
