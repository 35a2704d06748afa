"""Bundles: one zip per segment with the artifacts of its partitions.

An entry is named `<partition id>/<file name>`. Any zip tool opens a bundle; partwise itself goes by
the offset and sizes in the ledger, so that one model is one ranged read.
"""

import hashlib
import io
import json
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isal import isal_zlib

from partwise.errors import InputError, IntegrityError, RunFormatError
from partwise.models.serdes.protocol import ModelSerde, reads_streams

TEXT_SUFFIXES = (".txt", ".md", ".csv", ".html", ".log", ".yaml")
"""How names of artifacts end that are text."""

LOG_FILENAME = "log.txt"
"""The artifact that holds what a partition wrote."""

REPORTED_FILE = "reported.json"
"""The artifact with what a rank reported that is no number."""

EVAL_RESULTS = "eval_results"
"""Its name for what a boosted model of all ranks was measured in each round, as columns."""

CATEGORIES_FILENAME = "partwise-categories.arrow"
"""The artifact that holds the categories of the rows that a model was trained on."""

SKETCH_FILENAME = "partwise-sketch.bin"
"""The artifact that says what the rows that a model was trained on were like."""

EXTERNAL_DATA_SUFFIX = ".data"
"""What follows an ONNX file's name in that of the file with its external data: large weights."""

COMPRESS_FROM_BYTES = 256
PROBE_BYTES = 4096
_LEVEL, _RAW = 1, -15
"""How ISA-L deflates, and the window of deflated bytes without a header, as zips have them."""
WORTHWHILE = 0.8
MOST_INFLATED = 1032
"""Bytes that one deflated byte can stand for: https://zlib.net/zlib_tech.html."""

GAP_BYTES = 1 << 20
"""Artifacts of one bundle that lie closer than this are read in one request."""

