"""Clients that wait for an answer, and clients for asyncio. They differ in how they send alone."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import closing
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self

from partwise.client.exchange import (
    Body,
    Outcome,
    Response,
    UnansweredError,
    Wait,
    body_of,
    exchange,
    late,
)
from partwise.errors import InputError
from partwise.runs.run import ONLY
from partwise.serving.wire import ARROW

if TYPE_CHECKING:
    from types import ModuleType

    import httpx
    import pyarrow as pa

    from partwise.tables.keys.partition_keys import Key

_URL = re.compile(r"https?://[^/@?#\s]+/([^?#\s]*/)?predict/[^/?#\s]+")

_LONGEST_S = 1_000_000_000
"""Sockets wait for up to 292 years, and not without an end."""


class _Settings:
    """What both clients are made of, and the requests that they send.

    Args:
        url: Where the model is asked, as http://127.0.0.1:8080/predict/sales.
        api_key: That of the server.
        timeout_s: Of a call, with all its attempts.
        retries: How often at most a question is sent again, where the server was not reached or
            has no room.
    """

    def __init__(self, url: str, api_key: str | None, timeout_s: Any, retries: Any) -> None:
        if not _URL.fullmatch(url):
            raise InputError(
                "The URL of the client is none of a model: give it as "
                "http://127.0.0.1:8080/predict/sales, and a key as api_key=."
            )
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key):
            raise InputError(
                "api_key is empty, or has characters that a header cannot have, such as the end of "
                "a line: strip it."
            )
        self._timeout_s = float(timeout_s) if isinstance(timeout_s, Real) else 0.0
        self._retries = int(retries) if isinstance(retries, Integral) else -1
        if not 0 < self._timeout_s <= _LONGEST_S or self._retries < 0:
            raise InputError(
                f"timeout_s is {timeout_s} and retries {retries}: give seconds above 0, up to "
                f"{_LONGEST_S:,}, and 0 or more retries."
            )
        self.url = url
        self._headers = {"accept": ARROW}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _request(self, http: Any, body: Body, timeout_s: float) -> httpx.Request:
        request: httpx.Request = http.build_request(
            "POST",
            self.url,
            content=body.content,
            headers={"content-type": body.content_type},
            timeout=timeout_s,
        )
        return request

    def _failed(self, error: httpx.HTTPError) -> Outcome:
        if isinstance(error, _httpx().TimeoutException):
            return late()
        return UnansweredError(f"{self.url} was not reached: {type(error).__name__}: {error}")


class Client(_Settings):
    """Asks a server for predictions as one asks a `Predictor`, with equal answers.

    It may be used by several threads, and holds connections until it is closed.

    Example:
        >>> client = Client("http://127.0.0.1:8080/predict/sales")
        >>> client.predict([{"price": 2.5}], "store-7")["prediction"]  # doctest: +SKIP
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout_s: float = 5, retries: int = 3
    ) -> None:
        super().__init__(url, api_key, timeout_s, retries)
        self._http: httpx.Client = _httpx().Client(headers=self._headers)

    def predict(
        self,
        rows: Any,
        key: Key = ONLY,
        *,
        version: int | None = None,
        on_missing: Literal["fail", "null"] = "fail",
        extra: Literal["fail", "ignore"] = "fail",
    ) -> pa.Table:
        """Predict rows, in their order, as `Predictor.predict` does.

        Raises:
            PartwiseError: What `Predictor.predict` raises.
            VersionNotServedError: The version is not served.
            OverloadedError: The server has no room, also after all attempts.
            DeadlineError: There was no answer in time.
            UnansweredError: The server was not reached, or does not answer this client.
        """
        body = body_of(rows, key, version, on_missing, extra)
        steps = exchange(self._timeout_s, self._retries)
        step = next(steps)
        try:
            while True:
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    step = steps.send(None)
                else:
                    step = steps.send(self._send(body, step.timeout_s))
        except StopIteration as end:
            return end.value

    def _send(self, body: Body, timeout_s: float) -> Outcome:
        deadline = time.monotonic() + timeout_s
        try:
            response = self._http.send(self._request(self._http, body, timeout_s), stream=True)
            with closing(response):
                parts = []
                for part in response.iter_bytes():
                    parts.append(part)
                    # The timeout of httpx is that of each part.
                    if time.monotonic() > deadline:
                        return late()
        except _httpx().HTTPError as error:
            return self._failed(error)
        return _response(response, b"".join(parts))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Settings):
    """A `Client` for asyncio."""

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout_s: float = 5, retries: int = 3
    ) -> None:
        super().__init__(url, api_key, timeout_s, retries)
        self._http: httpx.AsyncClient = _httpx().AsyncClient(headers=self._headers)

    async def predict(
        self,
        rows: Any,
        key: Key = ONLY,
        *,
        version: int | None = None,
        on_missing: Literal["fail", "null"] = "fail",
        extra: Literal["fail", "ignore"] = "fail",
    ) -> pa.Table:
        """Predict rows, in their order, as `Client.predict` does; and raise what it raises."""
        body = body_of(rows, key, version, on_missing, extra)
        steps = exchange(self._timeout_s, self._retries)
        step = next(steps)
        try:
            while True:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    step = steps.send(None)
                else:
                    step = steps.send(await self._send(body, step.timeout_s))
        except StopIteration as end:
            return end.value

    async def _send(self, body: Body, timeout_s: float) -> Outcome:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._http.send(self._request(self._http, body, timeout_s))
        except TimeoutError:
            return late()
        except _httpx().HTTPError as error:
            return self._failed(error)
        return _response(response, response.content)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _response(response: httpx.Response, content: bytes) -> Response:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Response(status=response.status_code, headers=headers, content=content)


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError as error:
        raise ImportError("A client needs httpx: pip install 'partwise[serve]'.") from error
    return httpx
