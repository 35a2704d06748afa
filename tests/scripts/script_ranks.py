"""Scripts as ranks of this machine, without a cluster."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.work import RankEnded
from partwise.ranks.context import RankContext
from partwise.runs.documents import run_path
from partwise.scripts.rank_work import ScriptRankWork
from partwise.scripts.snapshot import take_snapshot
from partwise.scripts.spec import ScriptSpec
from partwise.store.store import Store
from tests.gangs.local_ranks import run_ranks

RUN = "scripted"


@dataclass(frozen=True)
class Ended:
    """What became of a rank."""

    code: int
    metrics: Mapping[str, float]
    outputs: Mapping[str, bytes]


@dataclass(frozen=True)
class _Rank:
    work: ScriptRankWork
    resume_from: str
    node: str

    def __call__(self, context: RankContext) -> Ended:
        # As the environment of a real rank has them.
        variables = {
            "RANK": context.rank,
            "LOCAL_RANK": context.local_rank,
            "LOCAL_WORLD_SIZE": context.local_world_size,
            "NODE_RANK": 0,
            "WORLD_SIZE": context.world_size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 1,
            "TORCHELASTIC_RESTART_COUNT": 0,
            **self.work.spec.environment_variables,
        }
        spec = replace(
            self.work.spec,
            environment_variables={name: str(value) for name, value in variables.items()},
        )
        own = Path(self.node, f"rank-{context.rank}")
        own.mkdir()
        checkpoints = StoreCheckpoints(
            self.work.store,
            run_path(RUN, "checkpoints"),
            run_id=RUN,
            generation=1,
            attempt=1,
            directory=own,
            resume_from=self.resume_from,
        )
        context = replace(
            context, node_directory=Path(self.node), checkpoints=checkpoints, run_id=RUN
        )
        code = 0
        try:
            ScriptRankWork(spec=spec, store=self.work.store)(context, str(own))
        except RankEnded as ended:
            code = ended.exit_code
        outputs = {name: path.read_bytes() for name, path in context.outputs.items()}
        return Ended(code=code, metrics=dict(context.metrics), outputs=outputs)


def run_script_ranks(
    folder: Path,
    files: Mapping[str, str],
    *,
    ranks: int = 1,
    resume_from: str = "",
    node: str = "node",
    **fields: Any,
) -> list[Ended]:
    """Run the script `main.py` as ranks of one node.

    Args:
        folder: An empty folder; the store is in it.
        files: Those of the source directory, with their text.
        ranks: How many.
        resume_from: A checkpoint of the store, or a folder.
        node: Name of the node's folder.
        fields: Of the `ScriptSpec`.
    """
    source = folder / f"source-{node}"
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    store = Store.parse(folder / "store")
    snapshot = take_snapshot(source)
    store.create(run_path(RUN, snapshot.name), snapshot.content)
    given = {"words": ("main.py",), "snapshot": snapshot.name, **fields}
    work = ScriptRankWork(spec=ScriptSpec(**given), store=store)
    (folder / node).mkdir()
    return run_ranks(ranks, _Rank(work, resume_from, str(folder / node)))


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return a gzipped tar file with members of any names."""
    import gzip
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue())
