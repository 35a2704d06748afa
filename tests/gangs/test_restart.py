"""Gangs that go on after a death, from the newest checkpoint, to what they would have made."""

import hashlib
import json
import os
import random
import signal
from pathlib import Path

import cloudpickle
import pytest

from partwise.engine.driver.credentials import Credentials, SigningKeys
from partwise.engine.scaling import ScalingConfig, cluster_workers
from partwise.errors import InputError
from partwise.gangs.driver import run_gang
from partwise.gangs.errors import GangFailedError
from partwise.gangs.events import GangEvent
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import place_ranks
from partwise.gangs.resume_point import newest_checkpoint
from partwise.gangs.spec import GangSpec, RankEnd
from partwise.gangs.work import GangPayload, TrainRankWork
from partwise.models.serdes import PickleSerde
from partwise.outcomes import PartitionStatus, Result
from partwise.ranks.context import RankContext
from partwise.runs.bundle import decode
from partwise.runs.checkpoints import CheckpointDocument
from partwise.runs.documents import execution_token
from partwise.shuffle.shared_folder import StagedFile
from partwise.store.signing import KEYS_VARIABLE, STATE_VARIABLE
from partwise.trainers.ranks.torch import TorchDistributor
from tests.thoroughness import THOROUGH


class Events:
    """Hears of a gang."""

    def __init__(self) -> None:
        self.all: list[GangEvent] = []

    def update(self, event: GangEvent) -> None:
        self.all.append(event)

    def restarts(self) -> int:
        return [event.kind for event in self.all].count("restart")


@pytest.fixture
def run_id() -> str:
    """One of this test alone: of a name that they know, workers load the libraries ahead."""
    return f"gang-{os.urandom(4).hex()}"


@pytest.fixture
def run(dask_client, local_store, tmp_path, run_id):
    """Run a function on two ranks, as one generation after the other."""
    generations = []

    def run(function, params=None, listener=None, max_retries=0, **fields) -> list[RankEnd]:
        generations.append(function)
        path = tmp_path / f"payload-{len(generations)}.pickle"
        payload = GangPayload(
            work=TrainRankWork(function=function, serde=PickleSerde()),
            params=params or {},
        )
        path.write_bytes(cloudpickle.dumps(payload))
        spec = GangSpec(
            token=execution_token(len(generations), os.urandom(4).hex()),
            run_id=run_id,
            generation=len(generations),
            store=local_store,
            nodes=place_ranks(cluster_workers(dask_client), ScalingConfig(2, gpus=0)).nodes,
            payload=StagedFile(path=str(path), where="disk"),
            options=GangOptions(grace_s=2.0, max_retries=max_retries),
            **fields,
        )
        return run_gang(dask_client, spec, listener)

    return run


@pytest.fixture
def artifact(local_store, run_id):
    """Read what rank 0 left, by the name of the file."""

    def read(ends: list[RankEnd], filename: str) -> bytes:
        (found,) = [one for one in ends[0].artifacts if one.filename == filename]
        path = f"runs/{run_id}/{found.bundle}"
        return decode(local_store.read_range(path, found.offset, found.stored_bytes), found, "")

    return read


def count_steps(context: RankContext) -> Result:
    """Sum up what the ranks give in ten steps; rank 1 dies once where it is told to."""
    state, first = {"step": 0, "sum": 0}, 0
    if (folder := context.resume_from()) is not None:
        state = json.loads((folder / "state.json").read_text())
        first = state["step"]
    while state["step"] < 10:
        step = state["step"] + 1
        dies = (context.rank, context.attempt, step) == (1, 1, context.params["dies_at"])
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        gathered = context.all_gather(b"%d" % (step * (context.rank + 1)))
        state = {"step": step, "sum": state["sum"] + sum(map(int, gathered))}

        def save(folder: Path, text: str = json.dumps(state)) -> None:
            (folder / "state.json").write_text(text)

        context.checkpoint(save, step=step, every_steps=3)
    return Result(state["sum"], {"first": first})


