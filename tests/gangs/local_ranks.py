"""Ranks without a cluster: processes of this machine that exchange data as those of a gang do."""

import multiprocessing
import secrets
import socket
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from partwise.gangs.exchange import RankExchange
from partwise.gangs.work import RankSource
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import set_context
from partwise.ranks.protocols import RankRows


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
    spawn = multiprocessing.get_context("spawn")
    key = secrets.token_bytes(16)
    with socket.create_server(("127.0.0.1", 0)) as listener, spawn.Pool(world_size) as pool:
        address = listener.getsockname()
        results = [
            pool.apply_async(
                _run_rank,
                (rank, world_size, listener if rank == 0 else None, address, key, function),
                {"sources": sources or {}, **fields},
            )
            for rank in range(world_size)
        ]
        return [result.get(timeout=120) for result in results]


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