_BUNDLE = re.compile(r"bundles/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_LONGEST_PART, _LONGEST_NAME = 255, 900  # bytes, which every file system takes


def is_name_below(name: object) -> bool:
    """Whether a name stays below the folder that it is joined to: it is relative, without `..`."""
    if not isinstance(name, str) or "\0" in name:
        return False
    parts = [os.fsencode(part) for part in name.split("/")]
    if any(part in (b"", b".", b"..") or len(part) > _LONGEST_PART for part in parts):
        return False
    return sum(map(len, parts)) + len(parts) <= _LONGEST_NAME


def is_bundle(name: object) -> bool:
    """Whether a name can be that of a bundle, relative to the run."""
    return isinstance(name, str) and _BUNDLE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArtifact:
    """An artifact as the ledger describes it.

    Raises:
        RunFormatError: A field is none that partwise writes. Whoever may write to a store may write
            anything into a ledger; a name that leads elsewhere would have us overwrite a file of
            the reader's.
    """

    filename: str
    bundle: str
    """Path of the bundle below the run's folder."""
    offset: int
    """Where the stored bytes begin in the bundle."""
    size_bytes: int
    stored_bytes: int
    compression: Literal["stored", "deflate"]
    sha256: str
    """Of the content, uncompressed."""
    serde: str
    """The name of the serde that wrote it; empty for what is not a model."""

    def __post_init__(self) -> None:
        if not is_name_below(self.filename):
            raise _foreign("the file name", self.filename)
        if not is_bundle(self.bundle):
            raise _foreign("the bundle", self.bundle)
        if self.compression not in ("stored", "deflate"):
            raise _foreign("the compression", self.compression)
        for text in (self.serde, self.sha256):
            if not isinstance(text, str):
                raise _foreign("the serde or sha256", text)
        for number in (self.offset, self.size_bytes, self.stored_bytes):
            if type(number) is not int or number < 0:
                raise _foreign("the place or size", number)


def _foreign(what: str, value: object) -> RunFormatError:
    return RunFormatError(
        f"A ledger gives {what} {str(value)[:80]!r} for an artifact, which partwise never writes; "
        "it was damaged, or made by somebody else. Nothing was read."
    )


class _Zip(zipfile.ZipFile):
    """A zip in memory, of which nothing is to be finished when it is given up."""

    def __del__(self) -> None:
        pass

    def add(self, entry: zipfile.ZipInfo, stored: bytes, content: bytes) -> int:
        """Add content as the bytes that it is stored as; return where these begin.

        What `writestr` does, but for deflating, which ISA-L does in a fifth of the time of zlib.
        """
        entry.CRC, entry.file_size = isal_zlib.crc32(content), len(content)
        entry.compress_size, entry.header_offset = len(stored), self.start_dir
        buffer: Any = self.fp
        buffer.write(entry.FileHeader())
        offset: int = buffer.tell()
        buffer.write(stored)
        self.filelist.append(entry)
        self.NameToInfo[entry.filename] = entry
        self.start_dir = buffer.tell()
        self._didModify = True
        return offset


class BundleWriter:
    """Collects artifacts in memory; `close` gives the zip's bytes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._buffer = io.BytesIO()
        self._zip: _Zip | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes collected so far."""
        return self._buffer.tell()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return self._zip is None

    def add(self, partition_id: str, filename: str, content: bytes, serde: str) -> StoredArtifact:
        """Add one artifact, deflated where that is worth it."""
        if self._zip is None:
            self._zip = _Zip(self._buffer, "w")
        entry = zipfile.ZipInfo(f"{partition_id}/{filename}", date_time=(1980, 1, 1, 0, 0, 0))
        entry.external_attr = 0o644 << 16
        deflated = _deflated(content)
        stored = content if deflated is None else deflated
        if deflated is not None:
            entry.compress_type = zipfile.ZIP_DEFLATED
        return StoredArtifact(
            filename=filename,
            bundle=self.path,
            offset=self._zip.add(entry, stored, content),
            size_bytes=len(content),
            stored_bytes=len(stored),
            compression="stored" if deflated is None else "deflate",
            sha256=hashlib.sha256(content).hexdigest(),
            serde=serde,
        )

    def close(self) -> bytes:
        """Finish the zip and return its bytes."""
        if self._zip is not None:
            self._zip.close()
        return self._buffer.getvalue()


def _deflated(content: bytes) -> bytes | None:
    """Return content deflated; None where its beginning says that it is not worth it."""
    if len(content) < COMPRESS_FROM_BYTES:
        return None
    probe = content[:PROBE_BYTES]
    deflated: bytes = isal_zlib.compress(probe, _LEVEL, _RAW)
    if len(deflated) >= WORTHWHILE * len(probe):
        return None
    return deflated if len(probe) == len(content) else isal_zlib.compress(content, _LEVEL, _RAW)


def decode(stored: bytes, artifact: StoredArtifact, where: str) -> bytes:
    """Return an artifact's content from its stored bytes, checked against its sha256.

    `stored` begins at `artifact.offset` of its bundle; `where` names run and partition in the
    error.

    Raises:
        IntegrityError: The bytes are not those that were committed.
    """
    content = stored
    if artifact.compression == "deflate":
        # A few bytes may stand for gigabytes: no more is made of them than the ledger says, and
        # nothing at all where no deflated bytes could become so many.
        if artifact.size_bytes > len(stored) * MOST_INFLATED:
            raise _damaged(artifact, where)
        inflater = zlib.decompressobj(_RAW)
        try:
            content = inflater.decompress(stored, artifact.size_bytes + 1)
        except zlib.error as error:
            raise _damaged(artifact, where) from error
        if not inflater.eof or inflater.unused_data:
            raise _damaged(artifact, where)
    # A bundle bears no signature: this binds it, in a ledger whose checksum stands in the summary,
    # which can be signed.
    if (
        len(content) != artifact.size_bytes
        or hashlib.sha256(content).hexdigest() != artifact.sha256
    ):
        raise _damaged(artifact, where)
    return content


def _damaged(artifact: StoredArtifact, where: str) -> IntegrityError:
    return IntegrityError(
        f"The artifact {artifact.filename!r} of {where} differs from its checksum in "
        f"{artifact.bundle}, which was changed or damaged; restore that object, or delete it and "
        "resume the run to make its partitions again."
    )


def local_content(path: str, offset: int, artifact: StoredArtifact) -> bytes:
    """Return an artifact's content, whose stored bytes begin at `offset` of a local file.

    Raises:
        IntegrityError: The bytes are not those that were committed.
    """
    # As the store reads: a link could have us read any file of this machine.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _damaged(artifact, "the trained model") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or offset + artifact.stored_bytes > about.st_size:
            raise _damaged(artifact, "the trained model")
        file.seek(offset)
        stored = file.read(artifact.stored_bytes)
    return decode(stored, artifact, "the trained model")


def plain_content(content: bytes, filename: str) -> Any:
    """Return what the content of an artifact stands for by its name: text, what JSON holds, bytes.

    Raises:
        InputError: It is not what the name says.
    """
    try:
        if filename.endswith(".json"):
            return json.loads(content)
        if filename.endswith(TEXT_SUFFIXES):
            # A log may hold anything.
            return content.decode(errors="replace" if filename == LOG_FILENAME else "strict")
    except (ValueError, RecursionError) as error:
        kind = "JSON" if filename.endswith(".json") else "text in UTF-8"
        raise InputError(
            f"The artifact {filename!r} is not {kind}, as its name says: pass read=, a function of "
            "its path, such as lambda path: Path(path).read_bytes()."
        ) from error
    return content


@contextmanager
def content_file(
    content: bytes, filename: str, beside: Mapping[str, bytes] | None = None
) -> Iterator[str]:
    """Give the path of a temporary file of this name and content, with others in its folder.

    Raises:
        RunFormatError: The name leads out of the temporary folder.
    """
    if not is_name_below(filename):
        raise _foreign("the file name", filename)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, filename)
        # A file of the model directory of a gang may stand in a folder of its own.
        path.parent.mkdir(parents=True, exist_ok=True)
        write_new_file(path, content)
        for name, other in (beside or {}).items():
            write_new_file(path.with_name(Path(name).name), other)
        yield str(path)


