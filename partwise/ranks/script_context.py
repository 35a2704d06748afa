"""The context of a script that imports partwise: made of the variables that its rank has set.

A script need not know it. What it reports here, it can as well print as a line of JSON.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partwise.errors import InputError
from partwise.ranks.checkpoint_schedule import CheckpointSchedule
from partwise.ranks.context import RankContext, visible_gpus

RUN_VARIABLE = "PARTWISE_RUN_ID"
CHECKPOINTS_VARIABLE = "PARTWISE_CHECKPOINTS"
OUTPUTS_VARIABLE = "PARTWISE_OUTPUTS"
RESUME_VARIABLE = "PARTWISE_RESUME_FROM"
UNFINISHED = ".unfinished"
"""A file that says: the checkpoints folder is not a checkpoint at this moment."""


@dataclass(frozen=True, kw_only=True)
class ScriptContext(RankContext):
    """What a script can ask and tell, as a function can that is a rank."""

    def report(self, **values: Any) -> None:
        """Set metrics of this rank; the newest value of each stands in the ledger.

        Lists, texts and mappings stand in the file reported-RANK.json among the outputs.
        """
        before = dict(self.reported)
        super().report(**values)
        if self.reported != before:
            path = self.model_directory / f"reported-{self.rank}.json"
            path.write_text(json.dumps(self.reported))
        # As one write, and a line of its own, so that nothing else stands beside it.
        sys.stdout.write(f"{json.dumps({'metrics': self.metrics})}\n")
        sys.stdout.flush()


@dataclass
class FolderCheckpoints:
    """Checkpoints in the folder that the rank watches; a `Checkpoints`."""

    folder: Path
    resumed: Path | None = None
    _schedule: CheckpointSchedule = field(default_factory=CheckpointSchedule)

    def save(
        self,
        write: Callable[[Path], object],
        *,
        step: int,
        every_steps: int | None = None,
        every_minutes: float | None = None,
    ) -> bool:
        """Keep what `write(a new folder)` writes, where that is due, in place of the last one."""
        if not self._schedule.is_due(step, every_steps, every_minutes):
            return False
        # Beside the folder, and so on its disk, where a rename copies nothing.
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as new:
            write(Path(new))
            if not any(Path(new).iterdir()):
                raise InputError(f"The checkpoint of step {step} is empty: write() left no file.")
            # While it is there, the rank takes nothing: a process that stands still or dies in
            # between leaves a part of the one and a part of the other.
            mark = self.folder / UNFINISHED
            mark.touch()
            for old in self.folder.iterdir():
                if old != mark:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            for path in list(Path(new).iterdir()):
                path.rename(self.folder / path.name)
            mark.unlink()
        self._schedule.kept(step)
        return True

    def resume_from(self) -> Path | None:
        """Return the folder with what this attempt goes on from."""
        return self.resumed


def script_context() -> ScriptContext | None:
    """Return the context of the script that this process is; None: it is none of a run."""
    variables = os.environ
    if RUN_VARIABLE not in variables or "RANK" not in variables:
        return None
    resumed = variables.get(RESUME_VARIABLE)
    world_size = int(variables["WORLD_SIZE"])
    local_rank, local_size = int(variables["LOCAL_RANK"]), int(variables["LOCAL_WORLD_SIZE"])
    # All ranks of a node see all of its GPUs. The first of a rank's own is that of its number, by
    # which scripts for torchrun choose; where there are fewer GPUs than ranks, some share one.
    gpus = visible_gpus(variables.get("CUDA_VISIBLE_DEVICES", ""))
    own_gpus = gpus[local_rank % max(1, len(gpus)) :: local_size]
    master = (variables["MASTER_ADDR"], int(variables["MASTER_PORT"]))
    return ScriptContext(
        rank=int(variables["RANK"]),
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_size,
        node_rank=int(variables["NODE_RANK"]),
        attempt=int(variables["TORCHELASTIC_RESTART_COUNT"]) + 1,
        # Those of the other ranks it does not know.
        addresses=(master,),
        threads=int(variables.get("OMP_NUM_THREADS", "1")),
        gpus=own_gpus,
        run_id=variables[RUN_VARIABLE],
        model_directory=Path(variables[OUTPUTS_VARIABLE]),
        checkpoints=FolderCheckpoints(
            Path(variables[CHECKPOINTS_VARIABLE]), Path(resumed) if resumed else None
        ),
    )
