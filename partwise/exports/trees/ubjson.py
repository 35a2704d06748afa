"""Universal Binary JSON as XGBoost writes it, numbers in arrays of numpy.

`Booster.save_raw("ubj")` and this take a quarter of the time of JSON, and give float32 numbers as
they are.

Source: https://ubjson.org, and `UBJReader` in XGBoost's src/common/json.cc: all numbers are
big-endian, and a length or a count is itself a number with its type before it.
"""

import struct
from typing import Any

import numpy as np

_FORMATS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_NUMBERS = {kind: struct.Struct(form) for kind, form in _FORMATS.items()}
_DTYPES = {kind: np.dtype(form) for kind, form in _FORMATS.items()}
_CONSTANTS = {"Z": None, "T": True, "F": False}


def read_ubjson(content: bytes) -> Any:
    """Return what a document holds: dicts, lists, strings, numbers, and arrays of numbers.

    Arrays are views of the content, and big-endian.

    Raises:
        ValueError: A type is none that XGBoost writes.
    """
    return _Reader(content).value()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def value(self) -> Any:
        return self._of_kind(self._character())

    def _of_kind(self, kind: str) -> Any:
        if kind in _NUMBERS:
            return self._number(kind)
        if kind == "S":
            return self._text()
        if kind == "{":
            return self._mapping()
        if kind == "[":
            return self._list()
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        raise ValueError(f"The type {kind!r} at {self._place - 1} is none of UBJSON's here.")

    def _character(self) -> str:
        self._place += 1
        return chr(self._content[self._place - 1])

    def _number(self, kind: str) -> Any:
        form = _NUMBERS[kind]
        (number,) = form.unpack_from(self._content, self._place)
        self._place += form.size
        return number

    def _length(self) -> int:
        return int(self._number(self._character()))

    def _text(self) -> str:
        end = self._length() + self._place
        text = self._content[self._place : end].decode()
        self._place = end
        return text

    def _mapping(self) -> dict[str, Any]:
        found = {}
        # A name has no "S" before it.
        while self._content[self._place] != ord("}"):
            name = self._text()
            found[name] = self.value()
        self._place += 1
        return found

    def _list(self) -> Any:
        kind = ""
        if self._content[self._place] == ord("$"):
            kind = chr(self._content[self._place + 1])
            self._place += 2
        if self._content[self._place] != ord("#"):
            found = []
            while self._content[self._place] != ord("]"):
                found.append(self.value())
            self._place += 1
            return found
        self._place += 1
        count = self._length()
        if not kind:
            return [self.value() for _ in range(count)]
        dtype = _DTYPES[kind]
        numbers = np.frombuffer(self._content, dtype, count, self._place)
        self._place += count * dtype.itemsize
        return numbers
