"""A single process that reads a file and writes a model."""

import argparse
import csv
import json
import statistics
from pathlib import Path


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--column", required=True)
    parser.add_argument("--model", type=Path, default=Path("model.json"))
    args = parser.parse_args()
    with args.data.open() as file:
        values = [float(row[args.column]) for row in csv.DictReader(file)]
    args.model.write_text(json.dumps({"mean": statistics.mean(values), "rows": len(values)}))
    print(f"{len(values)} rows", flush=True)


if __name__ == "__main__":
    main()
