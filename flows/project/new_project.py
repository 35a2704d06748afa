"""Writing a new project: a function with its test, a small table, deployments, and a README.

The files are those in `template/`, with some words replaced; of a forecast those of
`forecast_template/` stand in the place of some. They are not called `.py` there, since they are
part of the project that they make and not of partwise.
"""

import re
import shutil
from contextlib import ExitStack
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.errors import InputError
from partwise.flows.demo.table import HELD_OUT_FROM, write_demo_table

Template = Literal["function", "forecast"]
TEMPLATE = Path(__file__).parent / "template"
FORECAST_TEMPLATE = Path(__file__).parent / "forecast_template"
SUFFIX = ".template"
STORES = 20
"""Enough to see how models differ, and few enough for a table that git may hold."""
WEEKS_BEFORE = 8
"""That are shown before the days to come."""

# It becomes a part of the names of deployments and of a work pool, of which Prefect keeps those for
# itself that begin with its own name.
_NAME = re.compile(r"(?!prefect)[A-Za-z][A-Za-z0-9_-]{0,49}", re.IGNORECASE)


def write_project(folder: Path, template: Template = "function") -> str:
    """Write a new project into a folder, all of it or nothing.

    Args:
        folder: Its place: not there yet, or empty.
        template: A function of one's own for each key, or a forecast of the days to come.

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
            _fill(folder, name, template, undo)
            undo.pop_all()
    except OSError as error:
        raise InputError(
            f"The project cannot be written to {folder} ({error.strerror or error}): choose a "
            "place that this user can write to."
        ) from error
    return name


def _fill(folder: Path, name: str, template: Template, undo: ExitStack) -> None:
    """Write the files; what takes them away again knows those only that were made here."""
    is_forecast = template == "forecast"
    words = {
        "PROJECT_NAME": name,
        "PARTWISE_VERSION": metadata.version("partwise"),
        "TRAINER_NAME": "forecast:trainer" if is_forecast else "forecast:fit",
        "USED_TABLE": "data/days.parquet" if is_forecast else "data/sales.parquet",
    }
    folders = (TEMPLATE, FORECAST_TEMPLATE) if is_forecast else (TEMPLATE,)
    paths = {path.name: path for each in folders for path in sorted(each.glob(f"*{SUFFIX}"))}
    for path in paths.values():
        text = path.read_text(encoding="utf-8")
        for word, meant in words.items():
            text = text.replace(word, meant)
        made = folder / path.name.removesuffix(SUFFIX)
        # A new file only: whoever else writes here meanwhile loses nothing.
        with made.open("x", encoding="utf-8") as file:
            undo.callback(made.unlink, missing_ok=True)
            file.write(text)
    data = folder / "data"
    data.mkdir()
    undo.callback(shutil.rmtree, data, ignore_errors=True)
    write_demo_table(data / "sales.parquet", stores=STORES)
    if is_forecast:
        _divide(data)


def _divide(data: Path) -> None:
    """Make two tables of the demo's: of the days that have been, and of those to come."""
    rows = pq.read_table(data / "sales.parquet")
    is_known = pc.less(rows["date"], HELD_OUT_FROM)
    planned = rows.select(["store", "date", "price", "promotion", "sales"])
    sales = pc.if_else(is_known, planned["sales"], pa.scalar(None, pa.int64()))
    days = planned.set_column(4, "sales", sales)
    since = HELD_OUT_FROM - timedelta(weeks=WEEKS_BEFORE)
    pq.write_table(days.filter(pc.greater_equal(days["date"], since)), data / "days.parquet")
    pq.write_table(planned.filter(is_known), data / "sales.parquet")
