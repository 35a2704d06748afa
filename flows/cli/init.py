"""`partwise init`: a project of one's own."""

import shlex
from pathlib import Path
from typing import Literal

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import SUCCESS

_OF_ALL = {
    "prefect.yaml": "a nightly training and a forecast after it, for `partwise up`",
    "README.md": "the commands for all of it",
}
_FILES = {
    "function": {
        "forecast.py": "the function that trains the model of one store; test_forecast.py tests it",
        "data/sales.parquet": "daily sales of 20 made-up stores, to be replaced by your own table",
        **_OF_ALL,
    },
    "forecast": {
        "forecast.py": "what is forecast, of what, and how it is scored; test_forecast.py tests it",
        "data/sales.parquet": "daily sales of 20 made-up stores, to be replaced by your own table",
        "data/days.parquet": "the days to come, with prices and promotions that are planned",
        **_OF_ALL,
    },
}
_TRAINERS = {"function": "forecast:fit", "forecast": "forecast:trainer"}


def init(name: str, /, *, template: Literal["function", "forecast"] = "function") -> int:
    """Make a project of your own: a function with its test, a small table, and deployments.

    All of it works as it stands, and is meant to be changed.

    Args:
        name: The project's folder, which is made here; or one that is empty. Letters, digits, "-"
            and "_".
        template: function: one of your own trains the model of each key. forecast: predicts days
            that the table does not have, with bounds.
    """
    from partwise.flows.project.new_project import write_project

    if not name:
        raise InputError("The name is empty: give that of a folder to be made.")
    folder = Path(name)
    project = write_project(folder, template)
    output.print_line(f"{project} is a project, in {folder.resolve()}")
    files = _FILES[template]
    width = max(map(len, files))
    for file, what in files.items():
        output.print_line(f"  {file:<{width}}  {what}")
    train = "partwise train data/sales.parquet --partition-by store --trainer"
    go = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(name)} && "
    output.print_line(f"next: {go}{train} {_TRAINERS[template]}")
    return SUCCESS
