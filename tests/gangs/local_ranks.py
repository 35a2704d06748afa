"""Ranks without a cluster: processes of this machine that exchange data as those of a gang do."""

import multiprocessing
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver, reduction
from typing import Any

import pytest

from partwise.gangs.exchange import RankExchange
from partwise.gangs.work import RankSource
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import set_context
from partwise.ranks.protocols import RankRows

PRELOADED = ("tests.scripts.script_ranks",)
"""What nearly all ranks import: they are forked from a process that has it."""

_servers: list[forkserver.ForkServer] = []
"""Such processes; the last one forks. They are not the one that Dask's workers are forked from."""


@contextmanager
def ranks_that_have(*modules: str) -> Iterator[None]:
    """Have ranks forked from a process with these modules as well: a library takes a second."""
    _servers.append(_server_with(*PRELOADED, *modules))
    try:
        yield
    finally:
        # There is no public way to end it.
        _servers.pop()._stop()  # type: ignore[attr-defined]


def _server_with(*modules: str) -> forkserver.ForkServer:
    server = forkserver.ForkServer()
    server.set_forkserver_preload([*modules])
    return server


def run_ranks(
    world_size: int,
    function: Callable[[RankContext], Any],
    sources: Mapping[str, RankSource | RankRows] | None = None,
    **fields: Any,
) -> list[Any]:
    """Call a function that can be imported once for each rank, and return what each returned.

    Args:
        world_size: How many ranks there are; each is a process of its own, also a single one.
        function: Called with the context of the rank.
        sources: The rows, by name: as the driver describes them, or opened.
        fields: More fields of the context.

    Raises:
        Exception: What the first rank that failed raised.
    """
    forked = multiprocessing.get_context("forkserver")
    key = secrets.token_bytes(16)
    if not _servers:
        _servers.append(_server_with(*PRELOADED))
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        with pytest.MonkeyPatch.context() as patch:
            connect = _servers[-1].connect_to_new_process
            patch.setattr(forkserver, "connect_to_new_process", connect)
            pool = stack.enter_context(forked.Pool(world_size))
        address = listener.getsockname()
        results = [
            pool.apply_async(
                _run_rank_here,
                (
                    dict(os.environ),
                    {number: reduction.DupFd(number) for number in (1, 2)},
                    *(rank, world_size, listener if rank == 0 else None, address, key, function),
                ),
                {"sources": sources or {}, **fields},
            )
            for rank in range(world_size)
        ]
        return [result.get(timeout=120) for result in results]


def _run_rank_here(
    variables: Mapping[str, str], output: Mapping[int, Any], *given: Any, **fields: Any
) -> Any:
    """Run a rank with the variables and the output of who asks for it, not of who has forked it."""
    os.environ.clear()
    os.environ.update(variables)
    for number, descriptor in output.items():
        os.dup2(own := descriptor.detach(), number)
        os.close(own)
    return _run_rank(*given, **fields)


def _run_rank(
    rank: int,
    world_size: int,
    listener: socket.socket | None,
    address: tuple[str, int],
    key: bytes,
    function: Callable[[RankContext], Any],
    sources: Mapping[str, RankSource | RankRows],
    **fields: Any,
) -> Any:
    exchange = RankExchange(rank, world_size, listener, address, key)
    folder = tempfile.TemporaryDirectory()
    opened = {
        name: source.open(rank, world_size, exchange, folder.name)
        if hasattr(source, "open")
        else source
        for name, source in sources.items()
    }
    context = RankContext(
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        local_world_size=world_size,
        addresses=(address,) * world_size,
        exchange=exchange,
        sources=opened,
        **fields,
    )
    set_context(context)
    try:
        return function(context)
    finally:
        set_context(None)
        exchange.close()
        folder.cleanup()
