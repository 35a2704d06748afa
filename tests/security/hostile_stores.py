"""Stores as somebody makes them who wants more than to have his rows read.

A case changes one thing in a good store: any field of any document, a row of a ledger, a file of
the workers. Checksums are made to suit, as anybody can who may write there; only signatures cannot
be. Then every reader and command looks at it. A file outside that appears or changes, a call to a
host, memory, and an error that is none of ours with a sentence, all are told.

    for case in hostile_cases(seed=7, count=1000):
        outcome = try_case(case, folder)
        assert outcome.is_harmless, outcome
"""

import contextlib
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.datasets.dataset import Dataset
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.registration import register_dataset
from partwise.engine.trained_models import ShardModels
from partwise.errors import PartwiseError
from partwise.flows.cli.main import main
from partwise.flows.cli.run_output import run_record
from partwise.flows.running.earlier_call import EarlierCall
from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.resume_point import newest_checkpoint
from partwise.reports.report import render_report
from partwise.runs.contents import list_runs
from partwise.runs.documents import generation_file, ledger_file, summary_file
from partwise.runs.exports import exported_as, find_exports
from partwise.runs.garbage import collect_garbage
from partwise.runs.layout import lay_out
from partwise.runs.ledger import read_table, write_table
from partwise.runs.run import Run
from partwise.runs.stored_models import model_set, models_of
from partwise.scripts.inputs import find_input
from partwise.scripts.snapshot import unpack_snapshot
from partwise.shuffle.shared_folder import SharedFolder, StagedFile, fetch
from partwise.store.lease import Lease
from partwise.store.signing import seal
from partwise.store.store import Store
from tests.run_maker import RunMaker
from tests.security.forgery import read_members, reseal, write_members

MOST_MEMORY = 512 << 20  # bytes
SUBJECTS = (
    *("run.json", "generation", "summary", "ledger", "ledger", "ledger", "call", "call"),
    *("manifest", "checkpoint", "sent", "lease", "staged", "report", "index", "raw"),
)
_LONGEST_S = 30
_RUN, _ROOT = "good", "runs/good"
_DEEP = "[" * 3000


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is changed, by chance."""

    seed: int
    number: int
    subject: str


@dataclass(kw_only=True)
class Outcome:
    """What came of a case."""

    case: Case
    change: str = ""
    executed: bool = False
    connected: bool = False
    outside: list[str] = field(default_factory=list)
    """Files outside the store that appeared or changed."""
    memory: int = 0
    """The most that this process grew, in bytes."""
    untyped: list[str] = field(default_factory=list)
    """Readers that raised what is not an error of ours, or one without a sentence."""
    refused: int = 0
    """Readers that raised an error of ours."""

    @property
    def is_harmless(self) -> bool:
        """Whether nothing ran, was written or reached, and all was told in sentences."""
        quiet = not (self.executed or self.connected or self.outside or self.untyped)
        return quiet and self.memory < MOST_MEMORY


def hostile_cases(seed: int, count: int) -> Iterator[Case]:
    """Yield cases: all subjects in turn, each with a chance of its own."""
    for number in range(count):
        yield Case(seed=seed, number=number, subject=SUBJECTS[number % len(SUBJECTS)])


def _import_library(change: str) -> None:
    """Import what reads a model of a format that a change names, which may take half a gigabyte."""
    for name, library in (("torch", "torch"), ("pt2", "torch"), ("keras", "keras")):
        if name in re.findall(r"\w+", change):
            importlib.import_module(library)


def try_case(case: Case, folder: Path, commands: bool = False) -> Outcome:
    """Make the store of a case below an empty folder, and have all readers look at it.

    Args:
        case: The case.
        folder: On this machine; is removed.
        commands: Whether the command line of a new process looks too, which takes seconds.
    """
    outcome = Outcome(case=case)
    chance = random.Random(f"{case.seed} {case.number}")
    store, home = folder / "store", folder / "home"
    shutil.copytree(_good_store(), store)
    home.mkdir(parents=True)
    (home / ".bashrc").write_text("mine")
    canary = Canary(folder)
    before, here = _files(folder, store), Path.cwd()
    try:
        os.chdir(home)
        outcome.change = _change(case.subject, store, canary, chance)
        _import_library(outcome.change)
        _reset_peak()
        resident = _peak()
        for name, read in _readers(store, folder / "scratch"):
            _try_reader(outcome, name, read)
        if commands:
            _try_commands(outcome, store)
        outcome.memory = max(0, _peak() - resident)
    finally:
        os.chdir(here)
        outcome.executed, outcome.connected = canary.executed(), canary.connected()
    after = _files(folder, store)
    outcome.outside = sorted(
        str(path) for path in after.keys() | before.keys() if after.get(path) != before.get(path)
    )
    shutil.rmtree(folder)
    return outcome


class Canary:
    """A file that appears where something is run, and a host that is called."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "canary"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.command = ["touch", str(self.file)]

    def executed(self) -> bool:
        """Whether something was run."""
        return self.file.exists()

    def connected(self) -> bool:
        """Whether the host was called; it is closed."""
        with self.listener, contextlib.suppress(BlockingIOError):
            self.listener.accept()[0].close()
            return True
        return False


