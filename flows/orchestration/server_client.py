"""Asking a Prefect server, and what that raises where there is no answer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import UNAUTHORIZED
from typing import Any, TypeVar

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from partwise.errors import ServiceError

T = TypeVar("T")

NO_ANSWER = (httpx.HTTPError, PrefectHTTPStatusError)
"""What a client raises of a server that is away, or refuses."""


@contextmanager
def server_client(api_url: str, failed: str) -> Iterator[SyncPrefectClient]:
    """Have a client of the server at a URL.

    `failed` is what is said of it where it does not answer, such as "refused the deployment".

    Raises:
        ServiceError: It does not answer, or refuses.
    """
    with temporary_settings(updates={PREFECT_API_URL: api_url}):
        try:
            with get_client(sync_client=True) as client:
                yield client
        except NO_ANSWER as error:
            if (refusal := refused_password(error)) is not None:
                raise refusal from error
            raise ServiceError(f"The Prefect server at {api_url} {failed}: {error}") from error


def refused_password(error: Exception) -> ServiceError | None:
    """Return what to raise where a server has refused the password that a client showed."""
    if not isinstance(error, PrefectHTTPStatusError) or error.response.status_code != UNAUTHORIZED:
        return None
    verb = "refuses the" if PREFECT_API_AUTH_STRING.value() else "asks for a"
    return ServiceError(
        f"The Prefect server at {PREFECT_API_URL.value()} {verb} password: set "
        "PREFECT_API_AUTH_STRING to the server's name:secret; that of `partwise up` stands in "
        ".partwise/password."
    )


def every(read: Callable[..., Sequence[T]], **chosen: Any) -> Iterator[T]:
    """Yield all that a method of a client reads: a server answers with 200 of them at a time."""
    offset = 0
    while page := read(**chosen, offset=offset):
        yield from page
        offset += len(page)
