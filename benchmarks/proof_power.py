"""Change exported files in one place each, and count how many the proof passes that it should not.

    python benchmarks/proof_power.py --mutants 2_000 --seed 1

Models of LightGBM, XGBoost, PyTorch and transformers are exported and proved as a run does it. Then
each file is changed: a threshold by one unit in its last place, the sign of a leaf, a default
branch, a weight. A mutant counts where it alters a prediction of any row that was tried, ordinary
or made for the changed place, to the bit. The table says how many of those the proof missed. It
ends with 1 where it missed one, or refused a right file.
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from partwise.exports.proof.judge import close_judges
from tests.exports.proof.exported_models import LIBRARIES
from tests.exports.proof.mutation import Result, RightFileRefusedError, examine, tabulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--mutants", type=int, default=600, help="of all models together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="separated by commas")
    parser.add_argument("--models", default="", help="only those with this in their names")
    parser.add_argument("--json", type=Path, help="where to write every mutant")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    began, refused, results = time.monotonic(), 0, list[Result]()
    with tempfile.TemporaryDirectory(prefix="partwise-power-") as directory:
        folder = Path(directory)
        libraries = [name for name in args.libraries.split(",") if importlib.util.find_spec(name)]
        models = [
            exported
            for name in libraries
            for exported in LIBRARIES[name](folder, False)
            if args.models in exported.name
        ]
        share, rest = divmod(args.mutants, len(models))
        for place, exported in enumerate(models):
            start, count = time.monotonic(), share + (place < rest)
            try:
                found = list(examine(exported, count, args.seed + place, folder))
            except RightFileRefusedError as error:
                print(f"{exported.name}: {error}")
                refused += 1
                continue
            missed = sum(result.is_missed for result in found)
            seconds = time.monotonic() - start
            print(f"{exported.name}: {count} mutants, {missed} missed, {seconds:.0f} s", flush=True)
            results += found
    close_judges()
    print(f"\n{tabulate(results)}\n")
    missed = [result for result in results if result.is_missed]
    for result in missed[:40]:
        print(f"missed: {result.exported}, {result.kind}, {result.place} ({result.shows} rows)")
    altering = sum(result.shows != "none" for result in results)
    print(
        f"{len(results)} mutants, of which {altering} alter a prediction; {len(missed)} of these "
        f"passed the proof ({time.monotonic() - began:.0f} s, seed {args.seed})"
    )
    if args.json:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if missed or refused else 0


if __name__ == "__main__":
    sys.exit(main())