SUM = sum(step * 3 for step in range(1, 11))


def test_a_restart_goes_on_from_the_newest_checkpoint(run, artifact):
    events = Events()
    ends = run(count_steps, {"dies_at": 8}, events, max_retries=1)
    assert [(end.status, end.attempt) for end in ends] == [(PartitionStatus.DONE, 2)] * 2
    assert [end.metrics["first"] for end in ends] == [6, 6]
    assert events.restarts() == 1
    assert cloudpickle.loads(artifact(ends, "model.pkl")) == SUM


def test_a_resume_goes_on_where_a_failed_generation_stood(run, run_id):
    with pytest.raises(GangFailedError, match="SIGKILL"):
        run(count_steps, {"dies_at": 8})
    resumed, afresh = (
        run(count_steps, {"dies_at": 0}, resumable=generations) for generations in ((1,), ())
    )
    assert [end.metrics["first"] for end in resumed] == [6, 6]
    assert [end.metrics["first"] for end in afresh] == [0, 0]
    # What the caller names is for a gang that has no checkpoint of its own.
    named = run(count_steps, {"dies_at": 0}, resume_from=run_id)
    assert [end.metrics["first"] for end in named] == [9, 9]


def test_only_checkpoints_that_the_keys_of_the_run_signed_are_gone_on_from(
    run, run_id, dask_client, local_store, monkeypatch, tmp_path
):
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv(KEYS_VARIABLE, keys := f"2026:{'b2' * 32}")
    dask_client.register_plugin(SigningKeys(local_store, keys))
    try:
        with pytest.raises(GangFailedError, match="SIGKILL"):
            run(count_steps, {"dies_at": 8}, is_signed=True)
        newest = newest_checkpoint(local_store, run_id, (1,))
        assert newest.sha256
        # One that is newer, with a checksum to suit.
        forged = b'{"step": 9, "sum": -664}'
        document = CheckpointDocument.from_bytes(
            local_store.read(f"{newest.place}/checkpoint.json").replace(
                local_store.read(f"{newest.place}/checkpoint.json").split(b'"sha256": "')[1][:64],
                hashlib.sha256(forged).hexdigest().encode(),
            ),
            "forged",
        )
        folder = newest.place.replace("-000002-", "-000003-")
        local_store.create(f"{folder}/00000", forged)
        local_store.create(f"{folder}/checkpoint.json", document.to_bytes())
        ends = run(count_steps, {"dies_at": 0}, is_signed=True, resumable=(1,))
    finally:
        dask_client.register_plugin(SigningKeys(local_store, ""))
    assert [end.metrics["first"] for end in ends] == [6, 6]


def test_what_is_not_there_to_go_on_from_is_refused_before_any_rank_runs(run):
    events = Events()
    with pytest.raises(InputError, match="the run has no checkpoint"):
        run(count_steps, {"dies_at": 0}, events, resume_from="no-such-run")
    assert events.all == []


def save_as_folder(context: RankContext) -> Result | None:
    (context.model_directory / f"weights-{context.rank}.bin").write_bytes(b"\1\2")
    return Result(None, {"loss": 0.5}) if context.rank == 0 else None


def test_a_model_that_a_library_saves_as_files_is_a_model(run, artifact):
    ends = run(save_as_folder)
    assert [end.status for end in ends] == [PartitionStatus.DONE] * 2
    assert ends[0].metrics == {"loss": 0.5}
    assert artifact(ends, "weights-0.bin") == b"\1\2"
    assert ends[1].artifacts == ()


def keys_of_store(context: RankContext) -> dict[str, str]:
    from partwise.store.credentials import credentials_of

    return credentials_of("s3://of-this-test/folder")


def test_ranks_have_the_keys_of_a_store_that_their_workers_were_given(run, artifact, dask_client):
    url, keys = "s3://of-this-test/folder", {"key": "k", "secret": "s"}
    dask_client.register_plugin(Credentials(url, keys))
    try:
        ends = run(keys_of_store)
    finally:
        dask_client.register_plugin(Credentials(url, {}))
    assert cloudpickle.loads(artifact(ends, "model.pkl")) == keys


