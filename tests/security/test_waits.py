"""docs/reliability.md lists every wait and its limit; held against the code that waits.

A wait needs no line where its call has a limit and does not stand in a loop: then the call ends in
that time. In a loop, or without a limit, a line says what ends it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.security.listed import modules, tables

HEADING = "### Every wait"
ALWAYS = {
    *("accept", "recv", "recv_into", "recvfrom", "recv_bytes", "sendall", "send_bytes"),
    *("recv_fds", "send_fds"),
    *("create_connection", "makefile", "readline", "read1", "getresponse", "urlopen"),
    *(
        "await_one",
        "communicate",
        "wait",
        "wait_for",
        "wait_for_workers",
        "scheduler_info",
        "serve_forever",
    ),
    *("sleep", "sigwait", "waitpid", "waitid", "flock", "lockf", "result", "getaddrinfo"),
    *("BoundedSemaphore", "Semaphore", "Condition", "Barrier"),
    *("fetchall", "fetch_record_batch", "init_process_group", "TCPStore"),
}
"""Names of functions and methods that wait, whoever has them."""
OF = {
    "run": {"client", "subprocess", "uvicorn"},
    "check_output": {"subprocess"},
    "sync": {"client", "cluster"},
    "execute": {"cursor"},
    "gather": {"client", "asyncio"},
    "compute": {"task"},
    "connect": {"connection", "dbapi", "socket"},
    "get": {"greeted", "handed", "inbox", "news", "places", "queue"},
    "map": {"pool", "readers", "threads"},
    "next": {"ends"},
    "open": {"fsspec", "opener"},
    "poll": {"poll", "poller"},
    "put": {"handed"},
    "read": {"stdout", "stdin", "os", "answer"},
    "select": {"selector"},
    "shutdown": {"pool", "threads", "executor"},
}
"""Others wait where this is what they are called of; what queues are called, all of them."""
LIMITS = {"timeout", "callback_timeout", "timeout_s"}
FIRST_IS_LIMIT = {"wait", "result", "join", "next", "sleep", "poll"}
NOT_BLOCKING = re.compile("WNOHANG|LOCK_NB|LOCK_UN|wait=False")
ENDED = {("cluster_calls", "begun"), ("cluster_calls", "each"), ("blocks/custom_cluster", "future")}
"""Futures that have ended when their result is asked for."""


@dataclass(frozen=True)
class Place:
    """Where something is waited for."""

    name: str
    """Module and function."""
    is_bounded: bool
    in_loop: bool


def waits() -> Iterator[Place]:
    """Yield every wait of the code."""
    for module, path in modules():
        yield from _waits_of(path.read_text(), module)


def _waits_of(code: str, module: str) -> Iterator[Place]:
    tree = ast.parse(code)
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    given = {each.asname: each.name for node in imports for each in node.names if each.asname}
    for node in ast.walk(tree):
        # By the name that it has where it comes from.
        if isinstance(node, ast.Name):
            node.id = given.get(node.id, node.id)
    yield from _waits_below(tree, module, "", in_loop=False)


def _waits_below(node: ast.AST, module: str, function: str, *, in_loop: bool) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        inner, looped = function, in_loop or isinstance(child, ast.While)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner, looped = child.name, False
        if isinstance(child, ast.Call) and _waits(child, module):
            yield Place(f"{module}.{function}", _is_bounded(child), in_loop)
        yield from _waits_below(child, module, inner, in_loop=looped)


def _waits(call: ast.Call, module: str) -> bool:
    name, owner = "", ""
    match call.func:
        case ast.Name(id=name):
            pass
        case ast.Attribute(attr=name, value=value):
            owner = ast.unparse(value).rpartition(".")[2].lstrip("_")
    if NOT_BLOCKING.search(ast.unparse(call)) or (module, owner) in ENDED:
        return False
    if name in ("join", "get") and call.args:
        # The one of a text takes what it joins, the other of a dict a key.
        return False
    if name == "join":
        return bool(owner)
    return name in ALWAYS or owner in OF.get(name, ())


def _is_bounded(call: ast.Call) -> bool:
    name = ast.unparse(call.func).rpartition(".")[2]
    limits = [word.value for word in call.keywords if word.arg in LIMITS]
    is_function = isinstance(call.func, ast.Name)
    if name in ("await_one", "create_connection") or (name == "wait" and is_function):
        limits += call.args[1:]
    elif name in FIRST_IS_LIMIT:
        limits += call.args
    return any(not _may_be_none(each) for each in limits)


def _may_be_none(limit: ast.expr) -> bool:
    match limit:
        case ast.IfExp(body=body, orelse=orelse):
            return _may_be_none(body) or _may_be_none(orelse)
        case ast.Constant(value=value):
            return value is None
    return False


def listed() -> list[tuple[set[str], str]]:
    """Return the places and the limit of each line of the page."""
    (rows,) = tables(HEADING)
    assert all(len(row) == 3 for row in rows)
    return [(set(re.findall(r"`([a-z_/]+\.\w+)`", row[1])), row[2]) for row in rows]


def test_every_wait_is_bounded_or_listed_with_what_ends_it() -> None:
    found = {place.name for place in waits() if not place.is_bounded or place.in_loop}
    named = [name for names, _ in listed() for name in names]
    assert sorted(found - set(named)) == [], "what ends these waits? Say it in docs/reliability.md"
    assert sorted(set(named) - found) == [], "these wait for nothing any more"
    assert len(named) == len(set(named))


def test_the_limits_that_are_listed_are_those_of_the_code() -> None:
    values: dict[str, set[float]] = {}
    for _, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                    if isinstance(value, int | float):
                        values.setdefault(name, set()).add(float(value))
    limits = " ".join(limit for _, limit in listed())
    said = re.findall(r"([\d.]+) (s|min|ms) \(`(\w+)`\)", limits)
    assert len(said) > 15
    units = {"s": 1.0, "min": 60.0, "ms": 0.001}
    wrong = [
        (number, unit, name)
        for number, unit, name in said
        if float(number) * units[unit] not in values.get(name, ())
    ]
    assert wrong == []


def test_a_wait_is_seen() -> None:
    code = """
from distributed import wait as wait_for_tasks

class Kind:
    def bounded(self):
        self._thread.join(5); done.result(timeout=LIMIT); time.sleep(1); ", ".join(names)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB); variable.get(); table.select(names)
    def unbounded(self):
        self._thread.join()
    def none(self):
        done.result(timeout=None)
    def perhaps(self):
        done.result(timeout=None if limit is None else limit)
    def named_otherwise(self):
        wait_for_tasks(tasks)
    def looped(self):
        while True:
            self._ended.wait(LOOK_S)
"""
    found = {place.name: (place.is_bounded, place.in_loop) for place in _waits_of(code, "m")}
    assert found == {
        "m.bounded": (True, False),
        "m.unbounded": (False, False),
        "m.none": (False, False),
        "m.perhaps": (False, False),
        "m.named_otherwise": (False, False),
        "m.looped": (True, True),
    }
