"""A trial of the packages that a child process is to have: it imports what a child does."""

import numpy as np
import pyarrow as pa

import partwise.engine.child.main  # noqa: F401 (all that a child imports)


def main(argument: str) -> None:  # noqa: ARG001 (as `python_words` calls it)
    """Hand values from library to library as a partition's rows are."""
    import pandas as pd

    table = pa.table({"a": np.arange(2.0)})
    if pd.DataFrame(table.to_pandas())["a"].to_numpy().sum() != 1:
        raise RuntimeError("numbers change on their way between numpy, pyarrow and pandas")
