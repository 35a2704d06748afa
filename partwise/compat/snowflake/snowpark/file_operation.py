"""Files that are copied to stages and from them."""

import shutil
from collections.abc import Callable
from glob import glob
from pathlib import Path

from partwise.compat.snowflake.snowpark.row import Row
from partwise.compat.snowflake.snowpark.unknown import Partial
from partwise.errors import InputError


class FileOperation(Partial):
    """Copies files as they are, without compression."""

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        self._folder_of = folder_of

    def put(
        self,
        local_file_name: str,
        stage_location: str,
        *,
        auto_compress: bool = False,
        overwrite: bool = False,
    ) -> list[Row]:
        """Copy files of this machine, which a pattern may name, into a folder of a stage.

        Raises:
            InputError: There are none; or they are to be compressed.
        """
        if auto_compress:
            raise InputError("Files are not compressed here: leave auto_compress out.")
        found = [Path(each) for each in sorted(glob(local_file_name.removeprefix("file://")))]
        if not found:
            raise InputError(f"There is no file {local_file_name!r}: write a path or a pattern.")
        return [self._copied(each, self._folder_of(stage_location), overwrite) for each in found]

    def get(self, stage_location: str, target_directory: str) -> list[Row]:
        """Copy a file of a stage, or all of a folder there, into a folder of this machine."""
        there = self._existing(stage_location)
        files = sorted(each for each in there.rglob("*") if each.is_file()) or [there]
        target = Path(target_directory.removeprefix("file://"))
        return [self._copied(each, target, True) for each in files]

    def _existing(self, location: str) -> Path:
        path = self._folder_of(location)
        if not path.exists():
            raise InputError(f"There is no {location!r}: that is {path} here.")
        return path

    def _copied(self, source: Path, folder: Path, overwrite: bool) -> Row:
        target = folder / source.name
        status = "SKIPPED" if target.exists() and not overwrite else "UPLOADED"
        if status == "UPLOADED":
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        return Row(source=source.name, target=source.name, status=status)
