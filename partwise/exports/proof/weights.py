"""Weights: whether the initializers of an ONNX file are the tensors of the model, bit by bit.

Cases touch few rows of a table of embeddings, so a proof by cases says nothing of the others. Here
every number of the file is looked up in the model. Call it where the model is loaded:

    found = prove_weights("model.onnx", {name: tensor.numpy() for name, tensor in weights})
    verdict = found.added_to(verdict)

An initializer may be a tensor of the model as it is, in another shape, with its axes in another
order, or cast (`cast`); an equal part of one along its first axis, such as one of the three
matrices in one of an attention; or such parts packed, as ONNX has the gates of LSTM and GRU in
another order. Which part stands where is seen by the cases, of which each touches all of them.

What a converter computed beforehand, such as a BatchNorm folded into a convolution, is none of
these: it is counted and named in a note, and only the cases speak for it. But where some numbers of
an initializer are those of a tensor that is nowhere else in the file, it is that tensor, altered,
which is a finding.

Memory: arrays are views of the model, and of the file where it has external data, which is mapped;
besides there is a copy of the largest tensor at most. Time: two passes over each, some seconds for
a GB.
"""

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from partwise.exports.onnx.node_order import inner_graphs, nodes_of
from partwise.exports.proof.verdict import Finding, Verdict
from partwise.models.guards import NODE_PREFIX
from partwise.models.onnx_files import read_graph
from partwise.tables.column_names import names_in_words

_PARTS = (2, 3, 4)
"""Attention keeps three matrices in one; GRU has three gates, LSTM four; a bias is two or more."""

_MOST_AXES = 5
_LEAST_ALIKE = 0.01
"""Of the numbers of an initializer, so many in common with a tensor show where it comes from."""

_HALF_BYTES = 2
_LEAST_ALIKE_HALF = 0.5
"""The same in half precision, where numbers are equal by chance."""

_LEAST_ALIKE_WHOLE = 0.9
"""The same of whole numbers and bools, of which there are few different ones."""

_NEARLY = 8
"""Or all of them within so many units in the last place."""

_SAMPLE = 4096
"""Numbers that are looked at first."""

_LEAST_PACKED = 0.5

_SMALLEST_PART = 2
_MOST_PIECES = 64
_LONGEST_CONSTANT = 64
"""Whole numbers of no more elements are sizes and axes, which the converter wrote."""

_CHUNK_BYTES = 64 << 20
_MOST_NAMED = 5