STEPS = 40


def train_and_die(context: RankContext):
    """Train with dropout and momentum; in each attempt the rank that is told to kills itself.

    What DistributedDataParallel and torch.optim do is done by hand, as each rank would import for
    another second for them: examples/fine_tune_distributed.py has both, and a test that kills it.
    """
    import torch
    import torch.distributed as dist

    given = context.params
    torch.manual_seed(context.seed)
    layers = [torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(32, 1))
    weights = list(module.parameters())
    speeds = [torch.zeros_like(weight) for weight in weights]
    done = 0
    if (folder := context.resume_from()) is not None:
        state = torch.load(folder / "state.pt", weights_only=True)
        module.load_state_dict(state["module"])
        speeds = state["speeds"]
        done = state["step"]
    context.report(first=done)
    with open(Path(given["folder"], f"{context.rank}"), "a") as file:
        file.write(f"{done} ")
    for step in range(done + 1, STEPS + 1):
        # Chance depends on the step only, so that it is the same after a restart.
        torch.manual_seed(1000 * step + context.rank)
        rows = torch.randn(16, 8)
        if given["deaths"][context.attempt - 1 :][:1] == [(context.rank, step)]:
            os.kill(os.getpid(), signal.SIGKILL)
        module.zero_grad()
        ((module(rows)[:, 0] - rows.sum(dim=1)) ** 2).mean().backward()
        with torch.no_grad():
            for weight, speed in zip(weights, speeds, strict=True):
                dist.all_reduce(weight.grad)
                speed.mul_(0.9).add_(weight.grad)
                weight.sub_(speed, alpha=0.005)

        def save(folder, step=step):
            state = {"module": module.state_dict(), "speeds": speeds, "step": step}
            torch.save(state, folder / "state.pt")

        context.checkpoint(save, step=step, every_steps=7)
    return {name: values.numpy() for name, values in module.state_dict().items()}


@pytest.mark.slow
def test_deaths_at_random_steps_resume_to_equal_parameters(run, artifact, tmp_path):
    pytest.importorskip("torch")
    train = TorchDistributor(train_and_die)

    def train_with(name: str, deaths: list[tuple[int, int]], events: Events):
        """Return the model's parameters, and where each attempt of each rank began."""
        (folder := tmp_path / name).mkdir()
        given = {"deaths": deaths, "folder": str(folder)}
        ends = run(train, given, events, max_retries=len(deaths))
        state = cloudpickle.loads(artifact(ends, "model.pkl"))
        begun = [(folder / rank).read_text().split() for rank in ("0", "1")]
        return {name: values.tobytes() for name, values in state.items()}, begun

    chance = random.Random(15)
    # One gang dies of all: each attempt a step or more behind the checkpoint that it began from.
    steps = sorted(chance.randint(1, STEPS) for _ in range(10 if THOROUGH else 5))
    deaths = [(chance.randrange(2), step) for step in steps]
    events = Events()
    undisturbed, _ = train_with("undisturbed", [], Events())
    parameters, begun = train_with("dies", deaths, events)
    assert events.restarts() == len(deaths)
    assert begun == [["0", *(str((step - 1) // 7 * 7) for step in steps)]] * 2
    assert parameters == undisturbed, deaths


def fail_while_others_wait(context: RankContext):
    import torch
    import torch.distributed as dist

    if context.rank == 1:
        raise ZeroDivisionError("no row has a label")
    dist.all_reduce(torch.ones(1000))


@pytest.mark.slow
def test_the_exception_of_one_rank_comes_back_and_not_that_of_those_who_waited(run):
    pytest.importorskip("torch")
    with pytest.raises(GangFailedError, match=r"on rank 1 .*no row has a label") as failed:
        run(TorchDistributor(fail_while_others_wait))
    assert type(failed.value.__cause__) is ZeroDivisionError
    assert failed.value.rank == 1
