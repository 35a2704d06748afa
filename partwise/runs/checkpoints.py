"""Checkpoints of a run: their names, and the document that makes one count.

    runs/<run_id>/checkpoints/<generation>-<attempt>-<number>-<token>/
        00000, 00001, ...      the files' content, in parts of at most 64 MiB
        checkpoint.json        which parts make which file, with their sha256; created last

A checkpoint without its document does not count, so that a process which is killed in the midst
leaves nothing that does. With signing keys configured, the document ends in a signature: by a key
that is derived for the attempt of the gang, which its ranks get in the place of the keys.
Names are in the order of time: a later generation, a later attempt of it, and in each the number of
the checkpoint. The token makes names of two processes differ.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import PurePosixPath

from partwise.errors import NewerFormatError, RunFormatError
from partwise.formatting import shortened
from partwise.runs.bundle import is_name_below
from partwise.store.signing import SigningKey, check_signed, is_configured, seal
from partwise.store.store import Store
from partwise.store.strict_json import parse_json

CHECKPOINTS = "checkpoints"
"""The folder, in that of the run."""
DOCUMENT = "checkpoint.json"

_FORMAT_VERSION = 2
"""Of documents with links; others are of version 1, as earlier releases wrote and read them."""
_NAME = re.compile(r"\d{4,}-\d{2,}-\d{6,}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Bytes of a file, as an object beside the document."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """A file of a checkpoint: its parts, one behind the other."""

    path: str
    """Relative to the checkpoint's folder, with `/` between its parts."""
    parts: tuple[FilePart, ...] = ()
    link: str = ""
    """Of a link, which has no parts: where in the folder it leads to, relative to where it lies."""
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDocument:
    """`checkpoint.json`: what a checkpoint consists of.

    No pydantic model, since its import would take a third of the time that a rank needs to start.
    """

    step: int
    files: tuple[CheckpointFile, ...]

    def to_bytes(self, purpose: str = "", key: SigningKey | None = None) -> bytes:
        """Return the document as indented JSON.

        `purpose` says where it will lie, for its signature; `key` None: nobody signs it.
        """
        version = _FORMAT_VERSION if any(file.link for file in self.files) else 1
        values = {"format_version": version, **asdict(self)}
        for file in values["files"]:
            # As documents were before these were written: a list of files goes by its checksum.
            for name in ("link", "executable"):
                if not file[name]:
                    del file[name]
        content = json.dumps(values, indent=2).encode() + b"\n"
        return content if key is None else seal(content, purpose, key)

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> "CheckpointDocument":
        """Read a document.

        Raises:
            NewerFormatError: A newer release wrote it.
            RunFormatError: It is damaged, or names a file outside its folder.
        """
        try:
            values = parse_json(content)
            # First: of a newer format, all else may be of another form.
            if (version := values["format_version"]) not in range(1, _FORMAT_VERSION + 1):
                raise NewerFormatError(
                    f"{where} has format version {version!r}, and this release reads up to "
                    f"{_FORMAT_VERSION}; install a newer partwise."
                )
            step = int(values["step"])
            files = tuple(
                CheckpointFile(
                    path=str(file["path"]),
                    parts=tuple(FilePart(**part) for part in file["parts"]),
                    link=str(file.get("link", "")),
                    executable=bool(file.get("executable")),
                )
                for file in values["files"]
            )
        except NewerFormatError:
            raise
        except (ValueError, LookupError, TypeError) as error:
            raise RunFormatError(f"{where} is damaged: {type(error).__name__}: {error}") from error
        links = {file.path for file in files if file.link}
        for file in files:
            above = {str(folder) for folder in PurePosixPath(file.path).parents}
            if not is_name_below(file.path) or above & links or not _stays_in(file):
                raise RunFormatError(
                    f"{where} is damaged: the file {shortened(file.path)!r} is not in its folder"
                )
        return cls(step=step, files=files)


def _stays_in(file: CheckpointFile) -> bool:
    """Whether a link leads into the folder, also where it passes through other links of it."""
    steps = PurePosixPath(file.link).parts
    ups = len(list(takewhile(lambda step: step == "..", steps)))
    # A folder that a link leads to has another one above it.
    inside = not file.link.startswith("/") and ".." not in steps[ups:]
    return inside and ups <= file.path.count("/")


def signing_scope(root: str, generation: int, attempt: int) -> str:
    """Return the scope of the key that signs the checkpoints of one attempt of a gang."""
    return f"{root}/{generation:04d}-{attempt:02d}"


def check_checkpoint(store: Store, root: str, name: str) -> str:
    """Refuse a checkpoint that no key of this process signed, where keys are configured.

    Returns:
        The sha256 of its document, by which ranks, who have no keys, know that it is the one that
        was looked at; "": no keys are configured.

    Raises:
        SignatureError: It is unsigned, was altered, or belongs elsewhere.
        FileNotFoundError: It was removed meanwhile.
    """
    if not is_configured(store):
        return ""
    path = f"{root}/{name}/{DOCUMENT}"
    content = store.read_document(path)
    generation, attempt, _ = checkpoint_order(name)
    # For its place, and by the key of its attempt: one that was signed for another does not count.
    check_signed(content, path, path, store, signing_scope(root, generation, attempt))
    return hashlib.sha256(content).hexdigest()


def complete_checkpoints(store: Store, root: str) -> list[str]:
    """Return the names of the checkpoints that count, in the order of time."""
    paths = (path.removeprefix(f"{root}/").split("/") for path in store.list(f"{root}/"))
    names = (parts[0] for parts in paths if parts[1:] == [DOCUMENT])
    # By numbers: as text, attempt 100 would stand before attempt 99.
    return sorted((name for name in names if _NAME.fullmatch(name)), key=checkpoint_order)


def checkpoint_folders(store: Store, root: str) -> Iterator[str]:
    """Yield the names of all checkpoints, also of those that do not count."""
    return (name for name in store.list_folder(root) if _NAME.fullmatch(name))


def checkpoint_order(name: str) -> tuple[int, int, int]:
    """Return generation, attempt and number of a checkpoint, by its name."""
    generation, attempt, number, _ = name.split("-")
    return int(generation), int(attempt), int(number)