@cache
def _good_store() -> Path:
    """Make one store with a bit of all: training, exports, inference, a dataset, a checkpoint."""
    import tempfile

    root = Path(tempfile.mkdtemp(prefix="partwise-hostile-"))
    store = Store.parse(root)
    for run_id, kind in ((_RUN, "train"), ("exports", "export"), ("rows", "infer")):
        maker = RunMaker(store, run_id, kind)
        maker.serde = "onnx" if kind == "export" else "plain"
        claim = maker.begin()
        maker.commit(("a", "DONE", 1.0), ("b", "FAILED", 2.0), ("c", "SKIPPED", 0.0))
        maker.end(3)
        assert claim.generation == 1
    members = read_members(root / "runs/exports/run.json") | {"models": [f"run://{_RUN}"]}
    write_members(root / "runs/exports/run.json", members)
    reseal(root / "runs/exports")
    register_dataset("sales", pa.table({"k": ["a", "b"], "y": [1.0, 2.0]}), store=store)
    source = root / "checkpoint"
    source.mkdir()
    (source / "state.bin").write_bytes(b"state")
    checkpoints = StoreCheckpoints(
        store,
        f"{_ROOT}/checkpoints",
        run_id=_RUN,
        # One that goes on with the run, which has ended.
        generation=2,
        attempt=1,
        directory=source,
    )
    checkpoints.save(lambda to: (to / "state.bin").write_bytes(b"state"), step=1, every_steps=1)
    shutil.rmtree(source)
    lay_out(Run.open("exports", store), Store.parse(root / "laid"))
    return root


# What is changed.


def _texts(canary: Canary, chance: random.Random) -> str:
    victim = canary.file.parent / "home" / ".bashrc"
    return chance.choice(
        [
            *(
                "../../../home/.bashrc",
                str(victim),
                f"../{victim}",
                "..",
                ".",
                "",
                "/",
                "\0",
                "x\0y",
            ),
            *(
                "~/.bashrc",
                "$(touch x)",
                "`touch x`",
                f"; touch {canary.file};",
                "%2e%2e/x",
                "a\\b",
            ),
            *(
                "subprocess:check_output",
                "os:system",
                "builtins:eval",
                "pty:spawn",
                "pt2",
                "pickle",
            ),
            *("torchscript", "neuron", "module:Class", "..:x", "native", "keras", "lightgbm"),
            *(f"http://127.0.0.1:{canary.port}/x", f"s3://127.0.0.1:{canary.port}/x"),
            *(f"postgresql://u@127.0.0.1:{canary.port}/x", "file:///etc/passwd", "/etc/passwd"),
            *("\x1b]0;title\x07\x1b[2J", "<script>alert(1)</script>", "\u202egnp.exe", "\ud800"),
            *("9" * 5000, "x" * 100_000, "{}", "null", "1e400", "NaN", "-1", "0", "é" * 300),
            *("runs/../../x", "bundles/../../x", "bundles/" + "a" * 300, "predictions/../x"),
        ]
    )


