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
            InputError: There are none, or several of one name; or they are to be compressed.
        """
        if auto_compress:
            raise InputError("Files are not compressed here: leave auto_compress out.")
        names = sorted(glob(local_file_name.removeprefix("file://")))
        found = [path for path in map(Path, names) if path.is_file()]
        if not found:
            raise InputError(f"There is no file {local_file_name!r}: write a path or a pattern.")
        names = [each.name for each in found]
        if len({*names}) < len(names):
            raise InputError(
                f"Some of the files {local_file_name!r} have one name, of which a folder holds one "
                "file: put those of each folder into one of their own."
            )
        folder = self._folder_of(stage_location)
        return [_copied(each, folder, each.name, overwrite) for each in found]

    def get(self, stage_location: str, target_directory: str) -> list[Row]:
        """Copy a file of a stage, or all of a folder there, into a folder of this machine.

        Where two of them have one name, as of `COPY INTO ... PARTITION BY`, all stay in their
        folders below it.
        """
        there = self._folder_of(stage_location)
        if not there.exists():
            raise InputError(f"There is no {stage_location!r}: that is {there} here.")
        files = [each for each in sorted((there, *there.rglob("*"))) if each.is_file()]
        target = Path(target_directory.removeprefix("file://"))
        names = [each.name for each in files]
        if len({*names}) < len(names):
            names = [each.relative_to(there).as_posix() for each in files]
        return [_copied(each, target, name, True) for each, name in zip(files, names, strict=True)]


def _copied(source: Path, folder: Path, name: str, overwrite: bool) -> Row:
    target = folder / name
    status = "SKIPPED" if target.exists() and not overwrite else "UPLOADED"
    if status == "UPLOADED":
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return Row(source=name, target=name, status=status)
