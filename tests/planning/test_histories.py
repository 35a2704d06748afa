"""Random histories of calls, as flows prepare them, through a child process: against new runs.

Between two calls the code, an order of settings, the rows, their categories, the params, or a file
that the function reads may change. Whatever a resume keeps, the run has to hold what a new run of
the same call holds.
"""

import contextlib
import secrets
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.calls.partitions import TrainCall
from partwise.engine.assignment import Execution, work_file
from partwise.engine.driver.params import shard_params
from partwise.engine.driver.payload import name_of, pack_work
from partwise.engine.driver.plan import Plan
from partwise.engine.options import ExecutionOptions
from partwise.engine.worker.child import discard_child, end_marked
from partwise.engine.worker.shard_run import run_on
from partwise.models.serdes import PickleSerde
from partwise.planning.partitions import prepare_training
from partwise.runs.claim import Claim
from partwise.runs.completion import complete_run
from partwise.runs.run import Run
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.store.store import Store
from tests.engine.shards import TestHost
from tests.planning.history_functions import trainer
from tests.run_maker import ending
from tests.thoroughness import THOROUGH

MET = Counter[str]()
"""What the histories of this process were made of."""


class Crash(BaseException):
    """The death of the process, which nothing may catch."""


@dataclass(frozen=True)
class Call:
    """A call of `train_models`."""

    factor: int
    order: tuple[str, ...]
    """The keys of a dict that the function reads."""
    values: tuple[tuple[str, tuple[int, ...]], ...]
    """The rows of each partition."""
    kind: str
    """Of the column of categories: of one partition alone."""
    params: int
    word: str
    """What the file holds that the function reads."""
    overwrites: bool
    writes: int | None
    """After so many objects that it creates in the store the process dies."""

    def table(self) -> pa.Table:
        keys = [key for key, values in self.values for _ in values]
        kinds = [self.kind if key == "a" else "m" for key in keys]
        return pa.table(
            {
                "key": keys,
                "value": [value for _, values in self.values for value in values],
                "kind": pa.array(kinds).dictionary_encode(),
            }
        )

    def training(self, run_id: str, on_existing: Any, path: Path) -> TrainCall:
        return TrainCall(
            self.table(),
            "key",
            trainer(self.factor, self.order, str(path)),
            run_id=run_id,
            serde=PickleSerde(),
            execution=ExecutionOptions(n_shards=1, retry_backoff_s=0.01, first_segment_s=0.001),
            on_existing_artifacts=on_existing,
            params={"a": {"level": self.params}},
            files=[str(path)],
        )


def carry_out(plan: Plan, token: str, host: TestHost, store: Store) -> Run:
    """Do as a flow does, with one shard, in this process and one child.

    The child lives on for the next call with the same token, as it does between shards, unless this
    process dies.
    """
    directory = Path(host.folder, secrets.token_hex(6))
    directory.mkdir()
    with Claim(store, plan.identity, plan.on_existing) as claim:
        sharded = shard_rows(plan.source, plan.identity.key_columns, 1, directory)
        shared = SharedFolder(directory, store, plan.identity.run_id, token, shared=True)
        params = shard_params(plan.params, plan.identity.key_columns, 1, directory)
        claim.begin(n_shards=1, intent=plan.intent, partitions=sharded.partitions)
        execution = Execution(
            token=token,
            run_id=plan.identity.run_id,
            kind=plan.identity.kind,
            generation=claim.generation,
            store=store,
            key_columns=plan.identity.key_columns,
            seed=plan.seed,
            reads=plan.reads,
            compatible=claim.compatible,
            options=plan.options,
            limits=plan.options.limits_on(()),
            work=shared.write(work_file(token), pack_work(plan.work, name_of(plan.function))),
        )
        try:
            (assignment,) = plan.assign(execution, sharded, shared, params)
            receipt = run_on(host, assignment, lambda: False)
            return complete_run(claim, ending(receipt.partitions))
        except Crash:
            end_child(token)
            raise


def end_child(token: str) -> None:
    discard_child()
    end_marked(token)


def models(run: Run) -> dict[str, Any]:
    return {key: run.model(key, PickleSerde()) for key in run.partitions["key"].to_pylist()}


CALLS = st.builds(
    Call,
    factor=st.sampled_from([1, 1, 2]),
    order=st.sampled_from([("x", "y"), ("x", "y"), ("y", "x")]),
    values=st.tuples(
        st.tuples(st.just("a"), st.sampled_from([(1,), (1, 2)])),
        st.tuples(st.just("b"), st.sampled_from([(3,), (3,), (4, 5)])),
        st.tuples(st.just("c"), st.just((6, 7))),
    ),
    kind=st.sampled_from(["m", "z", "b"]),
    params=st.integers(0, 1),
    word=st.sampled_from(["one", "one", "two"]),
    overwrites=st.sampled_from([False, False, False, True]),
    writes=st.none() | st.none() | st.integers(0, 6),
)


def follow(folder: Path, token: str, calls: list[Call], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the calls one after the other; see after each what readers see."""
    store, path = Store.parse(folder / "store"), folder / "word.txt"
    host = TestHost(folder / "host")
    left: list[int | None] = [None]
    create = Store.create

    def dying_create(self: Store, name: str, content: bytes) -> None:
        if left[0] is not None and "/lease/" not in name:
            left[0] -= 1
            if left[0] < 0:
                raise Crash(name)
        create(self, name, content)

    monkeypatch.setattr(Store, "create", dying_create)
    shown: dict[str, Any] | None = None
    for number, call in enumerate(calls):
        path.write_text(call.word)

        def plan(run_id: str, on_existing: str, call: Call = call) -> Plan:
            asked = call.training(run_id, on_existing, path)
            return prepare_training(asked, open_source(asked.data))

        fresh = models(carry_out(plan(f"new-{number}", "error"), token, host, store))
        left[0] = call.writes
        with contextlib.suppress(Crash):
            how = "overwrite" if call.overwrites else "resume"
            run = carry_out(plan("run", how), token, host, store)
            MET["kept"] += run.kept
            MET["executed"] += run.executed
            shown = fresh
        MET["killed"] += left[0] is not None and left[0] < 0
        left[0] = None
        MET["calls"] += 1
        if shown is not None:
            assert models(Run.open("run", store)) == shown
    host.close()


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield monkeypatch
    assert all(MET[name] for name in ("kept", "executed"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory):
    return lambda: tmp_path_factory.mktemp("history")


@pytest.mark.slow
@given(calls=st.lists(CALLS, min_size=4, max_size=8))
@settings(max_examples=25 if THOROUGH else 5, deadline=None)
def test_a_resume_holds_what_a_new_run_holds(folders, patch, calls) -> None:
    token = secrets.token_hex(6)
    try:
        with patch.context() as monkeypatch:
            follow(folders(), token, calls, monkeypatch)
    finally:
        end_child(token)