def _value(canary: Canary, chance: random.Random, now: Any = None) -> Any:
    if isinstance(now, str) and chance.random() < 0.75:
        return _texts(canary, chance)
    numbers = [0, -1, 1, 2**31, 2**53, 2**62, -(2**63), 2**64, 10**30, 0.5, 1e308, True]
    plain = [None, [], {}, [[]], {"": {}}, "", [None], False]
    odd: list[Any] = [_texts(canary, chance), *plain, *numbers]
    return chance.choice(odd)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _paths(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value[:4]):
            yield from _paths(each, (*path, number))


def _edit(members: Any, canary: Canary, chance: random.Random) -> str:
    """Change one place of a JSON value; returns which, and to what."""
    path = chance.choice([path for path in _paths(members) if path])
    holder = members
    for step in path[:-1]:
        holder = holder[step]
    action = chance.random()
    shown = ".".join(map(str, path))
    if action < 0.08:
        del holder[path[-1]]
        return f"{shown} is missing"
    if action < 0.12 and isinstance(holder, dict):
        holder[_texts(canary, chance)] = holder[path[-1]]
        return f"beside {shown} stands another"
    holder[path[-1]] = _value(canary, chance, holder[path[-1]])
    return f"{shown} = {holder[path[-1]]!r}"[:300]


def _edit_file(path: Path, canary: Canary, chance: random.Random, sealed: bool = True) -> str:
    members = read_members(path) if sealed else json.loads(path.read_bytes())
    shown = _edit(members, canary, chance)
    if sealed:
        write_members(path, members)
    else:
        path.write_text(json.dumps(members, indent=2))
    return f"{path.name}: {shown}"


def _change(subject: str, store: Path, canary: Canary, chance: random.Random) -> str:
    run = store / _ROOT
    change: dict[str, Callable[[], str]] = {
        "run.json": lambda: _edit_file(run / "run.json", canary, chance),
        "generation": lambda: _edit_file(run / generation_file(1), canary, chance),
        "summary": lambda: _edit_file(run / summary_file(1), canary, chance),
        "ledger": lambda: _change_ledger(store, canary, chance),
        "call": lambda: _change_call(run, canary, chance),
        "manifest": lambda: _edit_file(
            store / "datasets/sales/manifests/0001.json", canary, chance
        ),
        "checkpoint": lambda: _edit_file(
            next(run.glob("checkpoints/*/checkpoint.json")), canary, chance, sealed=False
        ),
        "sent": lambda: _change_sent(run, canary, chance),
        "lease": lambda: _change_lease(run, canary, chance),
        "staged": lambda: _change_staged(run, canary, chance),
        "report": lambda: _change_report(run, canary),
        "index": lambda: _edit_file(store / "laid/index.json", canary, chance, sealed=False),
        "raw": lambda: _change_bytes(store, chance),
    }
    shown = change[subject]()
    if subject in ("run.json", "generation", "summary", "call") and chance.random() < 0.9:
        with contextlib.suppress(Exception):
            reseal(run)
    return shown


