"""A proxy before an S3 server that spoils requests: as planned, at random, or the first of each."""

import collections
import http.client
import http.server
import random
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pytest

ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"
LATE_S = 0.05
FAULTS = ("500 InternalError", "503 SlowDown", "lose answer", "lose request", "cut body", "late")
"""What may be spoilt of a request:

- it is not carried out, and answered with this status and error code;
- it is carried out, and the connection is cut before the answer ("lose answer");
- it is not carried out, and the connection is cut ("lose request");
- the connection is cut within the body of the answer ("cut body", of a GET only);
- it is carried out, and the answer is late.
"""


class FaultProxy(http.server.ThreadingHTTPServer):
    """Forwards requests, and spoils some of them.

    `plan` spoils those that alter something, one after the other: an entry is one of `FAULTS`, any
    other status with an error code, or "" for none. Of status 200 it is how S3 answers a deletion
    of many objects of which it has deleted none. When `strip` is set, conditions are removed from
    every request.
    """

    daemon_threads = True

    def __init__(self, upstream: str, late_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.late_s = late_s
        """By how much every answer is late."""
        self.bytes_per_s = 0.0
        """How much goes through in a second, both ways together; 0: as much as can."""
        self.burst_s = (0.0, 0.0)
        """So often, and for so long, every request is answered with 503; 0: never."""
        self.refused = 0
        """How many requests such a burst has met."""
        self.carried = 0
        """How many bytes have gone through."""
        self._line = threading.Lock()
        self.upstream = urllib.parse.urlsplit(upstream)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.forward_all()

    def forward_all(self) -> None:
        """Spoil nothing from here on, and forget what was seen and spoilt."""
        self.plan: collections.deque[str] = collections.deque()
        self.strip = False
        self.seen: list[str] = []
        self.spoilt: collections.Counter[str] = collections.Counter()
        """How often each fault was, or of which kinds the requests were whose answers were lost."""
        self._rates: Mapping[str, float] = {}
        self._chance = random.Random(0)
        self._answered: set[str] | None = None

    def spoil_at_random(self, chance: random.Random, rates: Mapping[str, float]) -> None:
        """Spoil requests of every kind.

        Args:
            chance: Decides about each.
            rates: The share of requests for each of some `FAULTS`.
        """
        self.forward_all()
        self._chance, self._rates = chance, rates

    def lose_first_answers(self) -> None:
        """Carry out whatever alters something, and lose the first answer to each such request."""
        self.forward_all()
        self._answered = set()

    def carry(self, size: int) -> None:
        """Take the time that so many bytes take, one request after the other."""
        with self._line:
            self.carried += size
            if self.bytes_per_s:
                time.sleep(size / self.bytes_per_s)

    def is_in_burst(self) -> bool:
        """Whether requests are refused just now."""
        every_s, lasts_s = self.burst_s
        return bool(every_s) and time.monotonic() % every_s < lasts_s

    def fault_of(self, command: str, path: str, headers: Mapping[str, str]) -> str:
        """Return what is to be spoilt of a request; "" for nothing."""
        alters = command in ("PUT", "POST", "DELETE")
        if alters and self.plan:
            return self.plan.popleft()
        if alters and self._answered is not None:
            request = f"{command} {path}"
            if request in self._answered:
                return ""
            self._answered.add(request)
            self.spoilt[kind_of(command, path, headers)] += 1
            return "lose answer"
        place = self._chance.random()
        for fault, rate in self._rates.items():
            place -= rate
            if place < 0:
                if fault == "cut body" and command != "GET":
                    return ""
                self.spoilt[fault] += 1
                return fault
        return ""


def kind_of(command: str, path: str, headers: Mapping[str, str]) -> str:
    """Return which operation of S3 a request is that alters something."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query, keep_blank_values=True)
    if command == "POST":
        kinds = {"uploads": "begin of parts", "uploadId": "end of parts", "delete": "DELETE many"}
        return next(kind for name, kind in kinds.items() if name in query)
    if command == "PUT":
        if "partNumber" in query:
            return "PUT part"
        if "x-amz-copy-source" in headers:
            return "copy"
        return "PUT if absent" if "If-None-Match" in headers else "PUT"
    return command


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FaultProxy
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(f"{self.command} {self.path}")
        self.server.carry(len(body))
        if self.server.is_in_burst():
            self.server.refused += 1
            self.answer(503, {}, ERROR.format("SlowDown", "injected").encode())
            return
        fault = self.server.fault_of(self.command, self.path, self.headers)
        if fault[:3].isdigit():
            status, code = fault.split()
            said = ERROR.format(code, "injected")
            if status == "200":
                said = said.replace("<Error>", "<DeleteResult><Error>") + "</DeleteResult>"
            self.answer(int(status), {}, said.encode())
            return
        if fault != "lose request":
            status, headers, content = self.ask(body)
        if late_s := LATE_S if fault == "late" else self.server.late_s:
            time.sleep(late_s)
        if fault.startswith("lose"):
            self.close_connection = True
            return
        self.server.carry(len(content))
        self.answer(status, headers, content, is_cut=fault == "cut body")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name != "Expect"}
        if self.server.strip:
            headers.pop("If-None-Match", None)
        # Also where the upstream has no answer: a later test would meet the warning of the socket.
        with closing(http.client.HTTPConnection(self.server.upstream.netloc, timeout=10)) as asked:
            asked.request(self.command, self.path, body, headers)
            response = asked.getresponse()
            return response.status, dict(response.getheaders()), response.read()

    def answer(
        self, status: int, headers: dict[str, str], content: bytes, *, is_cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if is_cut:
            content = content[: len(content) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def fault_proxy(upstream: str, late_s: float = 0.0) -> Iterator[FaultProxy]:
    """Run a proxy for as long as a block lasts."""
    with FaultProxy(upstream, late_s) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients that are made from here on ask again at once, not after seconds."""
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda *a, **more: 0.01)
