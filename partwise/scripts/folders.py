"""The folders of a script on a node: all of them are gone when the node ends.

<node>/
    work/            a fresh copy of the snapshot; where the script works
    work/outputs/    for files that are to be kept, under any name
    inputs/<name>/   inputs that were brought here
    checkpoints/     what the script keeps for an attempt that comes after this one
    tmp/             temporary files (TMPDIR), which programs that are killed leave
"""

import os
from dataclasses import dataclass
from pathlib import Path

from partwise.processes.shared_files import LONGEST_ADDRESS

_SOCKET = "pymp-12345678/listener-12345678"
"""How multiprocessing calls a socket of its own among temporary files."""


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """The folders of one node; its ranks share them, as those of torchrun do."""

    root: Path

    @property
    def work(self) -> Path:
        """Where the script works: outputs are found below it."""
        return self.root / "work"

    @property
    def inputs(self) -> Path:
        """Has a folder for each input that was brought to the node."""
        return self.root / "inputs"

    @property
    def checkpoints(self) -> Path:
        """What is written here, and then stays as it is, is a checkpoint."""
        return self.root / "checkpoints"

    @property
    def temporary(self) -> Path | None:
        """For temporary files; None: multiprocessing's sockets in it would have too long a path."""
        folder = self.root / "tmp"
        return folder if len(os.fsencode(folder / _SOCKET)) <= LONGEST_ADDRESS else None

    @property
    def outputs(self) -> Path:
        """All files in it are outputs."""
        return self.work / "outputs"