def _change_ledger(store: Path, canary: Canary, chance: random.Random) -> str:
    run = store / "runs" / chance.choice([_RUN, _RUN, "exports", "rows"])
    segment = next((run / "ledger").iterdir())
    paths = [run / ledger_file(1), segment]
    table = read_table(paths[0].read_bytes(), "it")
    rows = table.to_pylist()
    members = rows[0] if chance.random() < 0.4 else rows[0]["artifacts"][0]
    schema = table.schema
    name = chance.choice(list(members))
    value = _value(canary, chance, members[name])
    members[name] = value
    try:
        changed = pa.Table.from_pylist(rows, schema)
    except (pa.ArrowException, OverflowError, TypeError, UnicodeError):
        # As another type, or without the column.
        kept = [column for column in schema.names if column != name]
        changed = table.select(kept or schema.names[:1])
        if isinstance(value, int | float | str) and name in schema.names:
            with contextlib.suppress(pa.ArrowException, OverflowError, UnicodeError):
                changed = changed.append_column(name, pa.array([value] * table.num_rows))
    content = write_table(changed)
    for path in paths:
        path.write_bytes(content)
    if chance.random() < 0.2:
        # Of a run that never was complete its segments are read.
        (run / summary_file(1)).unlink()
    reseal(run)
    return f"ledger of {run.name}: {name} = {value!r}"[:300]


def _change_call(run: Path, canary: Canary, chance: random.Random) -> str:
    command = {"args": canary.command}
    uri = f"postgresql://u@127.0.0.1:{canary.port}/x"
    endpoint = f"http://127.0.0.1:{canary.port}"
    lightgbm = {"kind": "lightgbm", "label": "y"}
    arguments: dict[str, Any] = {"trainer": lightgbm, "partition_by": ["key"], "seed": 0}
    flow, data = "train_models", None
    dangers: list[Callable[[], Any]] = [
        lambda: {"serde": {"name": "subprocess:check_output", "settings": command}},
        lambda: {"serde": {"name": "pickle", "settings": {}}},
        lambda: {"serde": {"name": "partwise.runs.bundle:StoredArtifact", "settings": {}}},
        lambda: {"trainer": "os:system"},
        lambda: {"trainer": {"kind": "best", "label": "y", "candidates": ["os:system"]}},
        lambda: {"trainer": {"kind": "torch_distributor", "train_func": "os:system"}},
        lambda: {"trainer": {"kind": "tuned", "trainer": "os:system", "space": "os:getcwd"}},
        lambda: {"exporter": "os:getcwd", "example_inputs": "os:system", "predict": "os:system"},
        lambda: {"command": canary.command, "source_directory": "/"},
        lambda: {"output": {"table": "t", "uri": uri}},
        lambda: {"eval_data": {"e": {"query": {"query": "t", "uri": uri}}}},
        lambda: {"environment": {"packages": [f"x @ {endpoint}/x-1-py3-none-any.whl"]}},
        lambda: {"execution": {"n_shards": 2**40}},
    ]
    arguments |= chance.choice(dangers)()
    if chance.random() < 0.6:
        data = chance.choice(
            [
                {"query": {"query": "t", "uri": uri}},
                {"paths": ["s3://bucket/x.parquet"], "endpoint_url": endpoint},
                {"paths": ["/etc/passwd"]},
                {"block": "query-block/prod"},
                {"sources": [{"query": {"query": "t", "uri": uri}}]},
            ]
        )
        data |= {"columns": None, "filter": None}
    flow = chance.choice(["train_models", "run_script", "export_models", "importlib", "main"])
    call: dict[str, Any] = {"flow": flow, "data": data, "arguments": arguments, "version": None}
    shown = "as it is"
    if chance.random() < 0.4:
        shown = _edit(call, canary, chance)
    path = run / generation_file(1)
    known = chance.random() < 0.2
    new = {"call": None if known else call, "call_known": call if known else None}
    write_members(path, read_members(path) | new | {"call_obstacle": "x" if known else None})
    return f"call {json.dumps(call)[:400]}, {shown}"


