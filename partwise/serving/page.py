"""The pages that a server has for people: its keys and their models, and its routes."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from partwise.reports import pages
from partwise.serving.openapi import curl_of

_HERE = Path(__file__).parent
_HOUSE = Path(pages.__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """A page as HTML, and what it has to be sent with."""

    html: str
    headers: Mapping[str, str]
    """Among them a policy by which a browser runs and loads nothing but what the page has."""


@cache
def people_page() -> Page:
    """Return the page of keys; it asks for all that it shows, and may be sent to anybody."""
    return _page("page.html.j2", script=_text(_HERE / "page.js"))


def docs_page(document: Mapping[str, Any]) -> Page:
    """Return a page on the routes that a document of OpenAPI has, with examples for curl."""
    return _page("docs.html.j2", document=document, curl_of=curl_of)


def _page(template: str, script: str = "", **values: Any) -> Page:
    style = _text(_HOUSE / "report.css") + _text(_HERE / "page.css")
    html = (
        _environment()
        .get_template(template)
        .render(style=Markup(style), script=Markup(script), **values)  # noqa: S704 (our own files)
    )
    runs = _hash(script) if script else "'none'"
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'none'; style-src {_hash(style)}; "
        f"script-src {runs}"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Page(html, headers)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    return pages.page_environment().overlay(loader=jinja2.FileSystemLoader([_HERE, _HOUSE]))
