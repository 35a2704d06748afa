"""Gangs for tests: a function or a program as ranks on the workers of a client."""

import secrets
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client

from partwise.engine.scaling import ScalingConfig, cluster_workers
from partwise.gangs.events import GangEvent
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import place_ranks
from partwise.gangs.spec import GangSpec
from partwise.gangs.work import GangPayload, RankEnded, TrainRankWork
from partwise.models.serdes import PickleSerde
from partwise.ranks.context import RankContext
from partwise.runs.documents import execution_token
from partwise.shuffle.shared_folder import StagedFile
from partwise.store.store import Store


class Events:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[GangEvent] = []

    def update(self, event: GangEvent) -> None:
        self.heard.append(event)

    def of(self, kind: str) -> list[GangEvent]:
        return [event for event in self.heard if event.kind == kind]

    def lines(self) -> list[str]:
        return [line for event in self.of("log") for line in str(event).splitlines()]


def program_of(words: Sequence[str]) -> Callable[[RankContext], None]:
    """Return a function that runs a program, and ends as that does: as ranks of scripts do."""

    def run(context: RankContext) -> None:
        context.release_port()
        if code := subprocess.run(words).returncode:
            raise RankEnded(code)

    return run


def make_gang(
    client: Client,
    folder: Path,
    target: Callable[[RankContext], Any] | Sequence[str],
    *,
    ranks: int = -1,
    **fields: Any,
) -> GangSpec:
    """Return a gang of a run in a local store; a function's model is pickled.

    `fields` are those of the gang, and of its options.
    """
    token = execution_token(1, secrets.token_hex(4))
    path = folder / f"payload-{token}.pickle"
    function = target if callable(target) else program_of(tuple(target))
    work = TrainRankWork(function=function, serde=PickleSerde())
    path.write_bytes(cloudpickle.dumps(GangPayload(work=work, params={"depth": 3})))
    defaults = {
        "token": token,
        "run_id": "gang",
        "generation": 1,
        "store": Store.parse(folder / "store"),
        "payload": StagedFile(path=str(path), where="disk"),
    }
    options = {"grace_s": 1.0, "join_timeout_s": 60.0}
    options |= {name: fields.pop(name) for name in GangOptions.model_fields.keys() & fields}
    if "nodes" not in fields:
        defaults["nodes"] = place_ranks(cluster_workers(client), ScalingConfig(ranks, gpus=0)).nodes
    return GangSpec(**{**defaults, "options": GangOptions(**options), **fields})