def prove_weights(
    file_path: str,
    tensors: Mapping[str, np.ndarray],
    cast: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Verdict:
    """Compare the initializers of an ONNX file with the tensors of its model.

    `tensors` are all parameters and buffers of the model; views will do, of any shape and numeric
    dtype. `cast` is what the export did to numbers on purpose, such as `lambda x:
    x.astype(np.float16)`; an initializer may be a tensor before or after it.

    Returns:
        export_weights: initializers that hold weights. export_weights_proved: those of them that
        are tensors of the model. export_weight_values, export_weight_values_proved: their numbers.
        Notes name those that are none, and the tensors that stand nowhere in the file.

    Raises:
        IntegrityError: The file names external data that it may not.
    """
    known = {name: np.asarray(values) for name, values in tensors.items() if values.size}
    if cast is not None:
        for name, values in tensors.items():
            if values.dtype.kind == "f":
                known[f"{name} (cast)"] = cast(values)
    index = _Index(known)
    held: set[str] = set()
    unproved: list[tuple[str, np.ndarray]] = []
    single: list[tuple[str, np.ndarray]] = []
    counts = {"weights": 0, "weights_proved": 0, "weight_values": 0, "weight_values_proved": 0}
    for name, values in initializers(file_path):
        found = index.find(values)
        if not found and not _is_weight(values):
            single += [(name, values)] if values.size == 1 else []
            continue
        counts["weights"] += 1
        counts["weight_values"] += values.size
        if not found:
            unproved.append((name, values))
            continue
        held |= found
        counts["weights_proved"] += 1
        counts["weight_values_proved"] += values.size
    elsewhere = [n for n in tensors if n in known and not held & {n, f"{n} (cast)"}]
    findings = []
    # One number may be the converter's own, or a bias that is missing elsewhere.
    missing = {name: values for name, values in known.items() if name not in held}
    for name, values in [*unproved, *single]:
        among = missing if values.size == 1 else known
        if text := _altered(values, among, index, elsewhere):
            message = f"The file's weights {name!r} are not the model's: {text}."
            findings.append(Finding(check="weights", message=message, output=""))
    notes = []
    if folded := [name for name, _ in unproved]:
        notes.append(
            f"{len(folded)} of {counts['weights']} initializers are not tensors of the model as it "
            f"has them, and proved by the cases alone: {_listed(folded)}."
        )
    if elsewhere and folded:
        notes.append(f"Tensors of the model that the file has not as such: {_listed(elsewhere)}.")
    metrics = {f"export_{name}": float(count) for name, count in counts.items()}
    return Verdict(findings=tuple(findings), metrics=metrics, notes=tuple(notes))


def initializers(file_path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the numeric constants of an ONNX file by name, large ones as maps of its external data.

    Raises:
        IntegrityError: It names external data that it may not.
    """
    import onnx

    model: Any = onnx.load_model_from_string(read_graph(file_path))
    folder = Path(file_path).parent
    nodes = list(nodes_of(model.graph))
    for graph in (model.graph, *(inner for node in nodes for inner in inner_graphs(node))):
        for tensor in graph.initializer:
            yield from _array(tensor, folder)
    for node in [*nodes, *(n for f in model.functions for n in f.node)]:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    # The tensor of a constant has no name of its own.
                    attribute.t.name = node.output[0]
                    yield from _array(attribute.t, folder)


def _array(tensor: Any, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    import onnx

    # The limits of our guards are none of the model's numbers.
    if tensor.data_type == onnx.TensorProto.STRING or tensor.name.startswith(NODE_PREFIX):
        return
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        yield tensor.name, onnx.numpy_helper.to_array(tensor)
        return
    place = {entry.key: entry.value for entry in tensor.external_data}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    if not int(np.prod(shape)):
        yield tensor.name, np.zeros(shape, dtype)
        return
    offset = int(place.get("offset", 0))
    yield tensor.name, np.memmap(folder / place["location"], dtype, "r", offset, shape)


def _is_weight(values: np.ndarray) -> bool:
    """Whether an initializer that is not a tensor counts: a converter writes some for itself."""
    if values.dtype.kind in "iub":
        return values.size > _LONGEST_CONSTANT
    return values.size > 1 and not _is_one_value(values)


def _is_one_value(values: np.ndarray) -> bool:
    bits = _bits(values).reshape(-1)
    return bool(np.all(bits == bits[0]))


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the same numbers as whole ones of their bits, so that NaN and -0.0 count."""
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


Key = tuple[str, int, int, int]


def _key(values: np.ndarray) -> Key:
    """Return what is the same for all orders of an array's numbers, and seldom for others."""
    total, mixed = 0, 0
    for piece in _pieces(_bits(values)):
        total += int(np.sum(piece, dtype=np.uint64))
        mixed ^= int(np.bitwise_xor.reduce(piece, axis=None)) if piece.size else 0
    return values.dtype.str, values.size, total % 2**64, mixed


def _pieces(bits: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array in parts, of which a mapped one keeps none in memory."""
    if not bits.flags.c_contiguous:
        yield bits
        return
    flat, step = bits.reshape(-1), max(1, _CHUNK_BYTES // bits.itemsize)
    for start in range(0, flat.size, step):
        yield flat[start : start + step]
        _release(bits)


def _release(values: np.ndarray) -> None:
    """Let go of the pages of a mapped file, which would count as this process's memory."""
    mapped = getattr(values, "_mmap", None)
    if mapped is not None:
        # Without it, one tensor of 2.25 GB took 2.5 GB more of the process that exports.
        mapped.madvise(mmap.MADV_DONTNEED)


class _Index:
    """The tensors of a model and their parts, by a sum that their order does not change."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._whole: dict[Key, list[tuple[str, np.ndarray]]] = {}
        for name, values in tensors.items():
            self._whole.setdefault(_key(values), []).append((name, values))
        self._parts: dict[Key, list[tuple[str, np.ndarray]]] | None = None

    def find(self, values: np.ndarray) -> set[str]:
        """Return the tensors that an initializer is made of; none: it is not."""
        for name, tensor in self._whole.get(_key(values), []):
            if _same_bits(values, tensor):
                return {name}
        if not _is_weight(values):
            return set()
        found = self._find_part(values)
        if found:
            return {found}
        packed, n_parts = self.find_packed(values)
        return packed if n_parts == 1.0 else set()

    def find_packed(self, values: np.ndarray) -> tuple[set[str], float]:
        """Return the tensors whose parts stand in an initializer, and the fraction that they are.

        Parts of zeros count where others are found: ONNX packs a bias that a model lacks so.
        """
        best: tuple[set[str], float] = (set(), 0.0)
        flat = np.ascontiguousarray(values).reshape(-1)
        sizes = {key[1] for key in self._all_parts() if key[0] == values.dtype.str}
        sizes |= {key[1] for key in self._whole if key[0] == values.dtype.str}
        for size in sorted(sizes, reverse=True):
            if size < _SMALLEST_PART or flat.size % size or size == flat.size:
                continue
            pieces = flat.reshape(-1, size)
            if len(pieces) > _MOST_PIECES:
                continue
            names = [self._find_part(piece) for piece in pieces]
            found = {name for name in names if name}
            is_zero = [not piece.any() for piece in pieces]
            known = [bool(name) or zero for name, zero in zip(names, is_zero, strict=True)]
            fraction = sum(known) / len(pieces) if found else 0.0
            best = max(best, (found, fraction), key=lambda pair: pair[1])
            if fraction == 1.0:
                break
        return best

    def _find_part(self, values: np.ndarray) -> str:
        key = _key(values)
        for name, part in (*self._whole.get(key, []), *self._all_parts().get(key, [])):
            if _same_bits(values, part):
                return name
        return ""

    def _all_parts(self) -> dict[Key, list[tuple[str, np.ndarray]]]:
        # Only where an initializer is not a tensor as a whole: most models have none.
        if self._parts is None:
            self._parts = {}
            for name, values in self._tensors.items():
                for part in _parts(values):
                    self._parts.setdefault(_key(part), []).append((name, part))
        return self._parts


def _parts(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield equal parts of a tensor along its first axis, and along its last one."""
    for axis in {0, values.ndim - 1} if values.ndim else ():
        for count in _PARTS:
            if values.shape[axis] % count == 0 and values.size // count >= _SMALLEST_PART:
                yield from np.split(values, count, axis)


def _same_bits(values: np.ndarray, tensor: np.ndarray) -> bool:
    """Whether two arrays of one size and dtype hold the same in some order of the axes."""
    return any(_equal(values, ordered) for ordered in _orders(tensor))


def _orders(tensor: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a tensor with its axes in every order, the given one first; axes of one are nothing."""
    squeezed = tensor.squeeze()
    yield squeezed
    if 1 < squeezed.ndim <= _MOST_AXES:
        for order in permutations(range(squeezed.ndim)):
            if list(order) != sorted(order):
                yield squeezed.transpose(order)


def _equal(values: np.ndarray, tensor: np.ndarray) -> bool:
    """Whether the bits are equal, by pieces: the first that differs ends it."""
    wanted = _bits(tensor)
    given = _bits(values).reshape(wanted.shape)
    if not wanted.ndim:
        return bool(given == wanted)
    rows = max(1, _CHUNK_BYTES * len(wanted) // max(1, wanted.nbytes))
    starts = range(0, len(wanted), rows)
    for start in starts:
        if not np.array_equal(given[start : start + rows], wanted[start : start + rows]):
            return False
        _release(values)
    return True


def _altered(
    values: np.ndarray,
    tensors: Mapping[str, np.ndarray],
    index: _Index,
    elsewhere: Sequence[str],
) -> str:
    """Return which tensor an initializer is that was altered, in words; "": it is none.

    A converter computes all numbers of what it folds again, and leaves none as it was. In half
    precision many of them may round to what they were: there, one unit in the last place is taken
    for that if other tensors are `elsewhere`, as those of a BatchNorm are.
    """
    for name, tensor in tensors.items():
        if tensor.size == values.size and tensor.dtype == values.dtype:
            may_be_folded = values.dtype == np.float16 and any(
                not name.startswith(other) for other in elsewhere
            )
            if may_be_folded and any(_is_rounded(values, each) for each in _orders(tensor)):
                return ""
            for ordered in _orders(tensor):
                if text := _alteration(values, ordered):
                    return f"they differ from {name!r} in {text}"
    packed, fraction = index.find_packed(values)
    if fraction >= _LEAST_PACKED:
        return (
            f"{fraction:.0%} of their parts are those of {_listed(sorted(packed))}, and the others "
            "are not"
        )
    return ""


def _is_rounded(values: np.ndarray, tensor: np.ndarray) -> bool:
    """Whether no number in half precision is more than one unit in the last place off."""
    given, wanted = (each.reshape(-1).view(np.int16) for each in (values, tensor.copy()))
    return bool(np.all(np.abs(given.astype(np.int32) - wanted) <= 1))


def _alteration(values: np.ndarray, tensor: np.ndarray) -> str:
    """Return how many numbers differ, if the others show that it is the tensor; else nothing."""
    given, wanted = values.reshape(-1), np.ascontiguousarray(tensor).reshape(-1)
    step = max(1, given.size // _SAMPLE)
    if not _is_alike(given[::step], wanted[::step]) or not _is_alike(given, wanted):
        return ""
    differing = _bits(given) != _bits(wanted)
    place = int(np.argmax(differing))
    where = tuple(int(index) for index in np.unravel_index(place, tensor.shape))
    return (
        f"{np.count_nonzero(differing)} of {given.size} numbers, first at {where}, where the file "
        f"has {given[place]} and the model {wanted[place]}"
    )


def _is_alike(given: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether some numbers are the same, or all are nearly so.

    Zeros and ones stand in many tensors by themselves (powers begin with 1, as do normalizations):
    they say something only where they are most of one.
    """
    same = _bits(given) == _bits(wanted)
    if given.dtype.kind != "f":
        return bool(np.mean(same) >= _LEAST_ALIKE_WHOLE)
    least = _LEAST_ALIKE if given.dtype.itemsize > _HALF_BYTES else _LEAST_ALIKE_HALF
    same &= given != 0
    if np.count_nonzero(same & (given != 1)) >= max(1, least * given.size):
        return True
    if np.count_nonzero(same) > given.size / 2:
        return True
    if not np.any(given):
        return False
    few = _NEARLY * float(np.finfo(given.dtype).eps)
    with np.errstate(all="ignore"):
        return bool(np.allclose(given, wanted, rtol=few, atol=0, equal_nan=True))


def _listed(names: Sequence[str]) -> str:
    return names_in_words(names, _MOST_NAMED)
