"""Objects in a bucket or container, through fsspec.

One object is one request, and appears whole or not at all. What fsspec's file systems do beyond
that is avoided: they are never opened for writing (an exception inside commits half an object, and
an empty file overwrites another), and their caches are off (other processes write there too).
"""

import contextlib
import errno
import importlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

CONNECT_S = 5.0
ANSWER_S = 20.0
"""For so long a bucket may say nothing; then it is asked again: S3 15 times in all, Google 6."""
RECEIVE_S = 60.0
"""For so long a bucket of S3 may take nothing of what it is sent; likewise, on Linux."""
WHOLE_S = 3600.0
"""So long a request to Google may take, which is all that ends one of which nothing is taken."""
_TAKEN = {"PreconditionFailed", "412", "BlobAlreadyExists"}
_RACES = {"ConditionalRequestConflict", "409"}
_OUT_OF_RANGE = {"InvalidRange", "416"}
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
NO_BUCKET = "the bucket does not exist"
_RACE_ATTEMPTS = 5

_lock = threading.Lock()
_filesystems: dict[tuple[Any, ...], Any] = {}


def open_filesystem(
    protocol: str,
    options: Mapping[str, str],
    *,
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> Any:
    """Return the fsspec file system of a store or source, made once for each set of arguments.

    `options` are the keys, and what else a URL says to its file system; `profile` is one in the AWS
    configuration files of this process.
    """
    # The thread and the connections of a file system do not survive a fork; and keys that were
    # replaced must not go on being used.
    key = (os.getpid(), protocol, endpoint_url, region, profile, *sorted(options.items()))
    with _lock:
        if key not in _filesystems:
            _filesystems[key] = _build_filesystem(protocol, options, endpoint_url, region, profile)
        return _filesystems[key]


def options_in(protocol: str, url: str) -> dict[str, str]:
    """Return what a URL itself says to its file system: one of Azure may name the account."""
    options: dict[str, str] = _class_of(protocol)._get_kwargs_from_urls(url)
    return options


def _class_of(protocol: str) -> Any:
    import fsspec

    find: Any = fsspec.get_filesystem_class
    return find(protocol)


def _build_filesystem(
    protocol: str,
    credentials: Mapping[str, str],
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> Any:
    kind = _class_of(protocol)
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    options |= credentials
    match protocol:
        case "s3":
            options["config_kwargs"] = {
                "connect_timeout": CONNECT_S,
                "read_timeout": ANSWER_S,
                "connector_args": {"socket_factory": _open_socket},
            }
            options["session"] = _session(profile)
            options["endpoint_url"] = endpoint_url
            options["client_kwargs"] = {"region_name": region} if region else {}
        case "gs":
            from aiohttp import ClientTimeout

            # What fsspec has asks by gRPC how a bucket keeps its folders, where it may not know
            # before each request. Objects are the same in all.
            kind = importlib.import_module("gcsfs.core").GCSFileSystem
            # Its own are five minutes in all: too long for silence, and too short for much.
            options["requests_timeout"] = ClientTimeout(
                total=WHOLE_S, sock_connect=CONNECT_S, sock_read=ANSWER_S
            )
            options["endpoint_url"] = endpoint_url
            # It logs with a traceback what it raises, also where that is an answer to us.
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    filesystem = kind(**options)
    # Each is five of botocore's: a server that takes connections and says nothing is an error after
    # six minutes, and one that takes none after one.
    filesystem.retries = 3
    return filesystem


def _session(profile: str | None) -> Any:
    """Return a session of botocore whose uploads do not ask whether they may begin.

    To ask, by `Expect: 100-continue`, is a round trip more for each object. And aiohttp waits for
    that answer without any limit: a server that takes connections and says nothing, or is cut off
    just then, would keep a worker for ever.
    """
    import aiobotocore.session
    from botocore.handlers import add_expect_header

    build: Any = aiobotocore.session.AioSession
    session = build(profile=profile)
    session.unregister("before-call.s3", add_expect_header)
    return session


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket on which it is an error that nothing is received for `RECEIVE_S`.

    No limit of aiohttp holds while a large object is on its way, and Linux itself gives up after a
    quarter of an hour. `address` is as `socket.getaddrinfo` has it.
    """
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * RECEIVE_S))
    return opened


class RemoteObjects:
    """The objects under one prefix of a bucket or container.

    `root` is the bucket, and prefix if any, without protocol.
    """

    def __init__(self, filesystem: Any, protocol: str, root: str) -> None:
        self.filesystem = filesystem
        self._protocol = protocol
        self._root = root

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        try:
            # From offset 0 it is one request; without, s3fs asks for the size first.
            return bytes(self.filesystem.cat_file(self._full(path), start=0))
        except Exception as error:
            if error_code(error) in _OUT_OF_RANGE and self.size(path) == 0:
                return b""
            raise

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or as many as there are."""
        try:
            return bytes(
                self.filesystem.cat_file(self._full(path), start=offset, end=offset + size)
            )
        except Exception as error:  # that of Azure is no OSError
            if error_code(error) in _OUT_OF_RANGE:
                return b""
            raise

    def check_is_there(self, path: str) -> None:
        """Raise FileNotFoundError where there is no such object."""
        # One request. For the size of what is not there, s3fs also looks for a folder of its name.
        self.read_range(path, 0, 1)

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        info = self.filesystem.info(self._full(path))
        if info["type"] != "file":
            raise FileNotFoundError(path)
        return int(info["size"])

    def modified(self, path: str) -> datetime:
        """Return when an object was last written."""
        found: datetime = self.filesystem.modified(self._full(path))
        return found

    def write(self, path: str, data: bytes) -> None:
        """Write an object, in place of the one that may be there."""
        try:
            self.filesystem.pipe_file(self._full(path), data)
        except FileNotFoundError as error:
            # The answer that completes an upload in parts may get lost; asked again, it is unknown.
            if error_code(error) != "NoSuchUpload" or self.read(path) != data:
                raise

    def create(self, path: str, data: bytes) -> None:
        """Write an object, or raise FileExistsError if there is one.

        It is also raised if our own request succeeded and its answer was lost.
        """
        option = {"overwrite": False} if self._protocol == "abfs" else {"mode": "create"}
        for attempt in range(_RACE_ATTEMPTS):
            try:
                self.filesystem.pipe_file(self._full(path), data, **option)
                return
            except FileExistsError:
                raise
            except Exception as error:
                code = error_code(error)
                if code in _TAKEN | {"NoSuchUpload"}:
                    raise FileExistsError(errno.EEXIST, "there is one", path) from error
                if code not in _RACES or attempt == _RACE_ATTEMPTS - 1:
                    raise
            # Two conditional writes met: AWS answers 409 to one, which is to ask again.
            time.sleep(0.1 * 2**attempt)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the path of every object whose path starts with `prefix`."""
        folder = prefix.rstrip("/").rpartition("/")[0]
        start = prefix.removeprefix(f"{folder}/")
        base = f"{self._root}/{folder}" if folder else self._root
        names: list[str] = []
        with _nothing_there():
            names = self.filesystem.find(base, prefix=start)
        for name in names or self._none():
            path = str(name).removeprefix(f"{self._root}/")
            # Consoles of buckets make folders as empty objects, whose names end so.
            if path.startswith(prefix) and not path.endswith("/"):
                yield path

    def list_folder(self, folder: str) -> Iterator[str]:
        """Yield the names directly under a folder."""
        base = f"{self._root}/{folder}" if folder else self._root
        names: list[str] = []
        with _nothing_there():
            names = self.filesystem.ls(base, detail=False)
        for name in names or self._none():
            head, _, last = str(name).rstrip("/").rpartition("/")
            if head == base:
                yield last

    def copy(self, path: str, new_path: str) -> None:
        """Make an object available under a second path; the service copies, not this machine."""
        self.filesystem.cp_file(self._full(path), self._full(new_path))

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.rm_file(self._full(path))

    def delete_folder(self, folder: str) -> None:
        """Delete everything under a folder."""
        paths = list(self.list_prefix(f"{folder}/"))
        if not paths:
            return
        try:
            self.filesystem.rm([self._full(path) for path in paths])
        except OSError as error:
            # Some services that speak S3, Google's among them, delete one object at a time.
            if error_code(error) != "NotImplemented":
                raise
        # S3 answers that all went well also where it did not delete some, and s3fs leaves out what
        # it says of those.
        there = set(self.list_prefix(f"{folder}/"))
        for path in paths:
            if path in there:
                self.delete(path)

    def _none(self) -> list[str]:
        """Return no names, once the bucket is seen to be there: s3fs alone says that it is not."""
        bucket = self._root.partition("/")[0]
        try:
            match self._protocol:
                case "gs":
                    # With the right to list objects; to ask for the bucket needs another one.
                    self.filesystem.find(bucket, prefix="no object has this name")
                case "abfs":
                    self.filesystem.info(bucket)
        except FileNotFoundError as error:
            raise OSError(errno.ENODEV, NO_BUCKET) from error
        except Exception:  # noqa: S110 (who may not ask for the container may use it all the same)
            pass
        return []

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"


def error_code(error: BaseException | None) -> str:
    """Return the code that the service gave for an error, as "NoSuchBucket", or else ""."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):
            return str(response.get("Error", {}).get("Code", ""))
        code = getattr(error, "error_code", None) or getattr(error, "code", None)
        if code:
            # Azure's is one of an enumeration.
            return str(getattr(code, "value", code))
        error = error.__cause__ or error.__context__
    return ""


def is_bucket_missing(error: BaseException) -> bool:
    """Whether an error says that there is no such bucket, and not only no such object."""
    return error_code(error) in _MISSING_BUCKET


@contextlib.contextmanager
def _nothing_there() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if is_bucket_missing(error):
            raise
