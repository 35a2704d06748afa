"""How the ranks of a gang exchange data while LightGBM trains: its network, over our own sockets.

LightGBM's own sockets bind a port themselves, look for their rank by comparing addresses with those
of the machine, and wait for ever for a rank that has ended (4.7, src/network/linkers_socket.cpp).
It also takes two functions in their place (`LGBM_NetworkInitWithFunctions`). Here these are given:
any free port will do, a lost rank is an error at once, and sums are made in the order of ranks.
"""

import ctypes
import secrets
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from partwise.errors import PeerLostError
from partwise.peers import accept_peers, family_of, reach_peer
from partwise.ranks.context import RankContext

_TOKEN_BYTES = 16

_Reducer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int32)
_Sizes = ctypes.POINTER(ctypes.c_int32)
_ReduceScatter = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, _Sizes, _Sizes, ctypes.c_int,
    ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(_Reducer),
)  # fmt: skip
_Allgather = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, _Sizes, _Sizes, ctypes.c_int, ctypes.c_void_p,
    ctypes.c_int32,
)  # fmt: skip
"""As include/LightGBM/meta.h declares them."""


class LightGBMNetwork:
    """Connections from one rank to all others: a stream to each, None for this one."""

    def __init__(self, rank: int, peers: Sequence[socket.socket | None]) -> None:
        self.rank = rank
        self.size = len(peers)
        self.lost: BaseException | None = None
        """Why the network failed while LightGBM used it, which has no way to know."""
        self._peers = {place: peer for place, peer in enumerate(peers) if peer is not None}
        for peer in self._peers.values():
            peer.setblocking(False)
        # LightGBM holds their addresses only.
        self._functions = _ReduceScatter(self._reduce_scatter), _Allgather(self._allgather)

    def exchange(self, blocks: Sequence[memoryview], sizes: Sequence[int]) -> list[bytearray]:
        """Give each rank its block, and return what each has given to this one, of these sizes.

        Raises:
            PeerLostError: Another rank has ended.
        """
        received = [bytearray(size) for size in sizes]
        received[self.rank][:] = blocks[self.rank]
        for step in range(1, self.size):
            to, source = (self.rank + step) % self.size, (self.rank - step) % self.size
            self._swap(to, blocks[to], source, memoryview(received[source]))
        return received

    def all_gather(self, content: bytes) -> list[bytearray]:
        """Return what every rank has given, as many bytes each, in the order of ranks."""
        return self.exchange([memoryview(content)] * self.size, [len(content)] * self.size)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let LightGBM use this network in the thread that calls it.

        Raises:
            PeerLostError: Another rank had ended, which LightGBM calls by other names.
        """
        from lightgbm.basic import _LIB, _safe_call  # type: ignore[attr-defined]

        pointers = [ctypes.cast(function, ctypes.c_void_p) for function in self._functions]
        _safe_call(_LIB.LGBM_NetworkInitWithFunctions(self.size, self.rank, *pointers))
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            _safe_call(_LIB.LGBM_NetworkFree())

    def check(self) -> None:
        """Raise what happened while LightGBM used the network."""
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Close the connections; the other ranks see it."""
        for peer in self._peers.values():
            peer.close()

    def _swap(self, to: int, content: memoryview, source: int, buffer: memoryview) -> None:
        """Send to one rank while another is received from, so that nobody waits in a circle."""
        out, into = self._peers[to], self._peers[source]
        try:
            while content or buffer:
                poller = select.poll()
                wanted = {out.fileno(): select.POLLOUT if content else 0}
                wanted[into.fileno()] = wanted.get(into.fileno(), 0) | (
                    select.POLLIN if buffer else 0
                )
                for peer, events in wanted.items():
                    if events:
                        poller.register(peer, events)
                poller.poll()
                content = content[_sent(out, content) :]
                buffer = buffer[_received(into, buffer) :]
        except OSError as error:
            raise PeerLostError(
                f"Rank {self.rank} lost another rank of the gang while LightGBM trained."
            ) from error

    def _reduce_scatter(
        self, source: int, _size: int, type_size: int, starts: Any, lengths: Any, n: int,
        target: int, target_size: int, reducer: Any,
    ) -> None:  # fmt: skip
        """Sum up the blocks of this rank; `Network::ReduceScatter`."""

        def work() -> bytearray:
            blocks = [_view(source + starts[place], lengths[place]) for place in range(n)]
            first, *others = self.exchange(blocks, [lengths[self.rank]] * n)
            total = _address(first)
            for other in others:
                reducer[0](_address(other), total, type_size, len(first))
            return first

        self._answer(work, target, target_size)

    def _allgather(
        self,
        source: int,
        _size: int,
        _starts: Any,
        lengths: Any,
        n: int,
        target: int,
        all_size: int,
    ) -> None:
        """Join the blocks of all ranks; `Network::Allgather`."""

        def work() -> bytearray:
            mine = _view(source, lengths[self.rank])
            gathered = self.exchange([mine] * n, [lengths[place] for place in range(n)])
            return bytearray().join(gathered)

        self._answer(work, target, all_size)

    def _answer(self, work: Any, target: int, size: int) -> None:
        """Write what `work` makes; zeros when that fails, as nothing can be raised in LightGBM.

        A gain of 0 ends the tree, and who called LightGBM looks at `lost` then.
        """
        if self.lost is None:
            try:
                made = work()
                ctypes.memmove(target, _address(made), len(made))
                return
            except BaseException as error:
                self.lost = error
        ctypes.memset(target, 0, size)


def _sent(peer: socket.socket, content: memoryview) -> int:
    """Send what can be sent without waiting, and return how many bytes that was."""
    try:
        return peer.send(content) if content else 0
    except BlockingIOError:
        return 0


def _received(peer: socket.socket, buffer: memoryview) -> int:
    """Receive what is there, and return how many bytes that was."""
    if not buffer:
        return 0
    try:
        received = peer.recv_into(buffer)
    except BlockingIOError:
        return 0
    if not received:
        raise ConnectionResetError("The other rank has closed its connection.")
    return received


def _view(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _address(content: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(content)).from_buffer(content)) if content else 0


def network_pair() -> list[LightGBMNetwork]:
    """Return the networks of two ranks in one process, each for a thread of its own."""
    first, second = socket.socketpair()
    return [LightGBMNetwork(0, [None, first]), LightGBMNetwork(1, [second, None])]


def connect_ranks(context: RankContext) -> LightGBMNetwork:
    """Connect this rank with all others; every rank has to call it.

    Raises:
        PeerLostError: Another rank was not there within a minute.
    """
    host = context.addresses[context.rank][0]
    peers: list[socket.socket | None] = [None] * context.world_size
    with socket.create_server(
        (host, 0), family=family_of(host), backlog=context.world_size
    ) as listener:
        port = listener.getsockname()[1]
        # When this returns all ranks listen, so all may connect before they accept.
        told = context.all_gather(port.to_bytes(2, "big") + secrets.token_bytes(_TOKEN_BYTES))
        ports, token = [int.from_bytes(content[:2], "big") for content in told], told[0][2:]
        for other in range(context.rank):
            address = context.addresses[other][0], ports[other]
            peers[other] = reach_peer(address, context.rank, token)
        above = set(range(context.rank + 1, context.world_size))
        for other, peer in accept_peers(listener, above, token).items():
            peers[other] = peer
    for connected in peers:
        if connected is not None:
            # Blocks may be small, and the other rank waits for each.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return LightGBMNetwork(context.rank, peers)
