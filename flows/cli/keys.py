"""Which partitions are meant by keys as they are typed."""

from collections.abc import Sequence

from partwise.errors import InputError, PartitionNotFoundError
from partwise.formatting import MOST_TO_COMPARE, did_you_mean
from partwise.outcomes import RunStatus
from partwise.runs.key_texts import key_texts, parse_key
from partwise.runs.run import Run


def find_partition(run: Run, text: str) -> str:
    """Return the partition_id that is meant by a key, as `parse_key` reads it, or by itself.

    Raises:
        InputError: The text is not a key of the run's classes.
        PartitionNotFoundError: The run has no such partition.
    """
    return find_partitions(run, [text])[0]


def find_partitions(run: Run, texts: Sequence[str]) -> list[str]:
    """Return the partition_id of each text, as `find_partition` does.

    Raises:
        InputError: A text is not a key of the run's classes.
        PartitionNotFoundError: The run has no such partition.
    """
    known = set(run.ledger["partition_id"].to_pylist())
    found = []
    for text in texts:
        try:
            name = run.partition_id(parse_key(text, run.key_columns))
        except InputError:
            if text not in known:
                raise
            name = text
        if name not in known and text not in known:
            unfinished = " yet" if run.status is RunStatus.IN_PROGRESS else ""
            hint = did_you_mean(text, key_texts(run.ledger, MOST_TO_COMPARE))
            raise PartitionNotFoundError(
                f"The run {run.run_id!r} has no partition {text!r}{unfinished}.{hint}"
            )
        found.append(name if name in known else text)
    return found
