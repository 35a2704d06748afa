"""The routes for people: the page of keys, what it shows, and the routes as OpenAPI.

None of it is answered by the event loop or by the threads that predict: one request at a time has a
thread of its own.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

from starlette.types import Receive, Scope

from partwise.errors import PartwiseError
from partwise.runs.run import ONLY
from partwise.serving.champions import Champions
from partwise.serving.errors import OverloadedError, RequestError
from partwise.serving.keys import key_of_json
from partwise.serving.metadata import describe_model
from partwise.serving.openapi import LONGEST_KEY, openapi_document
from partwise.serving.page import Page, docs_page, people_page
from partwise.serving.predictor import Predictor
from partwise.serving.protocol import dump
from partwise.serving.replies import Handler, Reply
from partwise.serving.server_options import ServerOptions

if TYPE_CHECKING:
    from partwise.serving.served import Served

T = TypeVar("T")


class PeopleHandlers:
    """The routes for people of a predictor."""

    def __init__(self, predictor: Predictor, options: ServerOptions) -> None:
        self._predictor = predictor
        self._options = options
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._shown: tuple[Served, Champions] | None = None

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Return a name, a path and a handler for each."""
        return [
            ("page", "/", self.page),
            ("keys", "/keys", self.keys),
            ("key", "/keys/one", self.key),
            ("history", "/keys/history", self.history),
            ("openapi", "/openapi.json", self.openapi),
            ("docs", "/docs", self.docs),
        ]

    async def page(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Answer with the page, which holds nothing of the models."""
        return _sent(people_page())

    async def keys(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Answer with keys that `?like=` is a part of."""
        text = _text(scope, "like") or ""
        return Reply(dump(await self._alone(lambda: self._champions().like(text))))

    async def key(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Answer with the champion of `?key=`."""
        key = _key(scope)
        return Reply(dump(await self._alone(lambda: self._champions().one(key))))

    async def history(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Answer with the champions that `?key=` has had."""
        key = _key(scope)
        return Reply(dump(await self._alone(lambda: self._champions().history(key))))

    async def openapi(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Answer with the routes as OpenAPI."""
        return Reply(dump(await self._alone(self._document)))

    async def docs(self, scope: Scope, receive: Receive) -> Reply:  # noqa: ARG002
        """Answer with the routes as a page."""
        return _sent(await self._alone(lambda: docs_page(self._document())))

    async def _alone(self, work: Callable[[], T]) -> T:
        """Do work in a thread, after what was asked before it.

        Raises:
            OverloadedError: Too many requests are waiting for that.
        """
        if self._waiting > self._options.waiting:
            raise OverloadedError("Too many requests for pages are waiting: try again in a second.")
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1

    def _champions(self) -> Champions:
        served = self._predictor.current
        if self._shown is None or self._shown[0] is not served:
            self._shown = served, Champions(self._predictor.name, served.source)
        return self._shown[1]

    def _document(self) -> dict[str, Any]:
        """Return the document; the first key that has a model is that of its examples."""
        served, name = self._predictor.current, self._predictor.name
        document = partial(
            openapi_document,
            name,
            version=served.version,
            has_api_key=bool(self._options.api_key),
        )
        # Examples are worth no error.
        with suppress(PartwiseError):
            for row in self._champions().like()["keys"]:
                key = json.loads(row["json"] or "null")
                is_named = key is not None or not served.key_columns
                if not is_named or served.levels[0].place(row["id"]) is None:
                    continue
                asked = key_of_json(key, served.key_columns) if served.key_columns else ONLY
                model = self._predictor.model_of(asked)
                return document(columns=describe_model(name, (), served, model)["inputs"], key=key)
        return document()


def _sent(page: Page) -> Reply:
    content_type = b"text/html; charset=utf-8"
    return Reply(page.html.encode(), content_type=content_type, headers=page.headers)


def _key(scope: Scope) -> str:
    key = _text(scope, "key")
    if key is None:
        raise RequestError("The key is missing: ask with ?key=.")
    return key


def _text(scope: Scope, name: str) -> str | None:
    """Return a text of the query; None: it is not there."""
    values = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get(name)
    if values and len(values[0]) > LONGEST_KEY:
        raise RequestError(f"{name} is too long: send {LONGEST_KEY} characters at most.")
    return values[0] if values else None
