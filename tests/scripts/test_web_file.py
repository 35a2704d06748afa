"""Inputs that change, do not end, come slowly, or lie about themselves: refused in a sentence."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from partwise.errors import InputError
from partwise.scripts import web_file
from partwise.scripts.inputs import find_input
from partwise.scripts.web_file import WebFile, find_web_file
from partwise.store.store import Store

OK = b"HTTP/1.1 200 OK\r\n"
MOST_BYTES = 1 << 20


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Have a server answer each request, one after the other; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    taken, _ = listener.accept()
                    with taken, suppress(OSError):
                        taken.recv(1 << 16)
                        answer(taken)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/data.csv"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def _endless(taken: socket.socket) -> None:
    taken.sendall(OK + b"\r\n")
    for _ in range(64):
        taken.sendall(bytes(MOST_BYTES // 8))


def _drip(taken: socket.socket, beginning: bytes) -> None:
    taken.sendall(beginning)
    is_over = threading.Event()
    # Twice as long as an answer is waited for: who gave up hangs up no sooner.
    for _ in range(40):
        taken.sendall(b"x")
        is_over.wait(0.05)


ANSWERS: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "endless": (_endless, "goes on after 1.0 MB, and does not say its length"),
    "dripping": (lambda one: _drip(one, OK + b"\r\n"), "the server is too slow"),
    "dripping headers": (lambda one: _drip(one, OK + b"X-A: "), "no answer within 1 s"),
    "cut": (lambda one: one.sendall(OK + b"Content-Length: 9\r\n\r\nhalf"), "4 of 9 bytes"),
    "cut chunk": (
        lambda one: one.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf"),
        "IncompleteRead",
    ),
    "no status": (lambda one: one.sendall(b"220 smtp ready\r\n"), "220 smtp ready"),
    "nothing": (lambda one: None, "closed connection without response"),
    "long line": (lambda one: one.sendall(OK + b"X-A: " + bytes(70_000)), "more than 65536 bytes"),
    "many headers": (lambda one: one.sendall(OK + b"A: b\r\n" * 200), "more than 100 headers"),
    "ftp": (
        lambda one: one.sendall(b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/x\r\n\r\n"),
        "unknown url type: ftp",
    ),
    "file": (
        lambda one: one.sendall(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
        "is not allowed",
    ),
    "huge": (
        lambda one: one.sendall(OK + b"Content-Length: 9000000000000000\r\n\r\n"),
        "of disk free",
    ),
    "no number": (lambda one: one.sendall(OK + b"Content-Length: x\r\n\r\n123"), ""),
    # A digit to Python, and no number to int().
    "superscript": (lambda one: one.sendall(OK + b"Content-Length: \xb2\r\n\r\n123"), ""),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_of_any_kind_ends_in_a_sentence(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(web_file, "OPEN_S", 1.0)
    monkeypatch.setattr(web_file, "WINDOW_S", 0.3)
    monkeypatch.setattr(web_file, "LARGEST_BYTES", MOST_BYTES)
    answer, reason = ANSWERS[kind]
    store = Store.parse(tmp_path / "store")
    with answering(answer) as url:
        if not reason:
            path = WebFile(url=url).bring("rows", tmp_path, store)
            assert path.read_bytes() == b"123"
            return
        with pytest.raises(InputError, match=f"The input 'rows', .*{reason}"):
            WebFile(url=url).bring("rows", tmp_path, store)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 4 * MOST_BYTES


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", "Content-Length"])
def test_a_file_of_the_web_that_is_another_one_is_refused(tmp_path, header):
    values = {"ETag": ["a", "b"], "Last-Modified": ["x", "y"], "Content-Length": ["3", "4"]}[header]
    asked = []

    def answer(taken: socket.socket) -> None:
        value = values[min(len(asked), 2) // 2]
        asked.append(value)
        taken.sendall(OK + f"{header}: {value}\r\n\r\n".encode() + b"rows"[: 3 + (value == "4")])

    store = Store.parse(tmp_path / "store")
    with answering(answer) as url:
        found = find_web_file("rows", url)
        assert found.bring("rows", tmp_path / "first", store).read_bytes() == b"row"
        with pytest.raises(InputError, match="has changed since the run began"):
            found.bring("rows", tmp_path / "second", store)


def test_a_shared_path_that_is_another_one_is_refused(tmp_path):
    store = Store.parse(tmp_path / "store")
    folder = tmp_path / "shared rows"
    folder.mkdir()
    (folder / "1.csv").write_text("1")
    shared = find_input("rows", str(folder), store)
    (folder / "of_the_script.csv").write_text("added")
    assert shared.bring("rows", tmp_path, store) == folder
    written = (folder / "1.csv").stat().st_mtime_ns
    os.utime(folder / "1.csv", ns=(written, written // 10**9 * 10**9))
    assert shared.bring("rows", tmp_path, store) == folder
    (folder / "1.csv").write_text("other")
    with pytest.raises(InputError, match=r"shared rows/1\.csv, has changed since the run began"):
        shared.bring("rows", tmp_path, store)
    Path(folder / "1.csv").unlink()
    with pytest.raises(InputError, match=r"shared rows/1\.csv, has changed since the run began"):
        shared.bring("rows", tmp_path, store)
