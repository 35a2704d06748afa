"""How many shards rows are divided into: bounds, and a number that suits most runs."""

from partwise.errors import InputError

MAX_SHARDS = 65_536
_SHARD_BYTES = 64 * 2**20
_ROWS_PER_SHARD = 20_000
_FEW_ROWS = 400
"""From so many rows on, the time of a shard of its own is small beside theirs."""
_ROW_BYTES = 100


def default_n_shards(rows: int | None, size_bytes: int, slots: int) -> int:
    """Choose the number of shards.

    At least 8 per slot, or 12 where they have rows enough, keep the longest shard from delaying the
    end; up to 400 are cheap, and a later run with more workers must use the same number. `rows`
    None: nobody knows. `size_bytes` is in Arrow memory; `slots` partitions are worked on at once.
    """
    about = size_bytes // _ROW_BYTES if rows is None else rows
    by_rows = max(min(12 * slots, about // _FEW_ROWS), min(64, about // _ROWS_PER_SHARD))
    by_size = min(400, size_bytes // _SHARD_BYTES)
    # Above 25 GB the shards grow, but only to 256 MB: what is bigger is sorted more slowly.
    wanted = max(8 * slots, by_rows, by_size, size_bytes // (4 * _SHARD_BYTES))
    return max(1, min(wanted, MAX_SHARDS))


def check_n_shards(n_shards: int) -> int:
    """Return a number of shards that is in range, else raise an InputError."""
    if not 1 <= n_shards <= MAX_SHARDS:
        raise InputError(f"n_shards is {n_shards}: choose a number from 1 to {MAX_SHARDS}.")
    return n_shards
