"""What a rank of a script does: make the folders, run the program, keep what it leaves behind.

The first rank of a node does for all what is to be done once: it unpacks the snapshot, brings the
inputs and what is resumed from, and in the end takes the outputs. In between all ranks start their
programs together, and wait for each other when these have ended.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from partwise.engine.outcome import Produced
from partwise.environments.building import BuiltEnvironment, open_environment
from partwise.errors import InputError
from partwise.gangs.work import RankEnded
from partwise.outcomes import PartitionStatus
from partwise.ranks.context import RankContext
from partwise.ranks.script_context import (
    CHECKPOINTS_VARIABLE,
    OUTPUTS_VARIABLE,
    RESUME_VARIABLE,
    RUN_VARIABLE,
)
from partwise.runs.documents import run_path
from partwise.scripts.checkpoint_folder import CheckpointFolder
from partwise.scripts.folders import NodeFolders
from partwise.scripts.inputs import SharedPath, upload_input, write_rows
from partwise.scripts.mpi import run_mpi
from partwise.scripts.outputs import find_outputs
from partwise.scripts.program import Program
from partwise.scripts.snapshot import unpack_snapshot
from partwise.scripts.spec import ScriptSpec, input_variable
from partwise.shuffle.shared_folder import SharedFolder
from partwise.store.store import Store

_PLACES_FILE = "places.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRankWork:
    """Run a program as each rank of a gang; a `RankWork`."""

    spec: ScriptSpec
    store: Store
    """The artifact store of the run."""

    def __call__(self, context: RankContext, directory: str) -> Produced:  # noqa: ARG002
        """Run the program of one rank.

        Raises:
            RankEnded: It ended otherwise than with exit status 0.
            InputError: An input has vanished, the program is not there, or an output is refused.
        """
        if context.node_directory is None:
            raise InputError("A script runs as a rank of a gang, which has a folder for its node.")
        folders = NodeFolders(context.node_directory)
        self._prepare(context, folders)
        with open_environment(self.spec.environment) as built:
            # All is complete by now, and all programs start at about the same time.
            context.barrier()
            places: dict[str, str] = json.loads((folders.root / _PLACES_FILE).read_text())
            code = self._run(context, folders, places, built)
        if code:
            raise RankEnded(code)
        # The outputs of a node are complete when all of its programs have ended.
        context.barrier()
        if context.local_rank == 0:
            context.outputs.update(find_outputs(folders.work, self.spec.outputs))
        return Produced(status=PartitionStatus.DONE, metrics=dict(context.metrics))

    def staged(self, folder: SharedFolder) -> "ScriptRankWork":
        """Return the work with inputs that all workers can read."""
        if folder.where == "disk":
            return self
        inputs = {
            name: upload_input(found, folder.store, f"{folder.folder}/input-{number}")
            if isinstance(found, SharedPath)
            else found
            for number, (name, found) in enumerate(self.spec.inputs.items())
        }
        return replace(self, spec=replace(self.spec, inputs=inputs))

    def _prepare(self, context: RankContext, folders: NodeFolders) -> None:
        """Make the folders of the node, and write down where inputs lie for its other ranks."""
        # Before anything else: to ask for rows is what all ranks have to do alike.
        rows = {name: context.share(name, whole=True) for name in self.spec.row_inputs}
        if context.local_rank > 0:
            return
        self._unpack(context.run_id, folders.work)
        folders.outputs.mkdir(parents=True, exist_ok=True)
        if folders.temporary is not None:
            folders.temporary.mkdir()
        places = {"outputs": str(folders.outputs), "checkpoints": str(folders.checkpoints)}
        for name, found in self.spec.inputs.items():
            place = found.bring(name, folders.inputs / name, self.store)
            places[f"inputs.{name}"] = str(place)
        for name, share in rows.items():
            places[f"inputs.{name}"] = str(write_rows(share, folders.inputs / name))
        resumed = context.resume_from()
        if resumed is not None:
            places["resume_from"] = str(resumed)
        if resumed is not None and resumed.is_relative_to(folders.root):
            # So that a script finds its checkpoint where it has left it, as under torchrun.
            shutil.copytree(resumed, folders.checkpoints, symlinks=True)
        else:
            folders.checkpoints.mkdir()
        (folders.root / _PLACES_FILE).write_text(json.dumps(places))

    def _unpack(self, run_id: str, target: Path) -> None:
        name = self.spec.snapshot
        if not name:
            target.mkdir()
            return
        try:
            content = self.store.read(run_path(run_id, name))
        except FileNotFoundError as error:
            raise InputError(
                f"The source directory of the run {run_id!r}, {name}, is not in {self.store.url} "
                "any more; begin the run again with source_directory=."
            ) from error
        unpack_snapshot(content, name, target)

    def _run(
        self,
        context: RankContext,
        folders: NodeFolders,
        places: Mapping[str, str],
        built: BuiltEnvironment,
    ) -> int:
        """Run the program to its end, and return how it ended."""
        environment = self._environment(context, folders, places, built)
        words = self.spec.command(built.python or sys.executable, places, environment)

        def run(environment: Mapping[str, str], started: Callable[[int], object] = int) -> int:
            # The program binds the port by itself; until this moment nobody could take it.
            context.release_port()
            try:
                program = Program(words, folders.work, environment, context.metrics)
                return program.run(started)
            except OSError as error:
                raise InputError(
                    f"The program {words[0]!r} cannot be started on rank {context.rank}: {error}."
                ) from error

        def follow() -> int:
            if self.spec.backend == "mpi":
                return run_mpi(context, environment, run, grace_s=self.spec.grace_s)
            return run(environment)

        if context.rank > 0 or context.checkpoints is None:
            return follow()
        return CheckpointFolder(folders.checkpoints, context.checkpoints).follow(follow)

    def _environment(
        self,
        context: RankContext,
        folders: NodeFolders,
        places: Mapping[str, str],
        built: BuiltEnvironment,
    ) -> dict[str, str]:
        """Return all variables of the program."""
        environment = {
            **os.environ,
            CHECKPOINTS_VARIABLE: places["checkpoints"],
            OUTPUTS_VARIABLE: places["outputs"],
            RUN_VARIABLE: context.run_id,
        }
        if folders.temporary is not None:
            environment["TMPDIR"] = str(folders.temporary)
        if built.entry is not None:
            # Its Python and programs come first, and nothing of the worker's own packages.
            environment["PATH"] = f"{built.scripts}{os.pathsep}{environment.get('PATH', '')}"
            for name in ("PYTHONPATH", "PYTHONHOME"):
                environment.pop(name, None)
        environment |= self.spec.environment_variables
        for name, place in places.items():
            if name.startswith("inputs."):
                environment[input_variable(name.removeprefix("inputs."))] = place
        if "resume_from" in places:
            environment[RESUME_VARIABLE] = places["resume_from"]
        return environment
