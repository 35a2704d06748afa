"""Measure us and others by turns, in one go, and write benchmarks/RESULTS.md, or RESULTS-quick.md.

    python -m benchmarks.bench [--quick] [--only start slope] [--out PAGE]

Each row of the table is a module of benchmarks/rows, which says who does the work and how good is
good enough. A row, or one of its contestants, that cannot be run here is written down with the
reason. The page is written after each row, so that an end before the last one loses nothing; rows
that are not asked for stay in it as they are.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks.frame.measure import Result, measure
from benchmarks.frame.results import about_machine, is_of, results_page
from benchmarks.frame.row import ROOT, Place

ROWS = (
    *(
        "models",
        "start",
        "stored_models",
        "slope",
        "skew",
        "wide",
        "inference",
        "buckets",
        "resume",
        "scale",
    ),
    *("routes", "exports", "gangs", "scripts", "study", "forecasting", "serving"),
)
PEERS = ROOT / ".venv-peers" / "bin" / "python"


def main() -> None:
    """Measure the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of all, in minutes")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW")
    parser.add_argument("--out", type=Path, help="the page, if not that of its name")
    given = parser.parse_args()
    page = given.out or ROOT / "benchmarks" / f"RESULTS{'-quick' if given.quick else ''}.md"
    command = "make bench-quick" if given.quick else "make bench"
    about = about_machine(quick=given.quick)
    earlier = page.read_text() if page.exists() and given.only != ROWS else ""
    if earlier and not is_of(earlier, about):
        raise SystemExit(f"{page} is of another machine: name another page with --out.")
    peers = PEERS if PEERS.exists() else None
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="partwise-bench-") as made:
        for name in given.only:
            folder = Path(made, name)
            folder.mkdir()
            module = importlib.import_module(f"benchmarks.rows.{name}")
            row = module.row(Place(folder=folder, quick=given.quick, peers=peers))
            print(f"{row.title} ...", file=sys.stderr, flush=True)
            results.append(measure(row))
            page.write_text(results_page(results, command, about, peers, earlier))
    print(f"written: {page}")


if __name__ == "__main__":
    main()