def read_model(
    serde: ModelSerde, content: bytes, filename: str, beside: Mapping[str, bytes] | None = None
) -> Any:
    """Return the model of an artifact's content, by a temporary file only where its serde needs it.

    `beside` has what its own file names, such as the weights of an ONNX model.

    Raises:
        RunFormatError: A name leads out of the temporary folder.
    """
    if not beside and reads_streams(serde) and is_name_below(filename):
        return serde.read_stream(_NamedBytes(content, filename))
    with content_file(content, filename, beside) as path:
        return serde.read(path)


class _NamedBytes(io.BytesIO):
    """Content as an open file of this name."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, and follow no link.

    Raises:
        FileExistsError: There is something of this name.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def artifact_from_row(row: dict[str, Any]) -> StoredArtifact:
    """Return the artifact that a struct of the ledger's `artifacts` column describes."""
    return StoredArtifact(**row)


def files_of_model(artifacts: Sequence[StoredArtifact]) -> list[StoredArtifact]:
    """Return a partition's model, then the external data of one of ONNX; empty: it has none."""
    for model in artifacts:
        if model.serde:
            data = f"{model.filename}{EXTERNAL_DATA_SUFFIX}"
            return [model, *(each for each in artifacts if each.filename == data)]
    return []


def neighbours(artifacts: Sequence[StoredArtifact], most_bytes: int) -> list[tuple[int, int]]:
    """Divide artifacts, sorted by bundle and offset, into spans that are read at once.

    A span is one of them, or several that lie near to each other in one bundle and have no more
    bytes than that.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(artifacts) + 1):
        if i < len(artifacts):
            first, before, here = artifacts[start], artifacts[i - 1], artifacts[i]
            end = before.offset + before.stored_bytes
            if (
                here.bundle == first.bundle
                and here.offset - end <= GAP_BYTES
                and here.offset + here.stored_bytes - first.offset <= most_bytes
            ):
                continue
        spans.append((start, i))
        start = i
    return spans if artifacts else []
