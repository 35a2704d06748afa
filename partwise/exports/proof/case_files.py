"""Cases and expectations between processes: arrays in a file, where each stands as JSON.

The arrays stand one after another at multiples of 64 bytes, text as a JSON list. Reading a file
runs no code.
"""

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, BinaryIO

import numpy as np

from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.proof.verdict import Case, Expectation, MetricGate
from partwise.exports.protocol import Tolerance
from partwise.models.guards import Guard
from partwise.models.signature import Signature

_ALIGNMENT = 64
_NUMBERS = "biuf"


class ArrayWriter:
    """Writes arrays to a file, and says where each stands."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0

    def add(self, array: np.ndarray) -> dict[str, Any]:
        """Write an array and return its place.

        Raises:
            TypeError: It is neither numbers nor text.
        """
        array = np.asarray(array)
        if array.dtype.kind in "OU":
            dtype, content = "text", memoryview(json.dumps(array.ravel().tolist()).encode())
        elif array.dtype.kind in _NUMBERS:
            dtype = array.dtype.str
            # A view of bytes, since there is no cast of an array without elements.
            flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            content = memoryview(flat)
        else:
            raise TypeError(f"an array of {array.dtype} cannot be compared")
        offset = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._file.write(bytes(offset - self._end))
        self._file.write(content)
        self._end = offset + content.nbytes
        return {"dtype": dtype, "shape": array.shape, "offset": offset, "bytes": content.nbytes}

    def add_all(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Write arrays and return their places by name."""
        return {name: self.add(array) for name, array in arrays.items()}


class ArrayReader:
    """Reads arrays by their places. Changing one changes nothing in the file."""

    def __init__(self, file_path: str) -> None:
        with open(file_path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._content: mmap.mmap | bytes = (
                mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b""
            )

    def get(self, place: Mapping[str, Any]) -> np.ndarray:
        """Return the array at a place."""
        offset, n_bytes, shape = place["offset"], place["bytes"], tuple(place["shape"])
        if place["dtype"] == "text":
            texts = json.loads(self._content[offset : offset + n_bytes])
            return np.array(texts, dtype=object).reshape(shape)
        dtype = np.dtype(place["dtype"])
        if dtype.kind not in _NUMBERS:
            raise TypeError(f"an array of {dtype} cannot be read")
        if not n_bytes:
            return np.empty(shape, dtype)
        found = np.frombuffer(self._content, dtype, n_bytes // dtype.itemsize, offset)
        return found.reshape(shape)

    def get_all(self, places: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the arrays at places, by name."""
        return {name: self.get(place) for name, place in places.items()}


def write_request(
    writer: ArrayWriter, file_path: str, expectation: Expectation, cases: Sequence[Case]
) -> dict[str, Any]:
    """Return what is asked of a judge as plain values, and write its arrays."""
    gate = expectation.gate
    return {
        "file_path": file_path,
        "format": expectation.format,
        "signature": expectation.signature.to_json(),
        "tolerance": asdict(expectation.tolerance),
        "opset": expectation.opset,
        "is_constant": expectation.is_constant,
        "trees": expectation.trees and _write_trees(writer, expectation.trees),
        "serde": expectation.serde,
        "gate": gate
        and {
            **asdict(gate),
            "labels": None if gate.labels is None else writer.add(gate.labels),
        },
        "cases": [
            {
                "name": case.name,
                "kind": case.kind,
                "raises": case.raises,
                "guards": [asdict(guard) for guard in case.guards],
                "feeds": writer.add_all(case.feeds),
                "expected": writer.add_all(case.expected),
            }
            for case in cases
        ],
    }


def read_request(
    request: Mapping[str, Any], reader: ArrayReader
) -> tuple[str, Expectation, list[Case]]:
    """Return the file's path, what it has to be, and the cases of a request."""
    gate, labels = request["gate"], request["gate"] and request["gate"]["labels"]
    expectation = Expectation(
        format=request["format"],
        signature=Signature.model_validate_json(request["signature"]),
        tolerance=Tolerance(**request["tolerance"]),
        opset=request["opset"],
        is_constant=request["is_constant"],
        trees=request["trees"] and _read_trees(request["trees"], reader),
        serde=request["serde"],
        gate=gate and MetricGate(**{**gate, "labels": labels and reader.get(labels)}),
    )
    cases = [
        Case(
            name=case["name"],
            kind=case["kind"],
            raises=case["raises"],
            guards=tuple(Guard(**guard) for guard in case["guards"]),
            feeds=reader.get_all(case["feeds"]),
            expected=reader.get_all(case["expected"]),
        )
        for case in request["cases"]
    ]
    return request["file_path"], expectation, cases


def _write_trees(writer: ArrayWriter, trees: TreeEnsemble) -> dict[str, Any]:
    values = {field.name: getattr(trees, field.name) for field in fields(trees)}
    sets = values.pop("sets")
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    # One array for all sets, as there may be thousands.
    arrays["set_sizes"] = np.array([len(members) for members in sets], np.int64)
    arrays["set_members"] = np.concatenate([np.empty(0, np.int64), *sets]).astype(np.int64)
    plain = {name: value for name, value in values.items() if name not in arrays}
    return {"plain": plain, "arrays": writer.add_all(arrays)}


def _read_trees(places: Mapping[str, Any], reader: ArrayReader) -> TreeEnsemble:
    arrays: dict[str, Any] = {**reader.get_all(places["arrays"])}
    ends = np.cumsum(arrays.pop("set_sizes"))
    sets = np.split(arrays.pop("set_members"), ends)[: len(ends)]
    return TreeEnsemble(**places["plain"], **arrays, sets=sets)
