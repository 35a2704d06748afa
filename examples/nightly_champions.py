"""Train every night, and use only what is better: train, compare, promote, infer.

    partwise demo                                       # makes demo/sales.parquet
    python examples/nightly_champions.py 2025-09-01
    python examples/nightly_champions.py 2025-10-01

Killed at any point, and called again, a night goes on where it was: each step is a run of its own
that is resumed, and the same promotion finds the version that it has made. What others see comes
last: predictions become a version of a dataset when all else is done. With Prefect's `flow` around
`night` it is deployed like any other flow.
"""

import sys
from datetime import date, timedelta
from typing import Any

from partwise import (
    Catalog,
    CatalogNotFoundError,
    Everything,
    ExecutionOptions,
    Improvement,
    LightGBMTrainer,
    Run,
    compare_models,
    promote_models,
    run_inference,
    train_models,
)

TRAINER = LightGBMTrainer(label="sales", features=["price", "promotion", "weekday"])
CATALOG = "stores"
# A gate: where more partitions fail, the night ends there, and yesterday's champions stay in use.
STRICT = ExecutionOptions(max_failed_fraction=0.05)
RULE = Improvement("rmse", by=0.02, min_rows=20)


def night(day: date, data: Any, store: str = "store", cluster: Any = "") -> Run:
    """Train on what was four weeks before a day, judge on these weeks, and predict what is after.

    Raises:
        RunFailedError: Too much failed: nothing was promoted.
    """
    split = day - timedelta(weeks=4)
    before, since = ("date", "<", split), ("date", ">=", split)
    given = {"store": store, "cluster": cluster, "on_existing_artifacts": "resume"}
    trained = train_models(
        data,
        "store",
        TRAINER,
        filter=[before],
        run_id=f"train-{day}",
        execution=STRICT,
        **given,
    )
    try:
        Catalog.open(CATALOG, store)
    except CatalogNotFoundError:
        promote_models(CATALOG, models=trained.run_id, rule=Everything(), store=store)
    compared = compare_models(
        data,
        "store",
        [f"catalog://{CATALOG}", trained.run_id],
        "sales",
        filter=[since, ("date", "<", day)],
        run_id=f"compare-{day}",
        execution=STRICT,
        **given,
    )
    promote_models(CATALOG, comparison=compared.run_id, rule=RULE, store=store)
    return run_inference(
        data,
        "store",
        models=f"catalog://{CATALOG}",
        fallback=[0],
        filter=[("date", ">=", day)],
        keep_columns=["date"],
        run_id=f"infer-{day}",
        output="dataset://forecasts",
        **given,
    )


if __name__ == "__main__":
    print(night(date.fromisoformat(sys.argv[1]), "demo/sales.parquet"))
