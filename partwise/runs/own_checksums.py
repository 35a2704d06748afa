"""Parquet files that hold a checksum of all their bytes, and stay Parquet for any other reader.

It stands in the file's metadata, and is of the file with `NO_CHECKSUM` in its place.
"""

import hashlib
import io
import re

from partwise.errors import RunFormatError

CHECKSUM = b"partwise.sha256"
NO_CHECKSUM = b"checksum-of-this-file".ljust(64, b".")
# Thrift puts the type and the length of the value between a key and its value.
_PLACE = re.compile(CHECKSUM + rb".{1,4}?([0-9a-f]{64})", re.DOTALL)


def fill_checksum(file: io.BytesIO) -> None:
    """Put the checksum of a file where its metadata have `NO_CHECKSUM` as `CHECKSUM`."""
    # In the place of as many other bytes, so that no offset changes. The metadata come last, so
    # that no value of a column is taken for it.
    place = file.getvalue().rfind(NO_CHECKSUM)
    with file.getbuffer() as content:
        content[place : place + 64] = hashlib.sha256(content).hexdigest().encode()


def check_own_checksum(content: bytes, where: str) -> bool:
    """Compare a file with the checksum that it holds; False: it holds none.

    Raises:
        RunFormatError: They differ.
    """
    # A Parquet file ends in the length of its metadata, four bytes, and "PAR1":
    # https://parquet.apache.org/docs/file-format/
    footer = max(0, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
    places = list(_PLACE.finditer(content, footer))
    if not places:
        return False
    start, end = places[-1].span(1)
    digest = hashlib.sha256(content[:start])
    digest.update(NO_CHECKSUM)
    digest.update(memoryview(content)[end:])
    if digest.hexdigest().encode() != places[-1][1]:
        raise RunFormatError(f"{where} is damaged: it differs from the checksum that it holds.")
    return True
