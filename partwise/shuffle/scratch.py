"""The driver's folder for the rows of a run, which goes even when the driver is killed."""

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from partwise.store.entry_locks import passing_folder

PREFIX = "partwise-rows-"


def run_scratch() -> AbstractContextManager[Path]:
    """Give a temporary folder, and remove those that killed processes have left."""
    return passing_folder(Path(tempfile.gettempdir()), PREFIX)
