"""Messages between a worker and its child process: dataclasses, as msgpack, over a socket pair.

msgpack holds plain values only, so that, with any function of a user, reading its messages runs no
code. On the wire a message is [name of its class, [value of each field, ...]]. Messages are not
`kw_only` as other values are: one is made of the list of its values, for every partition of a run,
and by keywords that takes twice as long.
"""

import select
import signal
import socket
import time

# The one of `signal` makes an enum of each signal: 0.1 to 0.2 ms a message, where this takes 0.004.
from _signal import pthread_sigmask  # type: ignore[import-not-found]
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgpack

from partwise.engine.failures import Failure
from partwise.engine.outcome import Content, Outcome
from partwise.engine.works import StoredModel

READ_BYTES = 1 << 16
"""More would be asked of the kernel for each message, which takes longer than to read it."""
LARGEST_MESSAGE_BYTES = (1 << 31) - 1
UNDIVIDED_BYTES = 4_096
"""The kernel takes so many at once, or none: a signal comes before them or behind."""
_SIGNALS = tuple(map(int, signal.valid_signals()))


@dataclass(frozen=True, slots=True)
class OpenWork:
    """To the child: load the user's function. It answers with WorkReady or WorkUnusable."""

    path: str


@dataclass(frozen=True, slots=True)
class OpenShard:
    """To the child: all that it needs to know of the shard whose partitions come next."""

    path: str
    """Of the file with its rows, sorted by partition."""
    keys: bytes
    """The keys of its partitions, as an Arrow IPC stream."""
    key_columns: list[str]
    partition_ids: list[str]
    offsets: list[int]
    """Where each partition begins in the file, and where the last one ends."""
    seeds: list[int]
    params: str | None
    """Path of the file with the params of its partitions."""
    models: dict[int, list[StoredModel]]
    """The trained models of partitions, by the index of these."""
    run_id: str
    all_rows: int = 0
    """Of all partitions of the run; 0: not known."""
    all_partitions: int = 0
    is_spooled: bool = False
    """Whether the file is one of `write_spooled`, not of a `SortedShard`."""


@dataclass(frozen=True, slots=True)
class RunPartitions:
    """To the child: run these. It sends an Outcome of each, in their order, and then Idle."""

    indices: list[int]
    attempt: int


@dataclass(frozen=True, slots=True)
class ArtifactFound:
    """To the child: the artifact that it asked for."""

    question: int
    """That of the request: who asked it may have ended, or given up, since."""
    path: str
    """Of a file that the child removes when it has read it."""


@dataclass(frozen=True, slots=True)
class ArtifactMissing:
    """To the child: there is no artifact as it asked for."""

    question: int
    message: str


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """To the child: whether the function that reported a number is to give up."""

    question: int
    gives_up: bool


@dataclass(frozen=True, slots=True)
class WorkReady:
    """From the child: the user's function is loaded."""


