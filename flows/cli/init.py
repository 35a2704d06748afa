"""`partwise init`: a project of one's own."""

import shlex
from pathlib import Path

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import SUCCESS

_FILES = {
    "forecast.py": "the function that trains the model of one store; test_forecast.py tests it",
    "data/sales.parquet": "daily sales of 20 made-up stores, to be replaced by your own table",
    "prefect.yaml": "a nightly training and a forecast after it, for `partwise up`",
    "README.md": "the commands for all of it",
}


def init(name: str, /) -> int:
    """Make a project of your own: a function with its test, a small table, and deployments.

    All of it works as it stands, and is meant to be changed.

    Args:
        name: The project's folder, which is made here; or one that is empty. Letters, digits, "-"
            and "_".
    """
    from partwise.flows.project.new_project import write_project

    if not name:
        raise InputError("The name is empty: give that of a folder to be made.")
    folder = Path(name)
    project = write_project(folder)
    out = output.console()
    out.print(f"{project} is a project, in {folder.resolve()}", markup=False)
    width = max(len(file) for file in _FILES)
    for file, what in _FILES.items():
        out.print(f"  {file:<{width}}  {what}", markup=False)
    train = "partwise train data/sales.parquet --partition-by store --trainer forecast:fit"
    go = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(name)} && "
    out.print(f"next: {go}{train}", markup=False)
    return SUCCESS
