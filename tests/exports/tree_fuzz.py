"""Models of trees drawn at random: each is exported and proved, or refused by a known reason.

    python -m tests.exports.tree_fuzz --models 3000 --seed 1

What passed the proof is compared with the library once more: by further rows, ordinary and odd
ones, predicted by the model as its user has it, on the frame or matrix that a user gives it. So is
native inference. The table says what became of the models. It ends with 1 for any model that is
silently wrong, that the proof refuses, or that is refused for no reason in `REASONS`.
"""

import argparse
import multiprocessing
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import (
    ColumnError,
    ExportMismatchError,
    ExportRefusedError,
    InputError,
    SerdeError,
)
from partwise.exports.proof.judge import close_judges
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_model import OnnxModel
from partwise.models.serdes import PickleSerde, library_of, serde_for
from partwise.trainers import default_predict
from tests.exports.fuzz_lightgbm import draw_lightgbm
from tests.exports.fuzz_models import Trained
from tests.exports.fuzz_xgboost import draw_xgboost
from tests.exports.proof.exported_models import export, matrix_of_rows

REASONS = {
    "objective": r"objective .* is not (known|exported)",
    "no probabilities": r"(with which it (predicts|gives) no probabilities)",
    "one class": r"was trained on \d+ classes but gives",
    "class labels": r"class labels of this .* ONNX gives integers or text",
    "categories of mixed types": r"neither all text nor all numbers",
    "no names": r"have no names|has no feature names|does not say what its features",
    "categories of which column": r"can be those of .* or of|do not fit its features",
    "column of another type": r"but numbers are needed",
    "categories lost": r"splits .* by categories that it does not have",
    "unprovable": r"proves nothing of the output",
    "features in two ways": r"takes zeros of the feature|splits the feature .* as a number in some",
    "booster": r"booster is|gblinear",
    "several labels": r"predicts \d+ labels side by side",
    "weights of dart lost": r"have lost their weights",
    "no trees": r"has (no trees|leaves that are not finite numbers)",
    "small leaves": r"so small beside its base",
    "type of model": r"is not exported",
    "constant": r"The comparison proves nothing: the model itself gives the same",
    "not ASCII": r"cut categories of this model that are not ASCII",
    "serde": r"cannot bring back|cannot keep the objective",
}
"""Why a model may be refused: what the sentence says, by a name for the table."""


CHUNK = 200
"""Models of one process."""


@dataclass(frozen=True)
class Outcome:
    """What became of one model."""

    number: int
    library: str
    what: str
    """How it was trained."""
    kind: str
    """right, refused, silently wrong, native wrong, mismatch, unnamed, died."""
    detail: str = ""
    """The reason's name, or what was seen."""

    @property
    def is_failure(self) -> bool:
        """Whether it should not be so."""
        return self.kind not in ("right", "refused")


def outcomes(numbers: Iterable[int], seed: int, libraries: Sequence[str]) -> Iterator[Outcome]:
    """Yield what becomes of the models with these numbers. Equal arguments give equal models.

    There is none for some of them: its library refuses what was drawn.
    """
    makers = {"lightgbm": draw_lightgbm, "xgboost": draw_xgboost}
    with tempfile.TemporaryDirectory(prefix="partwise-fuzz-") as directory:
        for number in numbers:
            random = np.random.default_rng([seed, number])
            try:
                trained = makers[libraries[number % len(libraries)]](random)
            except Exception:  # each library has its own
                continue
            yield _outcome(trained, number, Path(directory), random)