def _change_sent(run: Path, canary: Canary, chance: random.Random) -> str:
    import hashlib

    folder = run / "sent"
    folder.mkdir()
    digest = hashlib.sha256(b"state").hexdigest()
    (folder / digest).write_bytes(b"state")
    part = {"name": digest, "size_bytes": 5, "sha256": digest}
    members = {"format_version": 1, "step": 0, "files": [{"path": "x/y.bin", "parts": [part]}]}
    shown = _edit(members, canary, chance)
    content = json.dumps(members).encode()
    (folder / f"{hashlib.sha256(content).hexdigest()}.json").write_bytes(content)
    return f"sent: {shown}"


def _change_lease(run: Path, canary: Canary, chance: random.Random) -> str:
    with Lease.acquire(Store.parse(run.parents[1]), _ROOT):
        claims = [path for path in (run / "lease").iterdir() if path.suffix == ".json"]
        contents = {path: path.read_bytes() for path in claims}
    path = chance.choice(claims)
    members = json.loads(contents[path])
    shown = _edit(members, canary, chance)
    for name in ("sha256", "signature"):
        members.pop(name, None)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(members))
    return f"lease {path.name}: {shown}"


class _Payload:
    def __init__(self, command: list[str]) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return subprocess.call, (self.command,)


def _change_staged(run: Path, canary: Canary, chance: random.Random) -> str:
    import pickle

    content = pickle.dumps(_Payload(canary.command))
    folder = run / "scratch" / "token"
    folder.mkdir(parents=True)
    name = chance.choice(["work.pkl", "params", "dictionaries"])
    (folder / name).write_bytes(content)
    # A model too: as the ledger says, of whatever format.
    serde = chance.choice(["pickle", "pt2", "torchscript", "torch", "keras", "onnx", "plain"])
    bundle = next((run / "bundles").iterdir())
    bundle.write_bytes(content)
    import hashlib

    path = run / ledger_file(1)
    table = read_table(path.read_bytes(), "it")
    rows = table.to_pylist()
    place = {"offset": 0, "size_bytes": len(content), "stored_bytes": len(content)}
    own = {"compression": "stored", "serde": serde, "sha256": hashlib.sha256(content).hexdigest()}
    rows[0]["artifacts"] = [rows[0]["artifacts"][0] | place | own]
    path.write_bytes(write_table(pa.Table.from_pylist(rows, table.schema)))
    reseal(run)
    return f"a pickle as {name}, and as a model of {serde}"


def _change_report(run: Path, canary: Canary) -> str:
    mark = '<meta name="partwise-generation" content="1 complete">'
    call = f'<img src="http://127.0.0.1:{canary.port}/x"><script>alert(1)</script>'
    (run / "report.html").write_text(f"<html><head>{mark}</head>{call}</html>")
    return "report.html of somebody else's"


def _change_bytes(store: Path, chance: random.Random) -> str:
    """Change a file as a whole: cut off, nested, of another encoding, a folder, a link, a pipe."""
    paths = sorted(path for path in store.rglob("*") if path.is_file())
    path = chance.choice([each for each in paths if each.suffix in (".json", ".parquet", ".zip")])
    content = path.read_bytes()
    cut = chance.randrange(len(content) + 1)
    made: list[tuple[str, bytes]] = [
        ("cut off", content[:cut]),
        ("empty", b""),
        ("nested", _DEEP.encode()),
        ("with a mark of UTF-8", b"\xef\xbb\xbf" + content),
        ("of no encoding", b"\xff\xfe" + content),
        ("a list", seal(b'{\n  "a": []\n}\n')),
        ("huge", b'{"format_version": 1, "x": "' + b"x" * (30 << 20) + b'"}'),
        ("twice", content + content),
        ("a number", b"1e999"),
        ("text", b"x" * 100),
    ]
    name, new = chance.choice(made)
    path.unlink()
    link = chance.random()
    if link < 0.1:
        path.symlink_to("/etc/passwd")
        name = "a link"
    elif link < 0.15:
        path.mkdir()
        name = "a folder"
    elif link < 0.2:
        os.mkfifo(path)
        name = "a pipe"
    else:
        path.write_bytes(new)
    return f"{path.relative_to(store)} is {name}"


