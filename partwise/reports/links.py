"""Links to reports, for browsers: each opens one report, and proves that it was made for that.

A link names a run and its store, and is signed with a secret. Whoever has it sees that one report;
nobody can make one of it for another run, another store, or a file. A browser sends nothing by
itself that would open a report, so that no web page gains from a person who has opened one.
"""

import hashlib
import hmac
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    from partwise.runs.run import Run

REPORTS_URL = "PARTWISE_REPORTS_URL"
"""The environment variable that says where reports are served; unset: nowhere."""
SECRET = "PREFECT_API_AUTH_STRING"  # noqa: S105 (a variable's name)
"""The environment variable with the password of Prefect's API, with which links are signed."""

_PATH = "/runs/"
_SIGNATURE = "signature"


def report_link(base_url: str, secret: str, run: "Run") -> str:
    """Return the link to the report of a run.

    `secret` is what the server at `base_url`, such as http://127.0.0.1:4201, knows as well.
    """
    store = {name: value for name, value in asdict(run.store).items() if value is not None}
    address = f"{_PATH}{quote(run.run_id, safe='')}?{urlencode(store)}"
    return f"{base_url}{address}&{_SIGNATURE}={_sign(address, secret)}"


def read_link(target: str, secret: str) -> tuple[str, dict[str, str]] | None:
    """Return the run ID and the fields of the store that a link names; None: it is none of ours.

    `target` is path and query of the request.
    """
    address, _, signature = target.rpartition(f"&{_SIGNATURE}=")
    expected = _sign(address, secret)
    # As bytes: of texts it takes ASCII only, and whoever asks may send anything.
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    parts = urlsplit(address)
    return unquote(parts.path.removeprefix(_PATH)), dict(parse_qsl(parts.query))


def _sign(address: str, secret: str) -> str:
    return hmac.new(_key(secret), address.encode(), "sha256").hexdigest()


@cache
def _key(secret: str) -> bytes:
    """Return a key that takes long to guess: a link must not give away a password that is weak."""
    # The same salt everywhere: who makes links and who reads them share the password alone.
    return hashlib.scrypt(secret.encode(), salt=b"partwise report", n=2**14, r=8, p=1)
