"""Things of which a store keeps versions: each a document by number, created once, never changed.

    <folder>/<documents>/0003.json   a version
    <folder>/<documents>/0003.gone   it was removed, and its number is never given again

Datasets and catalogs are such things.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from partwise.errors import (
    InputError,
    IntegrityError,
    NewerFormatError,
    RunFormatError,
    SignatureError,
)
from partwise.formatting import nearest, shortened, some_of_those_there
from partwise.store.seen import Seen, check_not_older, recall, remember
from partwise.store.signing import check_signed
from partwise.store.store import Store

_DOCUMENT = re.compile(r"(\d{4,})\.json")
_GONE = re.compile(r"(\d{4,})\.gone")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REFERENCE = re.compile(r"([^@]*)(?:@([1-9][0-9]{0,8}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions of one thing, such as a dataset."""

    store: Store
    folder: str
    """Of the thing, relative to the store."""
    documents: str
    """The folder of the documents within it."""
    noun: str
    """What it is, for people."""
    made_by: str
    """The command and the function that make the first version, for people."""

    def path(self, number: int) -> str:
        """Return where the document of a version lies, relative to the store."""
        return f"{self.folder}/{self.documents}/{number:04d}.json"

    def _gone_path(self, number: int) -> str:
        return self.path(number).removesuffix("json") + "gone"

    def there(self) -> list[int]:
        """Return the numbers of the versions, ascending."""
        there, gone = self._numbers()
        return sorted(there - gone)

    def removed(self) -> list[int]:
        """Return the numbers of those that were removed, ascending."""
        there, gone = self._numbers()
        return sorted(there & gone)

    def _numbers(self) -> tuple[set[int], set[int]]:
        names = self.store.list_folder(f"{self.folder}/{self.documents}")
        return _matching(_DOCUMENT, names), _matching(_GONE, names)

    def read(self, number: int | None) -> tuple[int, bytes]:
        """Return the number and the document of a version; None: of the newest.

        Raises:
            FileNotFoundError: It is not there.
            SignatureError: Keys are configured, and none of them signed it; or the newest is older
                than one that was seen before.
        """
        # Before the store is asked: what others commit between the two is newer then, not missing.
        seen = recall(self.store, self.folder)
        if number is None:
            number = max(self.there(), default=0)
            if number:
                check_not_older(seen, Seen(number=number), self.store, self.folder)
        path = self.path(number)
        content = self.store.read_document(path)
        check_signed(content, path, path, self.store)
        return number, content

    def remember(self, number: int) -> None:
        """Keep that a version was seen, once all of its document was verified."""
        remember(self.store, self.folder, Seen(number=number))

    def missing(self) -> list[int]:
        """Return the numbers below the newest that are neither there nor removed, ascending."""
        there, gone = self._numbers()
        return sorted(set(range(1, max(there - gone, default=0))) - there - gone)

    def is_removed(self, number: int) -> bool:
        """Whether a version was removed."""
        return self.store.exists(self._gone_path(number))

    def remove(self, number: int) -> None:
        """Note that a version is removed; to do so twice changes nothing.

        The document stays. The mark is not signed: who can write it could delete that as well.
        """
        self.store.write(self._gone_path(number), b"removed\n")

    def why_not_found(self, number: int | None) -> str:
        """Return a sentence that names versions, or things like this one, that are there."""
        root, _, name = self.folder.rpartition("/")
        versions = self.there()
        if versions:
            shown = ", ".join(map(str, versions[-5:]))
            more = " and older ones" if len(versions) > 5 else ""
            where = f"The {self.noun} {name!r} in {self.store.url}"
            return f"{where} has no version {number}; it has {shown}{more}."
        names = [name for name in self.store.list_folder(root) if is_name(name)]
        known = some_of_those_there(nearest(name, names) or names[-3:])
        made = "" if names else f"; {self.made_by} makes one"
        return f"There is no {self.noun} {name!r} in {self.store.url}{known}{made}."


@dataclass(slots=True, kw_only=True)
class VersionsVerification:
    """What was looked at of something with versions, and a sentence for each damage."""

    name: str
    files: int = 0
    size_bytes: int = 0
    damages: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Have what cannot be read be a damage, but for what a newer release wrote."""
        try:
            yield
        except NewerFormatError:
            raise
        except (RunFormatError, SignatureError, IntegrityError) as error:
            self.damages.append(" ".join(str(error).split()))


def _matching(pattern: re.Pattern[str], names: Iterable[str]) -> set[int]:
    return {int(match[1]) for match in map(pattern.fullmatch, names) if match and int(match[1])}


def is_name(name: object) -> bool:
    """Whether a name can be that of something with versions: safe on every store, without dots."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, noun: str) -> str:
    """Return a name when it can be that of something with versions, else raise an InputError."""
    if not is_name(name):
        raise InputError(
            f"The {noun} name {shortened(repr(name), 80)} is not a safe name; use 1 to 64 letters, "
            "digits, '-' and '_', beginning with a letter or digit."
        )
    return name


def parse_reference(text: str, noun: str) -> tuple[str, int | None]:
    """Return the name, and the version if there is one, of NAME, NAME@VERSION or <noun>://....

    Raises:
        InputError: It is not of this form.

    Example:
        >>> parse_reference("dataset://sales@3", "dataset"), parse_reference("sales", "catalog")
        (('sales', 3), ('sales', None))
    """
    scheme = f"{noun}://"
    match = _REFERENCE.fullmatch(text.removeprefix(scheme))
    if match is None:
        raise InputError(
            f"{text[:80]!r} names no {noun}: write {scheme}NAME@VERSION, such as "
            f"{scheme}sales@3, or {scheme}NAME for the newest."
        )
    return check_name(match[1], noun), int(match[2]) if match[2] else None
