"""The app of a predictor: routes of the Open Inference Protocol, plain rows, health and metrics.

The event loop itself answers where all models of a request are loaded and its rows are few: passing
it on would take longer. Everything else waits for one of few threads.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import metadata
from typing import Any
from urllib.parse import parse_qs

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from partwise.errors import (
    ColumnError,
    InputError,
    KeyClassError,
    ModelNotFoundError,
    NullKeyError,
    PartitionNotFoundError,
    PartwiseError,
)
from partwise.formatting import shortened
from partwise.runs.run import ONLY
from partwise.serving.errors import (
    DeadlineError,
    OverloadedError,
    RequestError,
    VersionNotServedError,
)
from partwise.serving.gatekeeper import Gatekeeper, send_body, send_error
from partwise.serving.kept_requests import KeptRequests
from partwise.serving.keys import key_of_json
from partwise.serving.metadata import describe_model
from partwise.serving.metrics import CONTENT_TYPE, Metrics
from partwise.serving.people import PeopleHandlers
from partwise.serving.plain_json import (
    parse_version,
    read_arrow_rows,
    read_json_rows,
    render_arrow,
    render_json,
)
from partwise.serving.predictor import Predictor
from partwise.serving.protocol import (
    dump,
    read_infer_request,
    render_infer_response,
)
from partwise.serving.questions import Answer, Question
from partwise.serving.replies import Handler, Reply
from partwise.serving.server_options import ServerOptions
from partwise.serving.wire import ARROW, JSON, kind_of
from partwise.serving.work_queue import ClientLeftError, WorkQueue

_LOG = logging.getLogger("partwise.serving")
_JSON, _ARROW = JSON.encode(), ARROW.encode()
_REFUSED = (InputError, ColumnError, KeyClassError, NullKeyError)
"""What a body can be refused with; others below InputError are about models on the store."""
_NOT_FOUND = (VersionNotServedError, PartitionNotFoundError, ModelNotFoundError)
_FEW_KEYS = 16
_UNREADABLE = "A model that is needed for the answer cannot be read at present: try again later."
_UNEXPECTED = "The server failed on this request; its log says where, by the request's ID."

Render = Callable[[Answer, str], bytes]


class Endpoint:
    """A route as an ASGI app, which answers with a sentence whatever its handler raises.

    Args:
        name: Of the route, in metrics and logs.
        handler: Makes the answer.
    """

    def __init__(self, name: str, handler: Handler) -> None:
        self.__name__ = name
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            reply = await self._handler(scope, receive)
        except ClientLeftError:
            return
        except PartwiseError as error:
            status, sentence = _described(error)
            await send_error(send, status, sentence, kind_of(error))
        except Exception:
            _LOG.exception("A request to %s failed.", self.__name__)
            await send_error(send, 500, _UNEXPECTED)
        else:
            await send_body(send, reply.body, reply.content_type, reply.status, reply.headers)


def _described(error: PartwiseError) -> tuple[int, str]:
    """Return the status for an error, and its sentence where that is for strangers."""
    match error:
        case RequestError():
            return error.status, str(error)
        case OverloadedError():
            return 503, str(error)
        case DeadlineError():
            return 504, str(error)
        case _ if isinstance(error, _NOT_FOUND):
            return 404, str(error)
        case _ if type(error) in _REFUSED:
            return 422, str(error)
    # Its own sentence may name paths of the store.
    _LOG.warning("A model cannot be read: %s: %s", type(error).__name__, error)
    return 503, _UNREADABLE


class Handlers:
    """The routes of a predictor."""

    def __init__(
        self,
        predictor: Predictor,
        options: ServerOptions,
        metrics: Metrics,
        kept: KeptRequests | None,
    ) -> None:
        self._predictor = predictor
        self._options = options
        self._metrics = metrics
        self._kept = kept
        self._queue = WorkQueue(options, metrics.set_waiting)
        self._is_stopping = False
        self._server = dump(
            {"name": "partwise", "version": metadata.version("partwise"), "extensions": []}
        )

    def routes(self) -> list[Route]:
        """Return all routes, each with its endpoint."""
        model = "/v2/models/{name}"
        version = f"{model}/versions/{{version}}"
        get: list[tuple[str, str, Handler]] = [
            ("server", "/v2", self.server),
            ("live", "/v2/health/live", self.live),
            ("ready", "/v2/health/ready", self.ready),
            ("metrics", "/metrics", self.metrics),
            *(("model", path, self.model) for path in (model, version)),
            *(("model_ready", f"{path}/ready", self.model_ready) for path in (model, version)),
            *PeopleHandlers(self._predictor, self._options).routes(),
        ]
        post: list[tuple[str, str, Handler]] = [
            *(("infer", f"{path}/infer", self.infer) for path in (model, version)),
            ("predict", "/predict/{name}", self.predict),
        ]
        # Those that are asked most come first.
        return [
            *(
                Route(path, Endpoint(name, handler), methods=["POST"])
                for name, path, handler in post
            ),
            *(Route(path, Endpoint(name, handler), methods=["GET"]) for name, path, handler in get),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:  # noqa: ARG002
        """Look for newer versions while the app is served."""
        self._tell_version()
        polling = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._is_stopping = True
            polling.cancel()
            self._queue.close()
            # The warming of a new version may take minutes, and the process would wait for it.
            self._predictor.close()
            if self._kept is not None:
                await asyncio.to_thread(self._kept.close)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_s)
            try:
                await asyncio.to_thread(self._predictor.refresh)
            except (PartwiseError, OSError) as error:
                # Whatever is wrong with the store, what is loaded is served.
                _LOG.warning("Newer versions could not be looked for: %s", error)
            except Exception:
                _LOG.exception("Newer versions could not be looked for.")
            self._tell_version()

    def _tell_version(self) -> None:
        is_refused = self._predictor.refused is not None
        self._metrics.set_served(self._predictor.current.version, is_refused=is_refused)

    async def server(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Tell what this server is."""
        return Reply(self._server)

    async def live(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Tell that the event loop goes round."""
        return Reply(b'{"live":true}')

    async def ready(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Tell whether requests should come here, what is served, and what was refused."""
        served, refused = self._predictor.current, self._predictor.refused
        told: dict[str, Any] = {
            "ready": not self._is_stopping,
            "model": self._predictor.name,
            "version": served.version,
            "reference": served.reference,
        }
        if refused is not None:
            # Its sentence may name paths of the store.
            told["refused"] = {
                "reference": refused.reference,
                "error": type(refused.error).__name__,
            }
        return Reply(dump(told), 503 if self._is_stopping else 200)

    async def metrics(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Tell what was counted."""
        return Reply(self._metrics.text(), content_type=CONTENT_TYPE)

    async def model_ready(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Tell whether a version is served."""
        self._predictor.served(self._asked_version(scope))
        return Reply(dump({"name": self._predictor.name, "ready": True}))

    async def model(self, scope: Scope, receive: Receive) -> Reply:
        """Describe the model: its inputs and outputs for the key that `?key=` names."""
        version = self._asked_version(scope)
        served = self._predictor.served(version)
        key, described = _key_of_query(scope["query_string"]), None
        if key is not ONLY or not served.key_columns:
            asked = key if key is ONLY else key_of_json(key, served.key_columns)
            find = partial(self._predictor.model_of, asked, version)
            # What comes after the body tells whether the client has left.
            await self._body(receive)
            described = await self._queue.run(find, receive)
        versions = self._predictor.versions()
        return Reply(dump(describe_model(self._predictor.name, versions, served, described)))

    async def infer(self, scope: Scope, receive: Receive) -> Reply:
        """Answer a request of the Open Inference Protocol."""
        version = self._asked_version(scope)
        served = self._predictor.served(version)
        body = await self._body(receive)
        _refuse_binary_tensors(scope)
        request = read_infer_request(body, served.key_columns, self._options.max_rows)
        render = partial(render_infer_response, request=request)
        return Reply(await self._answer(request.question, version, render, scope, receive))

    async def predict(self, scope: Scope, receive: Receive) -> Reply:
        """Answer rows as plain JSON or Arrow."""
        self._asked_version(scope)
        is_arrow, wants_arrow = _forms(scope["headers"])
        body = await self._body(receive)
        read = read_arrow_rows if is_arrow else read_json_rows
        request = read(body, self._options.max_rows)
        question = request.question(self._predictor.served(request.version).key_columns)
        render = render_arrow if wants_arrow else render_json
        answer = await self._answer(question, request.version, render, scope, receive)
        return Reply(answer, content_type=_ARROW if wants_arrow else _JSON)

    async def _answer(
        self,
        question: Question,
        version: int | None,
        render: Render,
        scope: Scope,
        receive: Receive,
    ) -> bytes:
        # Of rows with keys of their own, each may need a model of its own.
        few = _FEW_KEYS if question.key is ONLY else self._options.inline_rows
        if question.n_rows <= few and self._predictor.is_warm(question, version):
            answer, body = self._work(question, version, render, None)
        else:
            deadline = time.monotonic() + self._options.timeout_s
            work = partial(self._work, question, version, render, deadline)
            answer, body = await self._queue.run(work, receive)
        self._metrics.count_rows(answer)
        if self._kept is not None:
            served = self._predictor.served(version)
            self._kept.offer(question, answer, served, scope["partwise.request_id"])
        return body

    def _work(
        self, question: Question, version: int | None, render: Render, deadline: float | None
    ) -> tuple[Answer, bytes]:
        answer = self._predictor.answer(question, version, deadline)
        return answer, render(answer, self._predictor.name)

    async def _body(self, receive: Receive) -> bytes:
        """Return the body of a request.

        Raises:
            RequestError: It is too large, or comes too slowly.
            ClientLeftError: The client left before its end.
        """
        parts = []
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeftError
                    parts.append(message.get("body", b""))
                    if not message.get("more_body", False):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError as error:
            raise RequestError("The body came too slowly: send it at once.", 408) from error

    def _asked_version(self, scope: Scope) -> int | None:
        """Return the version that a path names, for the model that it names.

        Raises:
            ModelNotFoundError: That is not the one of this server.
            VersionNotServedError: The version is no number.
        """
        params = scope["path_params"]
        if params["name"] != self._predictor.name:
            raise ModelNotFoundError(
                f"There is no model {shortened(params['name'])!r} here: "
                f"this server has {self._predictor.name!r}."
            )
        text = params.get("version")
        return None if text is None else parse_version(text)


def _refuse_binary_tensors(scope: Scope) -> None:
    if any(name == b"inference-header-content-length" for name, _ in scope["headers"]):
        raise RequestError("Binary tensors are not taken: send the data of inputs as JSON.", 415)


def _forms(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bool, bool]:
    """Tell whether a body is Arrow, and whether its answer is to be."""
    is_arrow, accepted = False, b""
    for name, value in headers:
        if name == b"content-type":
            is_arrow = value.startswith(_ARROW)
        elif name == b"accept":
            accepted = value
    return is_arrow, _ARROW in accepted or (is_arrow and b"json" not in accepted)


def _key_of_query(query: bytes) -> Any:
    """Return the key that a query names, as JSON or plain text; ONLY: none."""
    texts = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("key")
    if not texts:
        return ONLY
    try:
        return orjson.loads(texts[0])
    except orjson.JSONDecodeError:
        return texts[0]


async def _no_such_route(request: Request, error: Exception) -> Response:
    """Answer what no route takes, in the form of all errors."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    sentence = f"{request.method} {shortened(request.url.path)} is nothing that is answered here."
    headers = getattr(error, "headers", None)
    return Response(
        dump({"error": sentence, "kind": ""}), status, headers, media_type="application/json"
    )


def make_app(
    predictor: Predictor, options: ServerOptions | None = None, kept: KeptRequests | None = None
) -> Starlette:
    """Return the app that answers by a predictor.

    Args:
        predictor: Is refreshed while the app is served, and closed with it.
        options: The API key and the limits.
        kept: Keeps requests, and is closed with the app; None: none are kept.
    """
    options = options or ServerOptions()
    metrics = Metrics(options.metrics_keys)
    handlers = Handlers(predictor, options, metrics, kept)
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] = handlers.lifespan
    app = Starlette(
        routes=handlers.routes(),
        middleware=[Middleware(Gatekeeper, options, metrics.observe)],
        exception_handlers={HTTPException: _no_such_route},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app
