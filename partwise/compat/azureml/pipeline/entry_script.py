"""An entry script with `init()` and `run(mini_batch)`, as a function of (data, context)."""

import functools
import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from partwise.errors import FunctionError

if TYPE_CHECKING:
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector

PATHS = "path"
"""The column of a mini-batch of files."""
ROW = "append_row"
"""The column with each row as the text that theirs appends to a file."""


@dataclass(frozen=True)
class EntryScript:
    """Calls `run` of a script for each mini-batch, and `init` once in each process.

    A mini-batch is a frame of rows, or where `of_files` the paths of some files. `content` is that
    of the script and of the modules beside it: by it, a resume sees that they have changed.
    """

    path: str
    content: str
    arguments: tuple[str, ...] = ()
    of_files: bool = False
    keeps_rows: bool = True

    def __call__(self, data: "DataConnector", context: "PartitionContext") -> Any:
        """Call it for a mini-batch, and return its rows."""
        del context
        # What a mini-batch changes is put back behind it, and `run` may import late.
        sys.path.insert(0, str(Path(self.path).parent))
        sys.argv = [self.path, *self.arguments]
        rows = data.to_pandas()
        given = list(rows[PATHS]) if self.of_files else rows
        returned = _module(self.path).run(given)
        if not self.keeps_rows:
            return None
        if not hasattr(returned, "__len__"):
            raise FunctionError(
                f"run(mini_batch) of the entry script {self.path!r} returned {returned!r:.60}: "
                'return a frame or a list, or give output_action="summary_only".'
            )
        if len(returned) == 0:
            return None
        if hasattr(returned, "columns"):
            frame = returned.reset_index(drop=True)
            return frame.assign(**{ROW: _lines(frame)})
        return {ROW: [str(each) for each in returned]}


def _lines(frame: Any) -> list[str]:
    """Return the rows of a frame as texts: values by spaces, without quotes, "" where one lacks."""
    columns = [values.astype(str).where(values.notna(), "") for _, values in frame.items()]
    return [" ".join(row) for row in zip(*columns, strict=True)]


def content_of(script: Path) -> str:
    """Return a checksum of a script and of the modules beside it."""
    digest = hashlib.sha256()
    for path in sorted(script.parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache
def _module(path: str) -> ModuleType:
    """Import a script, and call its `init`."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FunctionError(f"The entry script {path!r} is no Python script.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "run"):
        raise FunctionError(f"The entry script {path!r} has no function run(mini_batch).")
    if hasattr(module, "init"):
        module.init()
    return module
