"""Pairs of the table of architectures, exported and proved, from tiny models with random weights.

Run as a program, it takes all of them, and writes what came of it to docs/architectures.md.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from partwise.transformers.architectures import ARCHITECTURES
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.flat_model import run_model
from partwise.transformers.proof import configs_of
from tests.transformers.tiny_models import tiny_model

TABLE = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
PAIRS = [(name, feature) for name, row in ARCHITECTURES.items() for feature in row.features]
_LIBRARIES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
_SMALLEST = 1e-3
"""What is closer to zero everywhere could be equal by accident."""


@dataclass(frozen=True)
class Proof:
    """What came of one pair."""

    model_type: str
    feature: str
    seconds: float
    largest_difference: float = 0.0
    opset: int | None = None
    problem: str = ""


def check_reference(model_type: str, feature: str, *, one_layer: bool = False) -> None:
    """Raise AssertionError if an output of the tiny model is zero, or the same for all inputs."""
    model = tiny_model(model_type, feature, one_layer=one_layer)
    for config in configs_of(config_for(model.config, feature)):
        sizes = config.sizes_for_validation["three rows"]
        first, second = (
            run_model(model, config, config.generate_dummy_inputs(sizes, seed)) for seed in (5, 6)
        )
        for name, values in first.items():
            largest = float(np.abs(values).max())
            spread = float(np.abs(values - second[name]).max())
            assert largest > _SMALLEST, f"{name} is nearly zero: {largest}"
            assert spread > _SMALLEST * largest, f"{name} does not depend on the inputs"


def prove(model_type: str, feature: str, *, one_layer: bool = False) -> Proof:
    """Export and prove one pair."""
    start = time.monotonic()
    check_reference(model_type, feature, one_layer=one_layer)
    model = tiny_model(model_type, feature, one_layer=one_layer)
    with TemporaryDirectory() as folder:
        report = export(model, config_for(model.config, feature), Path(folder, "export"))
    largest = max(file.metrics["export_max_abs_diff"] for file in report.files)
    return Proof(model_type, feature, time.monotonic() - start, largest, report.opset)


def _try(pair: tuple[str, str]) -> Proof:
    start = time.monotonic()
    try:
        return prove(*pair)
    except Exception as error:  # whatever it is, the others go on
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Proof(*pair, time.monotonic() - start, problem=problem)


def _earlier() -> dict[tuple[str, str], Proof]:
    """Return what the table says that there is, if it was made with the same versions."""
    text = TABLE.read_text() if TABLE.exists() else ""
    if _versions() not in text:
        return {}
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {
        (name.strip(), feature.strip()): Proof(
            name.strip(),
            feature.strip(),
            0.0,
            float(difference.strip() or 0),
            int(opset.strip()) if opset.strip() else None,
            "".join(problem).strip(),
        )
        for name, feature, opset, difference, *problem in rows[1:]
    }


def _versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)


def _table(proofs: list[Proof]) -> str:
    right = sum(not proof.problem for proof in proofs)
    lines = [
        "# Architectures",
        "",
        f"What `make test-architectures` found: {right} of {len(proofs)} pairs of architecture",
        "and feature were exported from tiny models with random weights, and give what their",
        "models give at sizes that they were not captured with, batch 1, length 1 and as many",
        "tokens as they take among them. With past, no past is among them too, and 8 generated",
        "tokens are the model's own.",
        "",
        f"Versions: {_versions()}.",
        "",
        "| model type | feature | opset | largest difference | problem |",
        "|---|---|---|---|---|",
    ]
    for proof in proofs:
        numbers = f"{proof.opset} | {proof.largest_difference:.1e}" if not proof.problem else " | "
        problem = proof.problem.replace("|", "/")
        lines.append(f"| {proof.model_type} | {proof.feature} | {numbers} | {problem} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prove all pairs, or those of some model types, and write the table of all again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_types", nargs="*", help="Of the table. None: all.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    pairs = [p for p in PAIRS if not arguments.model_types or p[0] in arguments.model_types]
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    proofs = {}
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed({pool.submit(_try, pair) for pair in pairs}):
            proof = future.result()
            proofs[proof.model_type, proof.feature] = proof
            told = proof.problem or f"right within {proof.largest_difference:.1e}"
            count = f"{len(proofs)}/{len(pairs)}"
            name = f"{proof.model_type} {proof.feature}"
            print(f"{count:>8}  {proof.seconds:5.1f} s  {name}: {told}", flush=True)
    proofs = _earlier() | proofs
    table = _table([proofs[pair] for pair in PAIRS if pair in proofs])
    TABLE.write_text(table)
    print(table)
    return int(any(proof.problem for proof in proofs.values()))


if __name__ == "__main__":
    sys.exit(main())
