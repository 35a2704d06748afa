"""The reports of runs, for the links in Prefect's UI: a server that `partwise up` starts.

It answers to signed links, each of which opens one report (`partwise.reports.links`), and at
`/metrics` Prometheus, which has to show the password of Prefect's server. The
report is made again from the run, never taken from the store: whoever can write there could have
put any page in its place. It comes with headers by which a browser runs nothing in it, loads
nothing for it, and shows it within no other page.
"""

import functools
import hmac
import json
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from partwise.flows.operations.metrics import Metrics
from partwise.flows.operations.service_logs import cut_long_logs
from partwise.flows.operations.services import FOLDER
from partwise.formatting import visible
from partwise.peers import hang_up
from partwise.processes.starting import python_words
from partwise.reports.links import SECRET, read_link
from partwise.reports.page_process import REFUSED

if TYPE_CHECKING:
    from partwise.flows.operations.server_view import ServerWatch

AT_ONCE = 2
"""Reports that are made at the same time; others wait."""
RENDER_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 10.0
"""For so long a request may take to come, and its answer to be taken."""
STRANGERS = 64
"""So many connections may have sent no request yet; of more the oldest are closed."""
LOOKS_AT_LOGS_S = 60.0
ASK_S = 5.0
"""For so long Prefect's server may take for an answer."""
_HTML = "text/html; charset=utf-8"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; sandbox"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address is what opens the report.
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PAGE = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title} · partwise</title>'
    '<body style="font-family: system-ui, sans-serif; max-width: 40rem; margin: 4rem auto">'
    "<h1>{title}</h1><p>{text}</p></body></html>"
)
_NO_LINK = (
    "This address opens no report. Links to reports are in the artifacts of flow runs, in "
    "Prefect's UI; they hold until the password of its server is changed."
)
_CLOSED = (
    "Metrics are for who shows the password in .partwise/password: by HTTP basic "
    "authentication, as Prometheus and curl know it."
)


class ReportServer(ThreadingHTTPServer):
    """Serves reports, and metrics where there are any, on the loopback address."""

    daemon_threads = True
    # With the five of Python's, who comes while others do has to knock again, seconds later.
    request_queue_size = 128

    def __init__(
        self,
        port: int,
        secret: str,
        logs: Path | None = None,
        metrics: Callable[[], bytes] | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self._logs = logs
        self.metrics = metrics
        self._next_look_s = 0.0
        self.secret = secret
        self.turn = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, threading.Timer] = {}
        """In the order in which they came; each is closed when its time is over."""

    def greet(self, one: socket.socket) -> None:
        """Wait for the request of a connection for a while, and not for those before too many."""
        # A limit of the socket would be one for each byte.
        limit = threading.Timer(REQUEST_TIMEOUT_S, hang_up, (one,))
        limit.daemon = True
        with self._lock:
            self._strangers[one] = limit
            crowded = list(self._strangers)[:-STRANGERS]
        limit.start()
        for oldest in crowded:
            hang_up(oldest)

    def know(self, one: socket.socket) -> None:
        """Note that a connection has sent its request, or has ended."""
        with self._lock:
            limit = self._strangers.pop(one, None)
        if limit is not None:
            limit.cancel()

    def service_actions(self) -> None:
        """Cut long logs now and then: this is the one process of ours that is always there."""
        if self._logs is not None and time.monotonic() > self._next_look_s:
            self._next_look_s = time.monotonic() + LOOKS_AT_LOGS_S
            cut_long_logs(self._logs)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write down what went wrong here, and not that somebody has gone: it would fill a disk."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    server: ReportServer
    server_version = "partwise"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S

    def setup(self) -> None:
        """Begin to wait for a request."""
        super().setup()
        self.server.greet(self.connection)

    def finish(self) -> None:
        """Forget a connection."""
        self.server.know(self.connection)
        super().finish()

    def do_GET(self) -> None:
        """Answer a browser: with the report, or a page that says why there is none."""
        self.server.know(self.connection)
        if self.path == "/metrics" and self.server.metrics is not None:
            self._tell_metrics(self.server.metrics)
            return
        link = read_link(self.path, self.server.secret)
        if link is None:
            self._refuse(HTTPStatus.NOT_FOUND, "No such report", _NO_LINK)
            return
        run_id, store = link
        with self.server.turn:
            page, reason = _render(run_id, store)
        if page is None:
            self._refuse(HTTPStatus.NOT_FOUND, f"No report of {run_id}", reason)
            return
        self._answer(HTTPStatus.OK, page)

    def _tell_metrics(self, metrics: Callable[[], bytes]) -> None:
        shown = self.headers.get("Authorization", "").encode()
        wanted = b"Basic " + b64encode(self.server.secret.encode())
        if hmac.compare_digest(shown, wanted):
            self._answer(HTTPStatus.OK, metrics(), CONTENT_TYPE_PLAIN_0_0_4)
        else:
            # Without WWW-Authenticate: a browser that asked for the password would show it again by
            # itself, also where another page made it ask.
            self._refuse(HTTPStatus.UNAUTHORIZED, "No metrics", _CLOSED)

    def _refuse(self, status: HTTPStatus, title: str, text: str) -> None:
        page = _PAGE.format(title=escape(visible(title)), text=escape(visible(text)))
        self._answer(status, page.encode())

    def _answer(self, status: HTTPStatus, page: bytes, kind: str = _HTML) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def send_error(self, code: int, *_: object) -> None:
        """Refuse a request that is none, with our headers, and nothing of what it said."""
        self.close_connection = True
        self._refuse(HTTPStatus(code), "No such report", _NO_LINK)

    def log_message(self, *words: Any) -> None:
        """Log nothing: the address of a request is what opens a report."""


def _render(run_id: str, store: dict[str, str]) -> tuple[bytes | None, str]:
    """Return the report of a run, or the reason why there is none."""
    wanted = json.dumps({"run_id": run_id, "store": store})
    # It reads what others may have written, and has no use for what opens other reports.
    environment = {name: value for name, value in os.environ.items() if name != SECRET}
    try:
        done = subprocess.run(  # noqa: S603 (our own arguments)
            python_words("partwise.reports.page_process", wanted),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RENDER_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"It could not be made within {RENDER_TIMEOUT_S:.0f} seconds."
    if done.returncode == 0:
        return done.stdout, ""
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode != REFUSED:
        sys.stderr.write(f"{said}\n")
        return None, "It could not be made: .partwise/reports.log says why."
    return None, said


def main() -> None:
    """Serve at the URL that is this process's argument, until it is ended.

    The folder that it was started in has its own log and those of Prefect's server and worker.
    """
    port = urlsplit(sys.argv[1]).port or 0
    metrics = Metrics(Path(FOLDER), lambda: _watch().look())
    ReportServer(port, os.environ[SECRET], Path(FOLDER), metrics.text).serve_forever()


@functools.cache
def _watch() -> "ServerWatch":
    # Here: it loads Prefect, for which who asks for no metrics has no use.
    from prefect.client.orchestration import get_client

    from partwise.flows.operations.server_view import ServerWatch

    # By the environment, as the worker does. To make a client takes longer than to ask.
    return ServerWatch(get_client(sync_client=True, httpx_settings={"timeout": ASK_S}))


if __name__ == "__main__":
    main()