@dataclass(frozen=True, slots=True)
class WorkUnusable:
    """From the child: the user's function cannot be loaded."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Artifact:
    """From the child: a file that the function of a partition uploaded."""

    index: int
    filename: str
    content: Content


@dataclass(frozen=True, slots=True)
class ArtifactRequest:
    """From the child: the function of a partition wants an artifact of this run or of another."""

    index: int
    question: int
    """A number by chance, which the answer has too."""
    filename: str
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """From the child: a number that the function of a partition has come to at a step."""

    index: int
    question: int
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Idle:
    """From the child: all partitions that it was sent have run."""

    libraries: list[str]
    """Those that it has imported, of what `partwise.engine.libraries` names."""


Message = (
    OpenWork
    | OpenShard
    | RunPartitions
    | ArtifactFound
    | ArtifactMissing
    | ReportAnswer
    | WorkReady
    | WorkUnusable
    | Artifact
    | ArtifactRequest
    | Report
    | Outcome
    | Idle
)

_Make = Callable[[Any], Any]


def _maker(hint: Any) -> _Make | None:
    """Return what makes a value of this type out of msgpack's; None where that is the value."""
    if is_dataclass(hint):
        return _dataclass_maker(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        # To call the class takes fifteen times as long as a look-up.
        return {member.value: member for member in hint}.__getitem__
    arguments = get_args(hint)
    make = _maker(arguments[-1 if get_origin(hint) is dict else 0]) if arguments else None
    if make is None:
        return None
    if isinstance(hint, UnionType):
        return lambda value: None if value is None else make(value)
    if get_origin(hint) is dict:
        return lambda value: {key: make(item) for key, item in value.items()}
    if get_origin(hint) is list:
        return lambda value: [make(item) for item in value]
    raise TypeError(f"No message can hold {hint}: add it to what _maker() knows.")


def _dataclass_maker(kind: Any) -> _Make:
    # Worked out once for each class, as an outcome of every partition comes this way.
    hints = get_type_hints(kind)
    names = _field_names(kind)
    by_keyword = any(field.kw_only for field in fields(kind))
    makers = [
        (place, make)
        for place, name in enumerate(names)
        if (make := _maker(hints[name])) is not None
    ]

    def make_instance(values: list[Any]) -> Any:
        if len(values) != len(names):
            raise ValueError(f"{kind.__name__} has {len(names)} values, not {len(values)}")
        for place, make in makers:
            values[place] = make(values[place])
        return kind(**dict(zip(names, values, strict=True))) if by_keyword else kind(*values)

    return make_instance


def _field_names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


@cache
def _reader(kind: Any) -> Callable[[Any], Sequence[Any]]:
    """Return what gives the values of all fields of a dataclass."""
    names = _field_names(kind)
    # Of a single name it would give the value itself, and no sequence.
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


_MAKERS: dict[str, _Make] = {kind.__name__: _dataclass_maker(kind) for kind in get_args(Message)}


def _plain(value: Any) -> Sequence[Any]:
    """Return the values of a dataclass: msgpack asks for what it does not know."""
    kind: Any = type(value)
    return _reader(kind)(value)


def _new_packer() -> Any:
    # A message may quote what a user's function made of bytes that are not text.
    return msgpack.Packer(  # type: ignore[attr-defined, no-untyped-call]
        default=_plain, unicode_errors="replace"
    )


class Connection:
    """One end of the socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._packer: Any = None
        # Keys of maps may be integers: those of `OpenShard.models` are.
        self._unpacker: Any = msgpack.Unpacker(  # type: ignore[attr-defined, no-untyped-call]
            max_buffer_size=LARGEST_MESSAGE_BYTES, strict_map_key=False
        )
        # select() takes no descriptor above 1,023, and a child's is moved far above; a timeout of
        # the socket would cut off what is being sent as well.
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN | select.POLLHUP)

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            OSError: The other side is gone.
        """
        # A handler of a signal that a user's function has set may come between, and send as well.
        packer, self._packer = self._packer or _new_packer(), None
        data = packer.pack((type(message).__name__, message))
        self._packer = packer
        if len(data) <= UNDIVIDED_BYTES:
            self._socket.sendall(data)
            return
        # Such a handler, called between two pieces of it, could raise: of the message the other
        # side would have the first one, and take what follows for the rest.
        before = pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            self._socket.sendall(data)
        finally:
            pthread_sigmask(signal.SIG_SETMASK, before)

    def receive(self, timeout_s: float | None = None, gather_s: float = 0.0) -> Message | None:
        """Return the next message, or None when none came within `timeout_s`.

        Where none is here yet, it is looked for after `gather_s`, so that many small ones come at
        once: each that finds this process waiting wakes it up, and takes its core.

        Raises:
            EOFError: The other side is gone, and all it sent has been received. Or it sent
                something that is not a message, and nothing can be made of what follows.
        """
        while True:
            try:
                # First what is here already: poll() knows nothing of it, and a read may bring more.
                received = next(self._unpacker, None)
                if received is not None:
                    name, values = received
                    message: Message = _MAKERS[name](values)
                    return message
            except (ValueError, TypeError, KeyError) as error:
                raise EOFError("the other side sent something that is not a message") from error
            if gather_s:
                time.sleep(gather_s)
                gather_s = 0.0
            if not self._poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            try:
                data = self._socket.recv(READ_BYTES)
            except ConnectionError:
                # As when the other side dies before it has read all that it was sent.
                data = b""
            if not data:
                raise EOFError("the other side of the connection is gone")
            self._unpacker.feed(data)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
