"""Passwords in URLs, which have no place in a message or a document."""

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_PASSWORD = re.compile(
    r"(://[^\s/?#@:\[]*:)"
    # A port, not a password, however many @ come later in the path.
    r"(?!\d{1,5}(?:[/?#]|[^\w@]*(?:\s|$)))"
    # A password that should have been quoted holds one of @, / or a blank.
    r"(?:[^\s/?#]*@|\S*@|[^@]*@)"
)
_QUERY = re.compile(
    r"([?&;](?:[^=&;#\s]*(?:password|passwd|pwd|secret|token|key|credential|signature)[^=&;#\s]*"
    r"|sig)=)"
    r"[^&;#\s]+?(?=['\")\],.]*(?:[&;#\s]|$))",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text in which the passwords of URLs are masked, also those in a URL's query.

    A URL is user:password@host:port after its "://" (RFC 3986, 3.2). A password with a sign in it
    that should have been quoted is masked up to the last "@" before the path.

    Example:
        >>> without_secrets("no answer from postgresql://reader:pa@ss@db/shop?sslmode=require")
        'no answer from postgresql://reader:***@db/shop?sslmode=require'
        >>> without_secrets("https://host:443/a@b?token=abc")
        'https://host:443/a@b?token=***'
    """
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1{MASK}@", text))


def masked(value: Any) -> Any:
    """Return a value with `without_secrets` of each text in it, in lists, tuples and dicts too."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {masked(key): masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return tuple(masked(item) for item in value) if isinstance(value, tuple) else value