def outcomes_in_a_child(numbers: range, seed: int, libraries: Sequence[str]) -> list[Outcome]:
    """Return the outcomes of numbers, whatever a library does to the memory of its process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as pool:
        try:
            return pool.submit(_all_outcomes, numbers, seed, libraries).result()
        except BrokenProcessPool:
            what = f"models {numbers[0]} to {numbers[-1]}"
            detail = "the process of a library died"
            return [Outcome(number=numbers[0], library="", what=what, kind="died", detail=detail)]


def _all_outcomes(numbers: range, seed: int, libraries: Sequence[str]) -> list[Outcome]:
    warnings.filterwarnings("ignore")
    try:
        return list(outcomes(numbers, seed, libraries))
    finally:
        close_judges()


def _outcome(trained: Trained, number: int, folder: Path, random: np.random.Generator) -> Outcome:
    library = library_of(trained.model) or ""

    def outcome(kind: str, detail: str = "") -> Outcome:
        return Outcome(number=number, library=library, what=trained.what, kind=kind, detail=detail)

    try:
        model = _read_again(trained, folder)
    except SerdeError as error:
        return outcome(*_refusal(error))
    ordinary = _told_apart(trained, trained.columns.draw(400, random))
    odd = trained.columns.draw(400, random, odd=True, unseen=trained.takes_unseen)
    odd = _told_apart(trained, odd)
    asked = [(rows, trained.ask(rows)) for rows in (ordinary, odd)]
    further = [(rows, found) for rows, found in asked if found is not None and len(rows)]
    if (found := _infer_natively(model, trained, further)) is not None:
        return outcome(*found)
    path = folder / "model.onnx"
    options, inputs = ExportOptions(), None
    if trained.inputs == "custom":
        inputs = partial(matrix_of_rows, np.float64 if library == "lightgbm" else np.float32)
    else:
        options = ExportOptions(input_layout=trained.inputs)
    try:
        exported = export(model, trained.table, path, options, inputs)
    except ExportMismatchError as error:
        kind, reason = _refusal(error)
        return outcome("refused", reason) if kind == "refused" else outcome("mismatch", str(error))
    except (ExportRefusedError, InputError, ColumnError) as error:
        return outcome(*_refusal(error))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return outcome("unnamed", f"{type(error).__name__} at {place}: {str(error)[:200]}")
    served = OnnxModel.from_file(str(path))
    for rows, expected in further:
        given = served.run(exported.feeds(rows))
        if problem := _differs(exported.signature.predictions(given), expected, trained):
            return outcome("silently wrong", problem)
    return outcome("right")


def _told_apart(trained: Trained, rows: pa.Table) -> pa.Table:
    """Return the rows that the library predicts as its documentation says.

    XGBoost (3.2) refuses a category that training had not met only where it comes after all others;
    else it takes the next one for it (`lower_bound` without a comparison). Here it is missing.
    """
    if trained.takes_unseen:
        return rows
    known = np.ones(rows.num_rows, bool)
    for name in trained.columns.categorical:
        met = {*trained.table[name].to_pylist(), None}
        known &= [value in met for value in rows[name].to_pylist()]
    return rows.filter(pa.array(known))


def _read_again(trained: Trained, folder: Path) -> Any:
    """Return the model as a run keeps it: written by its serde, and read."""
    is_wrapper = hasattr(trained.model, "fit")
    if trained.is_pickled or (is_wrapper and library_of(trained.model) == "lightgbm"):
        serde: Any = PickleSerde()
    else:
        serde = serde_for(trained.model)
    path = str(folder / serde.filename)
    serde.write(trained.model, path)
    return serde.read(path)


def _infer_natively(model: Any, trained: Trained, further: Any) -> tuple[str, str] | None:
    """Return what is wrong with inference by the library itself, or None."""
    for rows, expected in further:
        try:
            found = default_predict(DataConnector(rows), model, PartitionContext())
        except (ExportRefusedError, InputError, ColumnError) as error:
            kind, detail = _refusal(error)
            return None if kind == "refused" else (kind, f"native inference: {detail}")
        except Exception:  # the wrapper itself refuses the frame: no prediction is no wrong one
            return None
        if problem := _differs(np.asarray(found), expected, trained):
            return "native wrong", problem
    return None


def _differs(found: np.ndarray, expected: np.ndarray, trained: Trained) -> str:
    """Say where predictions are others than the library's own, or return nothing."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, where the library gives {expected.shape}"
    if expected.dtype.kind not in "fiub":
        differing = found.astype(str) != expected.astype(str)
        return f"{differing.sum()} of {len(expected)} labels differ" if differing.any() else ""
    wanted, given = expected.astype(np.float64), np.asarray(found, dtype=np.float64)
    if (np.isfinite(wanted) != np.isfinite(given)).any():
        return "NaN or infinities elsewhere"
    finite = np.isfinite(wanted)
    if trained.gives_labels:
        differing = wanted != given
        return f"{differing.sum()} of {len(expected)} labels differ" if differing.any() else ""
    with np.errstate(over="ignore"):
        difference = np.abs(wanted[finite] - given[finite])
        allowed = trained.rtol * (np.abs(wanted[finite]) + trained.scale)
    beyond = difference > allowed
    if not beyond.any():
        return ""
    worst = int(np.argmax(difference / np.maximum(allowed, 5e-324)))
    at = wanted[finite][worst]
    return (
        f"{beyond.sum()} of {beyond.size} differ, by {difference[worst]:.3g} at {at:.6g} "
        f"(scale {trained.scale:.3g})"
    )


def _refusal(error: Exception) -> tuple[str, str]:
    for name, pattern in REASONS.items():
        if re.search(pattern, str(error)):
            return "refused", name
    return "unnamed", f"{type(error).__name__}: {error}"


def tabulate(found: Iterable[Outcome]) -> str:
    """Return what became of the models of each library, and why models were refused."""
    kinds = Counter((each.library, each.kind) for each in found)
    names = ("right", "refused", "silently wrong", "native wrong", "mismatch", "unnamed", "died")
    lines = [f"{'library':<10}{'models':>8}" + "".join(f"{name:>16}" for name in names)]
    for library in sorted({library for library, _ in kinds}):
        counts = [kinds[library, name] for name in names]
        lines.append(f"{library:<10}{sum(counts):>8}" + "".join(f"{n:>16}" for n in counts))
    refused = Counter((each.library, each.detail) for each in found if each.kind == "refused")
    lines += [
        f"refused: {library:<10}{reason:<28}{count:>6}"
        for (library, reason), count in refused.most_common()
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--libraries", default="lightgbm,xgboost")
    parser.add_argument("--first", type=int, default=0, help="the number of the first model")
    args = parser.parse_args()
    began, found, first = time.monotonic(), list[Outcome](), args.first
    while len(found) < args.models:
        count = min(CHUNK, args.models - len(found))
        numbers, first = range(first, first + count), first + count
        for outcome in outcomes_in_a_child(numbers, args.seed, args.libraries.split(",")):
            found.append(outcome)
            if outcome.is_failure:
                print(f"{outcome.number} {outcome.kind}: {outcome.library} {outcome.what}")
                print(f"    {outcome.detail}", flush=True)
    print(f"\n{tabulate(found)}")
    print(f"{len(found)} models, seed {args.seed}, {time.monotonic() - began:.0f} s")
    return 1 if any(outcome.is_failure for outcome in found) else 0


if __name__ == "__main__":
    sys.exit(main())
