"""Secrets in text, which have no place in a message, a log or a document.

Text from elsewhere becomes text of ours in few places: an error of ours (`PartwiseError`), the
description of somebody else's (`describe_error`), the log of a child, a line that Prefect logs.
Each of them calls `without_secrets`, or `without_known_secrets` where the text is the user's own.

What a secret looks like is bounded in every pattern, so that time is linear in the text.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

MASK = "***"
LEAST_CHARS = 8
"""Shorter values are not looked for by themselves: they are words of any text."""

_PASSWORD = re.compile(
    r"(://[^\s/?#@:\[]{0,256}:)"
    # A port, not a password, however many @ come later in the path.
    r"(?!\d{1,5}(?:[/?#]|[^\w@]{0,32}(?:\s|$)))"
    # A password that should have been quoted holds one of @, / or a blank.
    r"(?:[^\s/?#]{0,512}@|\S{0,512}@|[^@]{0,512}@)"
)
_QUERY = re.compile(
    r"([?&;](?:[^=&;#\s]{0,64}"
    r"(?:password|passwd|pwd|passphrase|secret|token|key|credential|signature)[^=&;#\s]{0,64}"
    r"|sig)=)"
    r"[^&;#\s]{1,4096}?(?=['\")\],.]{0,8}(?:[&;#\s]|$))",
    re.IGNORECASE,
)
_QUOTED = r"b?(?:\"(?:[^\"\\\n]|\\[^\n]){1,1024}\\?\"|'(?:[^'\\\n]|\\[^\n]){1,1024}\\?')"
# Only in the query of a URL, which is masked before, "&" ends a value. JSON within JSON has \".
_VALUE = (
    rf"(?:{_QUOTED}"
    r"|(?P<quote>\\{1,7}[\"'])(?:(?!(?P=quote))\\{0,15}[^\\\n]){1,1024}(?P=quote)"
    r"|(?!\*\*\*|&|\\{1,7}[\"'])[^\s,;\"'(){}\[\]]{1,1024})"
)
_NAMES = (
    r"(?:(?:password|passwd|pwd|passphrase|secret|credential|(?:api|access|account|private)[_-]?key)"
    r"(?!_?id)[\w-]{0,64}"
    # Not with more behind them, as in access_token_column; nor each token: those of a language
    # model are texts.
    r"|(?:(?:signing|encryption)[_-]?keys?"
    r"|(?:access|refresh|session|security|auth|bearer|api|sas)[_-]?token)\d{0,3}(?![\w-]))"
)
# password=..., "aws_secret_access_key": ..., AccountKey=...
_NAMED = re.compile(rf"({_NAMES}\\{{0,7}}[\"']?\s{{0,3}}[=:]\s{{0,3}}){_VALUE}", re.IGNORECASE)
# ["run", "--password", "..."] of a command that failed, and ("password", "...") alone.
_PAIRED = re.compile(
    rf"([\"']--?[\w-]{{0,64}}(?:{_NAMES}|token)[\"'],\s{{0,3}}){_QUOTED}"
    rf"|(\(b?[\"'][\w-]{{0,64}}{_NAMES}[\"'],\s{{0,3}}){_QUOTED}(?=\))",
    re.IGNORECASE,
)
# In a header as it is sent, and in a dict or pair of headers.
_AUTHORIZATION = re.compile(
    r"(authorization\\{0,7}[\"']?\s{0,3}[:=,]\s{0,3}b?\\{0,7}[\"']?(?:basic|token) )"
    r"[\w.~+/=-]{8,4096}",
    re.IGNORECASE,
)
# Tokens are parts of texts and of sentences too: "tokens=512", "unexpected token: x".
_TOKEN = re.compile(
    r"(token(?:=|\\{0,7}[\"']\s{0,3}[=:]\s{0,3}))(?!\d{1,9}\b)" + _VALUE,
    re.IGNORECASE,
)
# Of ODBC, with "}}" for a brace in it.
_BRACED = re.compile(
    r"((?:password|passwd|pwd)\s{0,3}=\s{0,3})\{(?:[^}\n]|\}\}){1,128}\}", re.IGNORECASE
)
_SHAPES = re.compile(
    # A header; and what issuers begin their keys with.
    r"(?<=bearer )[\w.~+/=-]{8,4096}"
    r"|\bgh[pousr]_\w{20,255}|\bhf_[A-Za-z0-9]{20,255}"
    r"|\beyJ[\w-]{8,4096}\.eyJ[\w-]{8,4096}\.[\w-]{8,4096}"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{1,16384}",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|_pwd$|_pass$|secret|token|credential|auth_string|connection_string"
    r"|(?:api|access|account|private|signing|encryption)_?keys?$",
    re.IGNORECASE,
)
_remembered: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Values that are known to be secret, and what they were found in."""

    variables: dict[Any, Any] | None
    """Those of the environment, as they were; None: it is not Python's own object."""
    told: int
    """How many values `remember` had been given."""
    values: list[str]


