"""One damaged run, or dataset, among others: lists show these, and what is wrong with that one."""

import json
import random
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.datasets.registration import register_dataset
from partwise.flows.cli.data import print_datasets
from partwise.flows.cli.run_list import print_runs
from partwise.runs.ledger import write_table
from partwise.store.store import Store
from tests.run_maker import RunMaker
from tests.thoroughness import quick_and_slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A run that is complete, one that is at work, and one that was stopped in between."""
    folder: Path = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("first", "second", "third")):
        maker = RunMaker(Store.parse(folder), name)
        maker.begin()
        maker.commit(("a", "DONE", 1.0), ("b", "FAILED", 2.0))
        if number != 1:
            maker.end(2)
    return folder


def damage(path: Path, chance: random.Random) -> str:
    """Damage a file in one of many ways, and return which."""
    content = path.read_bytes()
    ways = ["flip", "cut", "empty", "zeros", "text", "twice", "json", "table"]
    way = chance.choice(ways)
    match way:
        case "flip":
            place = chance.randrange(max(1, len(content)))
            flipped = bytes([content[place] ^ (1 << chance.randrange(8))]) if content else b"x"
            content = content[:place] + flipped + content[place + 1 :]
        case "cut":
            content = content[: chance.randrange(len(content) + 1)]
        case "empty":
            content = b""
        case "zeros":
            content = bytes(len(content))
        case "text":
            content = b"\xff\xfeno document\x1b[2J"
        case "twice":
            content += content
        case "json":
            values = json.loads(content) if path.suffix == ".json" else {}
            name = chance.choice([*values, "more"])
            values[name] = chance.choice([None, -1, 1e300, "x", [], {}, {"a": [None]}, True])
            content = json.dumps(values).encode()
        case "table":
            # A whole Parquet file, which is not a ledger.
            column = pa.array([chance.choice(["a", None])] * 2, pa.string())
            names = chance.choice([["status"], ["partition_id"], ["partition_id", "status"]])
            content = write_table(pa.table([column] * len(names), names=names))
    path.write_bytes(content)
    return way


def listed(command, folder: Path) -> list[dict[str, object]]:
    """Return the JSON lines of a list, which also has to be printed for people."""
    with redirect_stdout(StringIO()) as out:
        assert command(store=str(folder), as_json=True) == 0
    with redirect_stdout(StringIO()) as shown:
        assert command(store=str(folder)) == 0
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    for record in records:
        assert "error" not in record or str(record["error"]) in shown.getvalue()
    return records


@pytest.mark.parametrize("seed", quick_and_slow(range(20), range(60)))
def test_a_damaged_run_spoils_no_list(runs, tmp_path, seed) -> None:
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    whole = {record["run_id"]: record for record in listed(print_runs, tmp_path)}
    assert len(whole) == 3
    chance = random.Random(seed)
    name = chance.choice(list(whole))
    files = sorted(path for path in (tmp_path / "runs" / name).rglob("*") if path.is_file())
    way = damage(chance.choice(files), chance)
    records = {record["run_id"]: record for record in listed(print_runs, tmp_path)}
    assert set(records) == set(whole), way
    for other in set(whole) - {name}:
        assert records[other] == whole[other]
    if records[name]["status"] == "UNREADABLE":
        assert records[name]["error"]


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_dataset_spoils_no_list(tmp_path, seed) -> None:
    for name in ("first", "second", "third"):
        register_dataset(name, pa.table({"x": [1, 2, 3]}), store=tmp_path)
    whole = {record["name"]: record for record in listed(print_datasets, tmp_path)}
    chance = random.Random(seed)
    (manifest,) = (tmp_path / "datasets" / "second").rglob("*.json")
    damage(manifest, chance)
    records = {record["name"]: record for record in listed(print_datasets, tmp_path)}
    assert set(records) == set(whole) == {"first", "second", "third"}
    assert [records[name] for name in ("first", "third")] == [
        whole[name] for name in ("first", "third")
    ]
