"""A bucket of S3 that answers as such buckets do: each request late, and with so many MB/s.

    python -m benchmarks.paced_bucket PORT FOLDER LATE_S BYTES_PER_S

The files of a folder are the objects of any bucket; they can be listed, looked at and read. GET
/_counted returns how many requests there were since the last one, and how many bytes they carried.
"""

import argparse
import json
import os
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_SENT_BYTES = 2**18


class PacedBucket(ThreadingHTTPServer):
    """The server."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, folder: Path, late_s: float, bytes_per_s: float) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.folder, self.late_s, self.bytes_per_s = folder, late_s, bytes_per_s
        self.lock = threading.Lock()
        self.counted = {"requests": 0, "bytes": 0}

    def handle_error(self, *_: Any) -> None:
        """Say nothing of readers that go away."""


class _Handler(BaseHTTPRequestHandler):
    server: PacedBucket
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def answer(self) -> None:
        url = urllib.parse.urlparse(self.path)
        if url.path == "/_counted":
            with self.server.lock:
                counted = dict(self.server.counted)
                self.server.counted.update(requests=0, bytes=0)
            self.send(200, json.dumps(counted).encode())
            return
        time.sleep(self.server.late_s)
        with self.server.lock:
            self.server.counted["requests"] += 1
        _, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        path = self.server.folder / key
        if not key:
            self.send(200, self.listing(urllib.parse.parse_qs(url.query)))
        elif not path.is_file():
            self.send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self.send_file(path)

    do_GET = do_HEAD = answer  # noqa: N815 (http.server's names)

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, found = query.get("prefix", [""])[0], []
        for path in sorted(self.server.folder.rglob("*")):
            name = path.relative_to(self.server.folder).as_posix()
            if path.is_file() and name.startswith(prefix):
                size, tag = path.stat().st_size, path.stat().st_mtime_ns
                found.append(
                    f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
                    f"<ETag>&quot;{tag:x}&quot;</ETag><Size>{size}</Size></Contents>"
                )
        return (
            f"<ListBucketResult><Name>b</Name><Prefix>{prefix}</Prefix><KeyCount>{len(found)}"
            f"</KeyCount><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
        ).encode()

    def send_file(self, path: Path) -> None:
        size, tag = path.stat().st_size, path.stat().st_mtime_ns
        first, last, asked = 0, size - 1, self.headers.get("Range")
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first = int(start) if start else max(0, size - int(end))
            last = min(last, int(end)) if start and end else last
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{tag:x}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if self.command == "GET":
            self.carry(path, first, last - first + 1)

    def carry(self, path: Path, first: int, count: int) -> None:
        with self.server.lock:
            self.server.counted["bytes"] += count
        began, sent = time.monotonic(), 0
        with path.open("rb") as file:
            while sent < count:
                wanted = min(_SENT_BYTES, count - sent)
                sent += os.sendfile(self.connection.fileno(), file.fileno(), first + sent, wanted)
                time.sleep(max(0.0, began + sent / self.server.bytes_per_s - time.monotonic()))

    def send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    """Parse the command line, and serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("port", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("late_s", type=float)
    parser.add_argument("bytes_per_s", type=float)
    given = parser.parse_args()
    PacedBucket(given.port, given.folder, given.late_s, given.bytes_per_s).serve_forever()


if __name__ == "__main__":
    main()
