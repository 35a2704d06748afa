"""Writing a new project: a function with its test, a small table, deployments, and a README.

The files are those in `template/`, with two words replaced. They are not called `.py` there, since
they are part of the project that they make and not of partwise.
"""

import re
import shutil
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from partwise.errors import InputError
from partwise.flows.demo.table import write_demo_table

TEMPLATE = Path(__file__).parent / "template"
SUFFIX = ".template"
STORES = 20
"""Enough to see how models differ, and few enough for a table that git may hold."""

# It becomes a part of the names of deployments and of a work pool, of which Prefect keeps those for
# itself that begin with its own name.
_NAME = re.compile(r"(?!prefect)[A-Za-z][A-Za-z0-9_-]{0,49}", re.IGNORECASE)


def write_project(folder: Path) -> str:
    """Write a new project into a folder, all of it or nothing.

    Args:
        folder: Its place: not there yet, or empty.

    Returns:
        The project's name, that of its folder.

    Raises:
        InputError: The folder has something in it, or its name is none for a project.

    Example:
        >>> write_project(Path("sales"))  # doctest: +SKIP
        'sales'
    """
    name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a project: give one of at most 50 letters (a to z), "
            'digits, "-" and "_" that begins with a letter, and not with "prefect".'
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is there already, and is not a folder: give another name.")
    try:
        was_there = folder.exists()
        if was_there and any(folder.iterdir()):
            raise InputError(
                f"The folder {folder} is not empty, and nothing in it is replaced: give another "
                "name, or the name of an empty folder."
            )
        with ExitStack() as undo:
            folder.mkdir(parents=True, exist_ok=True)
            if not was_there:
                undo.callback(folder.rmdir)
            _fill(folder, name, undo)
            undo.pop_all()
    except OSError as error:
        raise InputError(
            f"The project cannot be written to {folder} ({error.strerror or error}): choose a "
            "place that this user can write to."
        ) from error
    return name


def _fill(folder: Path, name: str, undo: ExitStack) -> None:
    """Write the files; what takes them away again knows those only that were made here."""
    for path in sorted(TEMPLATE.glob(f"*{SUFFIX}")):
        text = path.read_text(encoding="utf-8").replace("PROJECT_NAME", name)
        text = text.replace("PARTWISE_VERSION", metadata.version("partwise"))
        made = folder / path.name.removesuffix(SUFFIX)
        # A new file only: whoever else writes here meanwhile loses nothing.
        with made.open("x", encoding="utf-8") as file:
            undo.callback(made.unlink, missing_ok=True)
            file.write(text)
    data = folder / "data"
    data.mkdir()
    undo.callback(shutil.rmtree, data, ignore_errors=True)
    write_demo_table(data / "sales.parquet", stores=STORES)