# Who looks at it.


def _readers(root: Path, scratch: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    store = Store.parse(root)
    url = str(root)
    scratch.mkdir()
    for run_id in (_RUN, "exports", "rows"):
        read = partial(_look, run_id, store)
        for name, look in _LOOKS.items():
            yield f"{name} of {run_id}", partial(read, look)
    yield "list_runs", lambda: list_runs(store)
    yield "find_exports", lambda: find_exports(Run.open(_RUN, store), "onnx")
    yield "lay_out", lambda: lay_out(Run.open("exports", store), Store.parse(root / "laid"))
    yield "dataset", lambda: Dataset.open("sales", store=store).source().schema
    yield "rows of a dataset", lambda: list(Dataset.open("sales", store=store).source().batches())
    yield "schema", lambda: Dataset.open("sales", store=store).manifest.schema_with_roles
    yield "data gc", lambda: collect_dataset_garbage(store, "sales", dry_run=True)
    yield "checkpoint", lambda: _checkpoint(store, scratch)
    yield "sent", lambda: _sent(store, scratch)
    yield "artifacts as inputs", lambda: _bring(store, f"run://{_RUN}", scratch / "all")
    yield "staged", lambda: _staged(store, scratch)
    yield "snapshot", lambda: unpack_snapshot(b"x", "0" * 64, scratch / "snapshot")
    for command in (
        ["runs", "list"],
        *(["runs", "show", _RUN, *more] for more in ([], ["--failures"], ["--key", "a", "--logs"])),
        *(["runs", each, _RUN] for each in ("logs", "verify", "resume", "repeat", "gc")),
        ["runs", "compare", _RUN, "rows"],
        ["runs", "model", _RUN, "a", "--to", str(scratch)],
        *(
            ["runs", "export", run_id, "--what", what, "--to", str(scratch / f"{what}.csv")]
            for run_id, what in ((_RUN, "ledger"), (_RUN, "metrics"), ("rows", "predictions"))
        ),
        *(["data", each, "sales"] for each in ("show", "verify", "gc")),
        ["data", "list"],
        ["runs", "gc", _RUN, "--dry-run"],
    ):
        # Exports and validations start a server first: `try_case(commands=True)` has those.
        yield f"partwise {' '.join(command)}", partial(_command, [*command, "--store", url])
    yield "lease", lambda: Lease.acquire(store, _ROOT, wait_s=0.2).release()


def _look(run_id: str, store: Store, look: Callable[[Run], Any]) -> Any:
    return look(Run.open(run_id, store))


def _model(run: Run) -> Any:
    return run.model("a")


def _artifacts(run: Run) -> None:
    for name in run.artifacts("a"):
        run.artifact("a", name)
        run.artifact("a", name, read=lambda path: Path(path).read_bytes())


def _located(run: Run) -> None:
    """Read models as a worker does that sees the store's disk."""
    models = model_set(run, models_of(run.ledger)).models
    keys = run.ledger.select(["key.key"]).rename_columns(["key"])
    own = models.append_column("level", pa.nulls(models.num_rows, pa.int32()).fill_null(0))
    places = list(range(keys.num_rows))
    scratch = Path.cwd().parent / "scratch"
    for found in ShardModels(own, keys).locate(places, run.store, str(scratch)).values():
        for model in found:
            model.file.content()


def _earlier(run: Run) -> None:
    earlier = EarlierCall.of(run)
    assert isinstance(earlier.seed, int)
    for use in (
        lambda: earlier.trainer,
        lambda: earlier.named("inputs"),
        lambda: earlier.named("exporter"),
        lambda: earlier.open_rows("", None, None),
    ):
        with contextlib.suppress(PartwiseError):
            use()


_LOOKS: dict[str, Callable[[Run], Any]] = {
    "status": lambda run: (run.status, run.kept, run.executed, run.counts, run.at_work),
    "partitions": lambda run: run.partitions,
    "failures": lambda run: run.failures(),
    "model": _model,
    "artifacts": _artifacts,
    "logs": lambda run: run.logs("a"),
    "rows": lambda run: run.predictions(),
    "trials": lambda run: (run.trials, run.best),
    "portfolio": lambda run: run.portfolio,
    "is_whole": lambda run: run.is_whole(),
    "report": render_report,
    "record": run_record,
    "formats": exported_as,
    "models of workers": _located,
    "call": _earlier,
    "garbage": lambda run: collect_garbage(run.store, run.run_id, dry_run=True),
}


def _checkpoint(store: Store, scratch: Path) -> None:
    found = newest_checkpoint(store, _RUN, [1])
    target = scratch / "resumed"
    target.mkdir()
    StoreCheckpoints(
        store,
        f"{_ROOT}/checkpoints",
        run_id=_RUN,
        generation=2,
        attempt=1,
        directory=target,
        resume_from=found.place,
        resume_sha256=found.sha256,
    ).resume_from()


def _sent(store: Store, scratch: Path) -> None:
    for path in store.list(f"{_ROOT}/sent/"):
        if path.endswith(".json"):
            name = path.rpartition("/")[2].removesuffix(".json")
            _bring(store, f"run://{_RUN}/sent/{name}", scratch / "sent")


def _bring(store: Store, text: str, folder: Path) -> None:
    find_input("table", text, store).bring("table", folder, store)


def _staged(store: Store, scratch: Path) -> None:
    """Fetch what a driver handed over before somebody put his own in its place."""
    import pickle

    folder = scratch / "shared"
    folder.mkdir()
    shared = SharedFolder(folder, Store.parse(scratch / "elsewhere"), _RUN, "token", shared=False)
    staged = shared.write("work.pkl", b"work")
    for path in store.list(f"{_ROOT}/scratch/"):
        theirs: StagedFile = replace(staged, path=path)
        pickle.loads(Path(fetch(theirs, store, str(scratch))).read_bytes())


def _command(words: list[str]) -> None:
    """Call a command, which tells errors of ours in a sentence and all others as defects."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    if code not in (0, 1, 2):
        raise AssertionError(f"exit code {code}: {err.getvalue()[-400:]}")
    if "\x1b]" in out.getvalue() or "\x1b]" in err.getvalue():
        raise AssertionError("a control sequence reached the terminal")


def _give_up(*_: Any) -> None:
    raise TimeoutError(f"it took longer than {_LONGEST_S} s")


def _try_reader(outcome: Outcome, name: str, read: Callable[[], Any]) -> None:
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_LONGEST_S)
    try:
        read()
    except PartwiseError as error:
        outcome.refused += 1
        if len(str(error).split()) < 4 or len(str(error)) > 6000:
            outcome.untyped.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    except FileNotFoundError as error:
        if name not in ("snapshot",):
            outcome.untyped.append(f"{name}: {error!r}"[:300])
    except (Exception, SystemExit) as error:
        outcome.untyped.append(f"{name}: {type(error).__name__}: {error}"[:300])
    finally:
        signal.alarm(0)


def _try_commands(outcome: Outcome, store: Path) -> None:
    for words in (["runs", "show", _RUN], ["runs", "resume", _RUN], ["export", _RUN]):
        done = subprocess.run(
            [sys.executable, "-m", "partwise.flows.cli.main", *words, "--store", str(store)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode not in (0, 1, 2) or "Traceback" in done.stderr:
            outcome.untyped.append(f"{words}: {done.returncode} {done.stderr[-300:]}")


# What it left.


def _files(folder: Path, store: Path) -> dict[Path, bytes | None]:
    """Return all files below the folder of a case, but for those of its store and scratch."""
    left_out = (store, folder / "scratch", folder / "canary")
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if not any(path == out or out in path.parents for out in left_out)
    }


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Return the most resident memory since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0
