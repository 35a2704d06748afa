"""ONNX files: how they are written, and how they are read without trusting what is in them.

A model names the files of its external data, its large weights, and a name may lead anywhere:
onnxruntime 1.31 follows a hard link, and takes relative names from the working directory when a
model comes as bytes. So the names are checked here, and the files are read here: onnxruntime gets
bytes. Only a file that was just written, to be proved, does onnxruntime read itself, since its
weights may be of any size.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from partwise.errors import ExportRefusedError, IntegrityError
from partwise.models.export_options import EMBEDDED_BYTES
from partwise.models.signature import METADATA_KEY, Signature

PRODUCER = "partwise"
LARGEST_BYTES = 8 * 2**30
"""What is read of a model and its weights, together, unless the caller says otherwise."""

SMALL_BYTES = 1024
"""Sizes, axes and the like, which onnxruntime and the checker look into: they stay in the model."""

T = TypeVar("T")
_PROTOBUF_BYTES = 2**31 - 1
_TREES = b"TreeEnsemble"
"""Stands in a model that has nodes of trees, of any version of their operator."""
# So that the file can be mapped into memory by page.
_ALIGNMENT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxContent:
    """An ONNX model that was read from files, and depends on none any more."""

    model: bytes
    """The serialized `onnx.ModelProto`."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files with its external data, by name. Empty: all weights stand in the model."""


def save_onnx(
    model: Any, signature: Signature, file_path: str, embedded_bytes: int = EMBEDDED_BYTES
) -> None:
    """Write an ONNX model with its signature in its metadata; equal models give equal bytes.

    The model, an `onnx.ModelProto`, is changed: its metadata, and weights of more bytes than
    `embedded_bytes` in all leave it one by one for `<file name>.data`, so that they are never in
    memory twice. If some stand there already, no others are moved.

    Raises:
        ExportRefusedError: The model is too large for protobuf even so.
    """
    model.producer_name = PRODUCER
    model.producer_version = ""
    model.ClearField("metadata_props")
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, signature.to_json()
    path = Path(file_path)
    weights = [tensor for tensor in model.graph.initializer if tensor.ByteSize() > SMALL_BYTES]
    is_moved = any(tensor.external_data for tensor in model.graph.initializer)
    if not is_moved and sum(tensor.ByteSize() for tensor in weights) > embedded_bytes:
        with path.with_name(f"{path.name}.data").open("wb") as file:
            for tensor in weights:
                _move_out(tensor, file)
    if (size := model.ByteSize()) > _PROTOBUF_BYTES:
        raise ExportRefusedError(
            f"The model has {size:,} bytes apart from external data; ONNX files "
            f"end at {_PROTOBUF_BYTES:,}. Train a smaller one, or export it in another format."
        )
    # Without this, protobuf leaves the order of maps open, and equal models may give other bytes.
    path.write_bytes(model.SerializeToString(deterministic=True))