_found = _Found(variables=None, told=-1, values=[])


def without_secrets(text: str) -> str:
    """Return a text in which secrets are masked: by their value, by their name, or by their form.

    These are values that this process knows to be secret (`without_known_secrets`); the passwords
    of URLs, also in a URL's query, user:password@host:port after "://" (RFC 3986, 3.2), a password
    with a sign in it that should have been quoted up to the last "@" before the path; what follows
    a name such as `password=` or `AccountKey=`; and bearer tokens, private keys and the like.

    Example:
        >>> without_secrets("no answer from postgresql://reader:pa@ss@db/shop?sslmode=require")
        'no answer from postgresql://reader:***@db/shop?sslmode=require'
        >>> without_secrets("https://host:443/a@b?token=abc")
        'https://host:443/a@b?token=***'
        >>> without_secrets("connect(host='db', password='abc')")
        "connect(host='db', password=***)"
    """
    if not text:
        return text
    text = without_known_secrets(text)
    if "://" in text:
        text = _QUERY.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1{MASK}@", text))
    text = _PAIRED.sub(rf"\1\2{MASK}", text)
    for named in (_BRACED, _NAMED, _TOKEN, _AUTHORIZATION):
        text = named.sub(rf"\1{MASK}", text)
    return _SHAPES.sub(MASK, text)


def without_known_secrets(text: str) -> str:
    """Return a text without the values that this process knows to be secret.

    These are the values of environment variables with names such as PGPASSWORD or HF_TOKEN, and
    those that `remember` was given, if they have at least eight characters.
    """
    if not text:
        return text
    for value in _known():
        if value in text:
            text = text.replace(value, MASK)
    return text


def remember(values: Iterable[str]) -> None:
    """Have values masked in this process from now on, also as they stand in URLs."""
    _remembered.update(value for value in values if len(value) >= LEAST_CHARS)


def _known() -> list[str]:
    """Return the values that are masked, the longest first.

    They are looked for again only when a variable has changed, or more were given: that takes 0.1
    ms, and a child asks for each partition that prints, is skipped or fails.
    """
    global _found
    # The bytes below os.environ, which would decode each variable to compare it.
    variables = getattr(os.environ, "_data", None)
    found = _found
    if variables is None or (found.variables, found.told) != (variables, len(_remembered)):
        told = len(_remembered)
        copied = None if variables is None else dict(variables)
        found = _Found(variables=copied, told=told, values=_look_for_values())
        _found = found
    return found.values


def _look_for_values() -> list[str]:
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    # The path of a file that holds the secret is none.
    values = {v for v in values if len(v) >= LEAST_CHARS and not v.startswith(("/", "~"))}
    values |= _remembered
    # A variable may hold bytes that are no text, and every message comes by here.
    known = [*(values | {quote(value, safe="", errors="surrogateescape") for value in values})]
    # Not sorted(): a function may have replaced it, and its messages are masked all the same.
    known.sort(key=len, reverse=True)
    return known


def names_secret(name: str) -> bool:
    """Whether what stands under a name is a secret, such as "password" or "api-key"."""
    return without_secrets(f'{name}="x"') != f'{name}="x"'


def masked(value: Any) -> Any:
    """Return a value with `without_secrets` of each text in it, in lists, tuples and dicts too.

    A text that a dict has under the name of a secret is masked as a whole, and so are those of a
    list there.
    """
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {masked(key): _masked_under(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return tuple(masked(item) for item in value) if isinstance(value, tuple) else value


def _masked_under(key: Any, item: Any) -> Any:
    if not isinstance(key, str) or not isinstance(item, str | list | tuple):
        return masked(item)
    if item and names_secret(key):
        if isinstance(item, str):
            return MASK
        hidden = [_masked_under(key, each) for each in item]
        return hidden if isinstance(item, list) else tuple(hidden)
    return masked(item)
