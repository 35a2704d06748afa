"""How much a proof sees: files with one change each, and whether the proof passes them.

A mutant counts where some row gets another prediction of it, to the bit: an ordinary row, or one
that was made for the changed place. onnxruntime says so, for the right file and for the mutant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from partwise.models.signature import Feeds
from tests.exports.proof import tree_mutants, weight_mutants
from tests.lazily import Lazily

onnxruntime = Lazily("onnxruntime")

Prove = Callable[[str], Sequence[str]]
"""Compares a file with its model, and returns the checks that found something."""

ODD = np.array(
    [
        *(np.nan, 0.0, -0.0, 0.5, -0.5, 1.5, 2.7, -1.0, 1e6, -1e6, 1e300, -1e300),
        *(np.inf, -np.inf, 1e-36, -1e-36, 5e-324, 1.7e9 + 0.123456),
    ]
)


@dataclass(frozen=True)
class Exported:
    """A model with its right file, and how a file is compared with it."""

    name: str
    library: str
    path: Path
    prove: Prove
    ordinary: Sequence[Feeds]
    """Rows such as the model will meet."""
    matrix: np.ndarray | None = None
    """Of a model of features, its ordinary rows as numbers."""
    feeds: Callable[[np.ndarray], Feeds] | None = None
    """Makes its inputs of such numbers."""
    odd: Sequence[Feeds] = ()
    """Rows of another kind than the ordinary ones: each token, each position, large numbers."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change."""

    kind: str
    place: str
    model: onnx.ModelProto
    made: Sequence[Feeds]
    """Rows on which the change should show."""


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    exported: str
    library: str
    kind: str
    place: str
    shows: str
    """On which rows it alters a prediction: "ordinary", "made", or "none" that was found."""
    checks: tuple[str, ...]
    """Of the proof, those that found something; none: it passed."""

    @property
    def is_missed(self) -> bool:
        """Whether a file that predicts otherwise passed."""
        return self.shows != "none" and not self.checks


