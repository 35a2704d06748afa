"""How a module is one of its contestants: `python -m benchmarks.rows.skew NAME FOLDER OUT`."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

Part = Callable[[Path, Path], Mapping[str, float]]
"""Does the work on the files of a folder, leaves what it keeps in another, and returns figures."""


def take_part(parts: Mapping[str, Part]) -> None:
    """Do the work that the command line names, and print the figures."""
    parser = argparse.ArgumentParser(description="A contestant of `python -m benchmarks.bench`.")
    parser.add_argument("part", choices=parts)
    parser.add_argument("folder", type=Path, help="what is read")
    parser.add_argument("out", type=Path, help="where what is kept goes")
    given = parser.parse_args()
    figures = parts[given.part](given.folder, given.out)
    print(json.dumps(dict(figures)), flush=True)
