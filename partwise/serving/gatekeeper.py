"""What stands before every route: API key, limits of bodies, request IDs and the access log."""

import hmac
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from partwise.formatting import visible
from partwise.serving.errors import OverloadedError, RequestError
from partwise.serving.protocol import dump
from partwise.serving.server_options import ServerOptions, is_loopback
from partwise.serving.wire import JSON, kind_of

OPEN = frozenset({"/", "/v2/health/live", "/v2/health/ready"})
"""What is answered without an API key; the page asks for it, and holds nothing itself."""
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::\d+)?")
"""An IPv6 address in brackets, or another one or a name, and a port."""
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_BODIES = 4
"""So many of the largest size are held at once; as values of Python they may be 30 times that."""
_LONGEST_LOGGED = 200
_LONGEST_SENTENCE = 1000

Observe = Callable[[str, int, float], None]
"""Is told the route, status and seconds of each request."""


class Gatekeeper:
    """An ASGI app around another one: what it refuses does not reach the app."""

    def __init__(self, app: ASGIApp, options: ServerOptions, observe: Observe) -> None:
        self._app = app
        self._most = options.max_body_bytes
        self._held = 0
        self._api_key = options.api_key.encode()
        self._logs = options.access_log
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on; then write down what became of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")
        if not _SAFE_ID.fullmatch(request_id):
            request_id = secrets.token_hex(8).encode()
        scope["partwise.request_id"] = request_id.decode()
        status = taken = 0

        async def receive_some() -> Message:
            nonlocal taken
            message = await receive()
            size = len(message.get("body", b""))
            taken += size
            self._held += size
            if taken > self._most:
                raise self._too_large()
            if self._held > _BODIES * self._most:
                raise OverloadedError("Too many bodies are held already: try again later.")
            return message

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            refused = self._refusal(scope["path"], headers)
            if refused is None:
                await self._app(scope, receive_some, send_on)
            else:
                await send_error(send_on, refused.status, str(refused), kind_of(refused))
        finally:
            self._held -= taken
            seconds = time.perf_counter() - begun
            route = getattr(scope.get("endpoint"), "__name__", "other")
            self._observe(route, status, seconds)
            if self._logs:
                self._log(scope, request_id, status, seconds)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> RequestError | None:
        if path not in OPEN:
            if self._api_key and not self._knows(headers):
                return RequestError("Send the API key as Authorization: Bearer, or X-API-Key.", 401)
            if not self._api_key and not _names_loopback(headers.get(b"host", b"")):
                # A page of anybody's, whose name turns into 127.0.0.1, could have a browser ask.
                return RequestError("Without an API key only this machine's own names work.", 403)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            return RequestError("Send the body without a content encoding.", 415)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self._most:
            return self._too_large()
        return None

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        """Tell whether a request shows the API key, in a time that does not depend on its text."""
        given = headers.get(b"x-api-key")
        if given is None:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer":
                return False
        return hmac.compare_digest(given.strip(), self._api_key)

    def _too_large(self) -> RequestError:
        return RequestError(f"The body is too large: send {self._most:,} bytes at most.", 413)

    def _log(self, scope: Scope, request_id: bytes, status: int, seconds: float) -> None:
        client = scope.get("client")
        line = {
            "time": round(time.time(), 3),
            "request_id": request_id.decode(),
            "client": client[0] if client else "",
            "method": scope["method"],
            "path": visible(scope["path"][:_LONGEST_LOGGED]),
            "status": status,
            "ms": round(1000 * seconds, 3),
        }
        sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()


@lru_cache(64)
def _names_loopback(host: bytes) -> bool:
    """Whether the header Host names this machine as only this machine does."""
    found = _HOST.fullmatch(host.decode("latin-1"))
    return found is not None and is_loopback(found[1] or found[2])


async def send_error(send: Send, status: int, sentence: str, kind: str = "") -> None:
    """Answer a request with the sentence of an error, and its kind for a client of ours."""
    told = {"error": visible(sentence[:_LONGEST_SENTENCE]), "kind": kind}
    await send_body(send, dump(told), JSON.encode(), status)


async def send_body(
    send: Send,
    body: bytes,
    content_type: bytes,
    status: int = 200,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Answer a request."""
    head = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    head += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    if status == 413:
        # What is left of the body is not read.
        head.append((b"connection", b"close"))
    elif status == 503:
        head.append((b"retry-after", b"1"))
    elif status == 401:
        head.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