def mutants(exported: Exported, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a file without end: each kind of change in turn, at random places."""
    model = onnx.load(exported.path)
    random = np.random.default_rng(seed)
    others = _other_mutants(exported, model, random)
    if tree_mutants.ensemble_node(model) is None or exported.matrix is None:
        yield from others
        return
    trees = _tree_mutants(exported, model, random)
    while True:
        yield from islice(trees, 8)
        yield from islice(others, 1)


def _tree_mutants(
    exported: Exported, model: onnx.ModelProto, random: np.random.Generator
) -> Iterator[Mutant]:
    for kind, change in tree_mutants.changes(model, exported.matrix, random):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        change.edit(tree_mutants.attributes_of(tree_mutants.ensemble_node(changed)))
        made = _feeds(exported, change.rows)
        yield Mutant(kind=kind, place=change.place, model=changed, made=made)


def _other_mutants(
    exported: Exported, model: onnx.ModelProto, random: np.random.Generator
) -> Iterator[Mutant]:
    for kind, place, changed in weight_mutants.changes(model, random):
        made = exported.odd
        if exported.matrix is not None:
            made = _feeds(exported, _odd_rows(exported, model, changed, random))
        yield Mutant(kind=kind, place=place, model=changed, made=made)


def _feeds(exported: Exported, rows: np.ndarray) -> list[Feeds]:
    with np.errstate(over="ignore"):  # single precision
        return [exported.feeds(rows)] if len(rows) else []


def _odd_rows(
    exported: Exported, model: onnx.ModelProto, changed: onnx.ModelProto, random: Any
) -> np.ndarray:
    """Return ordinary rows with an odd number in one feature: those of the change among them."""
    numbers = [ODD, np.arange(12.0)]
    pairs = zip(weight_mutants.tensors_of(model), weight_mutants.tensors_of(changed), strict=True)
    for (_, before), (_, after) in pairs:
        for tensor in (before, after):
            values = onnx.numpy_helper.to_array(tensor)
            if before != after and values.dtype.kind == "f":
                finite = values[np.isfinite(values)].ravel()[:50]
                numbers += [finite, -finite, tree_mutants.beside(finite)]
    values = np.unique(np.concatenate([np.asarray(each, np.float64) for each in numbers]))
    n_features = exported.matrix.shape[1]
    rows = exported.matrix[random.integers(len(exported.matrix), size=len(values) * n_features)]
    rows = rows.astype(np.float64)
    places = np.repeat(np.arange(n_features), len(values))
    rows[np.arange(len(rows)), places] = np.tile(values, n_features)
    return rows


class Rows:
    """What the right file gives for rows, and whether another file gives the same."""

    def __init__(self, exported: Exported) -> None:
        self._session = _session(exported.path.read_bytes())
        self._ordinary = [(feeds, self._run(feeds)) for feeds in exported.ordinary]

    def shows(self, mutant: Mutant) -> str:
        """Return on which rows a mutant alters a prediction."""
        try:
            session = _session(mutant.model.SerializeToString())
        except Exception:  # each of onnxruntime's status codes is one of its own
            return "ordinary"  # it predicts nothing
        names = [tensor.name for tensor in session.get_outputs()]

        def differs(feeds: Feeds, expected: list[np.ndarray] | None) -> bool:
            try:
                found = session.run(names, dict(feeds), _quiet())
            except Exception:
                return expected is not None
            return expected is None or not all(map(_same, expected, found))

        if any(differs(feeds, expected) for feeds, expected in self._ordinary):
            return "ordinary"
        if any(differs(feeds, self._run(feeds)) for feeds in mutant.made):
            return "made"
        return "none"

    def _run(self, feeds: Feeds) -> list[np.ndarray] | None:
        names = [tensor.name for tensor in self._session.get_outputs()]
        try:
            found: list[np.ndarray] = self._session.run(names, dict(feeds), _quiet())
        except Exception:
            return None
        return found


class RightFileRefusedError(Exception):
    """The proof finds something wrong with the file that nobody changed."""


def examine(exported: Exported, count: int, seed: int, folder: Path) -> Iterator[Result]:
    """Yield what becomes of so many mutants of a file.

    Args:
        exported: The model and its right file.
        count: Of mutants.
        seed: Of their places.
        folder: Where each lies while the proof reads it.

    Raises:
        RightFileRefusedError: The proof does not even pass the right file.
    """
    if checks := exported.prove(str(exported.path)):
        raise RightFileRefusedError(f"The proof refuses the right file: {', '.join(checks)}")
    rows = Rows(exported)
    path = folder / "mutant.onnx"
    right = onnx.load(exported.path)
    changed = (mutant for mutant in mutants(exported, seed) if mutant.model != right)
    for mutant in islice(changed, count):
        path.write_bytes(mutant.model.SerializeToString(deterministic=True))
        yield Result(
            exported=exported.name,
            library=exported.library,
            kind=mutant.kind,
            place=mutant.place,
            shows=rows.shows(mutant),
            checks=tuple(sorted(set(exported.prove(str(path))))),
        )


@dataclass
class Score:
    """The mutants of one kind."""

    mutants: int = 0
    ordinary: int = 0
    made: int = 0
    missed_ordinary: int = 0
    missed_made: int = 0
    unseen: int = 0
    """Of those that alter no prediction that was found: how many pass."""
    checks: Counter[str] = field(default_factory=Counter)
    """How many each check of the proof found, of those that alter a prediction."""

    def add(self, result: Result) -> None:
        """Count a result."""
        self.mutants += 1
        self.ordinary += result.shows == "ordinary"
        self.made += result.shows == "made"
        self.missed_ordinary += result.is_missed and result.shows == "ordinary"
        self.missed_made += result.is_missed and result.shows == "made"
        self.unseen += result.shows == "none" and not result.checks
        if result.shows != "none":
            self.checks.update(result.checks)


def tabulate(results: Iterable[Result]) -> str:
    """Return the score of each library and kind as a table, and of all."""
    scores: dict[tuple[str, str], Score] = {}
    for result in results:
        for key in ((result.library, result.kind), ("all", "")):
            scores.setdefault(key, Score()).add(result)
    row = "{:<13}{:<22}{:>8} {:>9} {:>9} {:>9} {:>7} {:>7}  {}"
    lines = [
        row.format("", "", "", "alter", "made", "missed", "missed", "same,", ""),
        row.format(
            *("library", "kind", "mutants", "ordinary", "rows only", "ordinary", "made", "passed"),
            "seen by",
        ),
    ]
    for (library, kind), score in sorted(scores.items(), key=lambda item: item[0][0] == "all"):
        seen = ", ".join(f"{check} {count}" for check, count in score.checks.most_common())
        numbers = (
            *(score.mutants, score.ordinary, score.made),
            *(score.missed_ordinary, score.missed_made, score.unseen),
        )
        lines.append(row.format(library, kind, *numbers, seen).rstrip())
    return "\n".join(lines)


def _same(expected: np.ndarray, found: np.ndarray) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    return np.array_equal(expected, found, equal_nan=expected.dtype.kind == "f")


def _session(content: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _quiet() -> Any:
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    return options
