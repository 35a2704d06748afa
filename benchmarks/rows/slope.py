"""What each further partition costs, and each shard: a no-op function over very many rows."""

from benchmarks.frame.row import Contestant, Figures, Goal, Place, Row

FEW, MANY = "partwise, few in few shards", "partwise, ten times as many in many shards"
SHARDED = "partwise, few in many shards"
ROWS = 100


def row(place: Place) -> Row:
    """Run benchmarks/overhead.py at three places of a plane: partitions and shards."""
    few, few_shards, shards = place.size(10_000, 2_000), 20, place.size(200, 40)

    def run(name: str, partitions: int, n_shards: int) -> Contestant:
        sizes = ("--partitions", partitions, "--rows", ROWS, "--shards", n_shards)
        return Contestant(name, place.ours("benchmarks.overhead", *sizes, "--json"), "a run")

    def partition_s(found: Figures) -> float:
        return (found[MANY]["call s"] - found[SHARDED]["call s"]) / (9 * few)

    def shard_s(found: Figures) -> float:
        return (found[SHARDED]["call s"] - found[FEW]["call s"]) / (shards - few_shards)

    def fixed_s(found: Figures) -> float:
        return found[FEW]["call s"] - few * partition_s(found) - few_shards * shard_s(found)

    return Row(
        title="No-op slope",
        work=f"A function that does nothing over {few:,} partitions of {ROWS} rows in {few_shards} "
        f"and in {shards} shards, and over {10 * few:,} in {shards}: the call, with its cluster.",
        contestants=[
            run(FEW, few, few_shards),
            run(SHARDED, few, shards),
            run(MANY, 10 * few, shards),
        ],
        goals=[
            Goal("us a partition", 25, lambda found: partition_s(found) * 1e6),
            Goal("ms a shard", 10, lambda found: shard_s(found) * 1e3),
            Goal("s besides", 1.5, fixed_s),
        ],
        shown="call s",
        turns=place.size(3, 1),
        limit_s=place.size(600, 120),
    )
