"""The folder in which a script leaves checkpoints, watched by the first rank of the gang."""

import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from partwise.errors import PartwiseError
from partwise.gangs.folder_files import files_below
from partwise.ranks.protocols import Checkpoints
from partwise.ranks.script_context import UNFINISHED

LOOK_S = 0.5
"""So often the folder is looked at; what stays the same between two looks is complete."""

_logger = logging.getLogger(__name__)

_State = tuple[tuple[str, int, int], ...]


class _ChangedError(Exception):
    """A file was written to while the folder was copied."""


class CheckpointFolder:
    """Uploads what stands in a folder, each time that it has changed and then stays as it is.

    A checkpoint is the whole folder. Its files are copied before they are uploaded, so that a
    script may write the next one meanwhile; where it has done so during the copy, that is dropped.
    Of a script that a signal ends, nothing more is taken than what had stayed as it was before: it
    may have been in the midst of a file.
    """

    def __init__(self, folder: Path, checkpoints: Checkpoints) -> None:
        self._folder = folder
        self._checkpoints = checkpoints
        # What the script resumes from lies there already, and is not kept once more.
        self._seen = self._kept = _state_of(folder)
        self._step = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="checkpoints")

    def follow(self, run: Callable[[], int]) -> int:
        """Run a program while the folder is watched, and return how it ended."""
        self._thread.start()
        code = None
        try:
            code = run()
        finally:
            self._ended.set()
            self._thread.join()
            if code is not None and code >= 0:
                self._keep_last()
        return code

    def _keep_last(self) -> None:
        # The script has ended by itself, so what is there is what it meant to leave.
        try:
            self._seen = _state_of(self._folder)
        except OSError as error:
            _logger.warning("the last checkpoint was not kept: %s", error)
            return
        self._keep()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                now = _state_of(self._folder)
            except OSError:
                # What changes under the walk is looked at again, and is nothing to keep until then.
                now = ()
            if now == self._seen:
                self._keep()
            self._seen = now

    def _keep(self) -> None:
        if self._seen == self._kept or not self._seen:
            return
        # `context.checkpoint` is between two renames.
        if any(name == UNFINISHED for name, _, _ in self._seen):
            return
        try:
            self._checkpoints.save(self._copy, step=self._step + 1)
        except _ChangedError:
            return
        except (PartwiseError, OSError) as error:
            # The script works on: the next checkpoint may find the store as it should be.
            _logger.warning("a checkpoint was not kept: %s", error)
            return
        self._step += 1
        self._kept = self._seen

    def _copy(self, target: Path) -> None:
        try:
            for file in files_below(self._folder, keep_links=True):
                path = target / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                if file.link:
                    path.symlink_to(file.link)
                else:
                    shutil.copy(file.path, path)
            now = _state_of(self._folder)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise _ChangedError from error
        if now != self._seen:
            raise _ChangedError


def _state_of(folder: Path) -> _State:
    """Return names, sizes and times of all files of a folder, and of links within it.

    Raises:
        OSError: A folder in it vanished meanwhile, or cannot be read.
    """
    found = []
    for file in files_below(folder, keep_links=True):
        with suppress(FileNotFoundError):
            about = file.path.stat(follow_symlinks=not file.link)
            found.append((file.name, about.st_size, about.st_mtime_ns))
    return tuple(found)
