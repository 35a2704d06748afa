"""Names of datasets: what a caller writes in the place of rows, `dataset://NAME@VERSION`."""

DATASET_SCHEME = "dataset://"


def is_reference(data: object) -> bool:
    """Whether a caller names a dataset."""
    return isinstance(data, str) and data.startswith(DATASET_SCHEME)