def _move_out(tensor: Any, file: IO[bytes]) -> None:
    """Write a tensor's numbers to the file, little-endian, and leave their place in the tensor."""
    import onnx

    if not tensor.HasField("raw_data"):
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    offset = file.tell()
    length = file.write(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    places = {"location": Path(file.name).name, "offset": str(offset), "length": str(length)}
    for key, value in places.items():
        tensor.external_data.add(key=key, value=value)


def read_onnx(file_path: str, largest_bytes: int = LARGEST_BYTES) -> OnnxContent:
    """Read a model and its external data.

    A model names the files of its weights itself. Only a regular file in the model's own folder is
    read, which is not a link of any kind, and only if it holds what the model says of it.

    Raises:
        IntegrityError: A file is too large, is not there, or is none that a model may name.
    """
    model, files = _open_onnx(file_path, largest_bytes, lambda file, size: file.read(size))
    return OnnxContent(model=model, files=files)


def check_embedded(model: bytes, name: str) -> OnnxContent:
    """Return a model of this name that was read already, and came alone.

    Raises:
        IntegrityError: It is too large, or some of its weights should have come with it.
    """
    if len(model) > _PROTOBUF_BYTES:
        raise IntegrityError(
            f"The model {name!r} has {len(model):,} bytes; {_PROTOBUF_BYTES:,} are allowed."
        )
    if b"location" in model and (tensor := next(_external_tensors(model, name), None)) is not None:
        place = _place(tensor, name)
        raise IntegrityError(
            f"The file {place.file_name!r}, which the model {name!r} names for its weights, did "
            "not come with it."
        )
    return OnnxContent(model=model)


def read_graph(file_path: str) -> bytes:
    """Read a model without its external data, which is checked as `read_onnx` checks it.

    Returned is the serialized `onnx.ModelProto`.
    """
    model, _ = _open_onnx(file_path, sys.maxsize, lambda _file, size: size)
    return model


def _open_onnx(
    file_path: str, largest_bytes: int, take: Callable[[IO[bytes], int], T]
) -> tuple[bytes, dict[str, T]]:
    """Return a model, and what a function makes of each file of external data and its size."""
    folder, name = os.path.split(os.path.abspath(file_path))
    largest = min(largest_bytes, _PROTOBUF_BYTES)
    with _opened(Path(folder, name), largest, f"The model {name!r}", os.O_CLOEXEC) as (file, size):
        content = file.read(size)
    sizes: dict[str, int] = {}
    taken: dict[str, T] = {}
    # Every reference has this key, whose bytes stand as they are in a protobuf. Most models have
    # none, and are spared the import of onnx and a second reading.
    if b"location" not in content:
        return content, taken
    left = largest_bytes - len(content)
    for tensor in _external_tensors(content, name):
        place = _place(tensor, name)
        if place.file_name not in sizes:
            what = f"The file {place.file_name!r}, which the model {name!r} names for its weights,"
            external = Path(folder, place.file_name)
            # The model may be a link, since its caller named it; what a model names, nobody chose.
            with _opened(external, left, what, os.O_NOFOLLOW) as (file, size):
                sizes[place.file_name] = size
                taken[place.file_name] = take(file, size)
            left -= size
        size, end = sizes[place.file_name], place.offset + place.length
        if end > size:
            raise IntegrityError(
                f"The file {place.file_name!r} has {size:,} bytes, but the model {name!r} looks in "
                f"it for its tensor {tensor.name!r} up to byte {end:,}: it was cut off or belongs "
                "to another model."
            )
    return content, taken


@dataclass(frozen=True, slots=True)
class _Place:
    file_name: str
    offset: int
    length: int


def _place(tensor: Any, model_name: str) -> _Place:
    """Return where a tensor's numbers are, once the name is known to be that of a neighbour."""
    entries = [(entry.key, entry.value) for entry in tensor.external_data]
    fields = dict(entries)
    where = f"The model {model_name!r} says of its tensor {tensor.name!r}"
    if len(fields) < len(entries):
        raise IntegrityError(f"{where} twice where its numbers are; it was tampered with.")
    location = fields.get("location", "")
    if location != os.path.basename(location) or location in ("", ".", "..") or "\\" in location:
        raise IntegrityError(
            f"{where} that its numbers are in {location!r}; only a file in the model's own "
            "folder is read, named without a folder."
        )
    numbers = fields.get("offset", "0"), fields.get("length", "")
    if not all(text.isascii() and text.isdigit() for text in numbers):
        raise IntegrityError(f"{where} that its numbers are at offset, length {numbers!r}.")
    return _Place(location, int(numbers[0]), int(numbers[1]))


@contextmanager
def _opened(
    path: Path, largest_bytes: int, what: str, flags: int
) -> Iterator[tuple[IO[bytes], int]]:
    """Open a regular file; what is looked at is what was opened, so that nothing can be swapped."""
    try:
        # A pipe would block, and links lead out of the folder.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    except OSError as error:
        raise IntegrityError(f"{what} cannot be opened ({error.strerror}).") from error
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise IntegrityError(f"{what} is not a regular file.")
        if flags & os.O_NOFOLLOW and status.st_nlink != 1:
            raise IntegrityError(
                f"{what} has {status.st_nlink} hard links, and so may be a file of another folder. "
                "Copy the model with its weights to a folder of their own."
            )
        if status.st_size > largest_bytes:
            raise IntegrityError(
                f"{what} has {status.st_size:,} bytes; {max(largest_bytes, 0):,} are allowed."
            )
        with open(opened, "rb", closefd=False) as file:
            yield file, status.st_size
    finally:
        os.close(opened)


def _external_tensors(content: bytes, name: str) -> Iterator[Any]:
    """Yield every tensor whose numbers are elsewhere, wherever in the model it stands."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(content)
    except DecodeError as error:
        raise IntegrityError(f"{name!r} is not an ONNX model ({error}).") from error
    # By what a message has, and not by where tensors are known to stand: attributes, sparse
    # tensors, subgraphs and functions hold them too, and so may what ONNX adds.
    for message in messages_of(model):
        is_tensor = isinstance(message, onnx.TensorProto)
        if is_tensor and message.data_location == onnx.TensorProto.EXTERNAL:
            yield message


def messages_of(message: Any) -> Iterator[Any]:
    """Yield a message of protobuf and all that stand in it; what was cleared of one is left out."""
    from google.protobuf.message import Message

    pending = [message]
    while pending:
        message = pending.pop()
        yield message
        for descriptor, value in message.ListFields():
            if descriptor.message_type is not None:
                pending.extend((value,) if isinstance(value, Message) else value)


def open_session(content: OnnxContent, threads: int = 1) -> Any:
    """Return an `onnxruntime.InferenceSession` of a model that was read, on the CPU."""
    options = _session_options(content.model, threads)
    if content.files:
        names, files = list(content.files), list(content.files.values())
        sizes = [len(file) for file in files]
        options.add_external_initializers_from_files_in_memory(names, files, sizes)
    return _session(content.model, options)


def open_session_in_place(file_path: str, graph: bytes, threads: int = 1) -> Any:
    """Return an `onnxruntime.InferenceSession` of a model that it reads itself, on the CPU.

    `graph` is what `read_graph` returned of the file, when it looked at what the model names.
    """
    return _session(file_path, _session_options(graph, threads))


def _session_options(graph: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if _TREES in graph:
        # There is nothing to optimise or to reuse in trees: without both, the same bits come from
        # a session that is ready in half of the time and takes half of the memory.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: warnings are printed past Python's streams
    return options


def _session(model: bytes | str, options: Any) -> Any:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # each of onnxruntime's status codes is an exception of its own
        reason = str(error).strip().splitlines()[0]
        raise IntegrityError(f"onnxruntime does not load the model: {reason}") from error
