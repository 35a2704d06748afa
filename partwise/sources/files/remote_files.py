"""File systems of URLs: made in the process that uses them, with the keys that it was given.

A file of a source travels to workers as its URL and an `Access`. Keys never travel with it: a
process uses those that `set_credentials` gave it for the bucket, or else its environment's.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from partwise.errors import SourceError
from partwise.redaction import without_secrets
from partwise.store.credentials import PROTOCOLS, credentials_of
from partwise.store.remote_objects import open_filesystem, options_in

Found = TypeVar("Found")

_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What opens a bucket, apart from its keys; None: what the environment says."""

    endpoint_url: str | None = None
    """Of a service that speaks S3 but is not Amazon's own."""
    region: str | None = None
    profile: str | None = None
    """A profile in the AWS configuration files of the process that reads."""


def bucket_of(url: str) -> str:
    """Return the bucket of a URL, as protocol://bucket."""
    protocol, _, rest = url.partition("://")
    if "::" in url or protocol not in PROTOCOLS:
        # The rest of the URL may hold a password.
        shown = protocol.partition("::")[0]
        raise SourceError(
            f"Sources of the protocol {shown!r} are not read: use a local path or one of the "
            f"protocols {', '.join(PROTOCOLS)}, without chains; a database is Query(...) or "
            "query-block/NAME."
        )
    bucket = rest.partition("/")[0]
    container, at, _ = bucket.partition("@")
    if at and (PROTOCOLS[protocol] != "abfs" or ":" in container):
        raise SourceError(
            "The URL of a source holds a user or password: give credentials by the environment."
        )
    return f"{PROTOCOLS[protocol]}://{bucket}"


def filesystem_of(url: str, access: Access) -> Any:
    """Return the fsspec file system that a URL is read with, in this process."""
    bucket = bucket_of(url)
    kind = bucket.partition("://")[0]
    try:
        return open_filesystem(
            kind,
            {**options_in(kind, url), **credentials_of(bucket)},
            endpoint_url=access.endpoint_url,
            region=access.region,
            profile=access.profile,
        )
    except ImportError as exc:
        raise SourceError(
            f"Sources at {bucket!r} need another package: {exc}. Install it."
        ) from exc
    except Exception as exc:  # every store has its own exceptions
        reason = f"{type(exc).__name__}: {without_secrets(' '.join(str(exc).split()))}"
        raise SourceError(f"{bucket!r} cannot be opened: {reason.rstrip('.')}.") from exc


def at_once(read: Callable[..., Found], files: Sequence[Any], *more: Sequence[Any]) -> list[Found]:
    """Return what `read` says of each file; of remote ones, of several at a time.

    `more` are, of each file, what `read` gets besides it.
    """
    if len(files) > 1 and any(file.access is not None for file in files):
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(read, files, *more))
    return list(map(read, files, *more))
