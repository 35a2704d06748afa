"""`partwise train`, `infer`, `compare`, `map`, `find-portfolio`: each partition by itself."""

from typing import Annotated

from cyclopts import Group, Parameter

from partwise.calls.partitions import (
    CompareCall,
    EvaluateCall,
    InferCall,
    MapCall,
    PortfolioCall,
    TrainCall,
)
from partwise.engine.options import ExecutionOptions
from partwise.flows.cli.command import Read, command_of, without
from partwise.flows.cli.options import EXECUTION, Names, TrainerOptions
from partwise.flows.cli.parsing import split_names
from partwise.flows.cli.tuning_options import (
    TUNING,
    Space,
    TunedTrainerOptions,
    searched_arguments,
)

train = command_of(
    TrainCall,
    "Train one model per partition, and keep them as a run.",
    types={"trainer": Annotated[TunedTrainerOptions, Read(value=TunedTrainerOptions.build)]},
)

infer = command_of(
    InferCall,
    """Infer every partition with its own model of a training run, or of a catalog.

    The run keeps the predictions: partwise runs export RUN --what predictions --to FILE writes them
    to a .csv or .parquet file.
    """,
    group=Group("Inference", sort_key=1),
)

compare = command_of(
    CompareCall,
    """Compare several models of each key, each on the very same rows.

    partwise promote makes the better ones champions of a catalog; the report has wins, losses and
    the worst regressions.
    """,
    group=Group("Comparison", sort_key=0),
    types={
        "candidates": Annotated[Names, Read(value=split_names)],
    },
)

evaluate = command_of(
    EvaluateCall,
    """See whether the predictions of an inference run came true, key by key.

    The report ranks the keys that got worse; partwise train --only RUN trains these again.
    """,
    group=Group("Evaluation", sort_key=0),
)

map_ = command_of(
    MapCall,
    "Call a function for every partition, and keep what it returns and uploads.",
    group=Group("Function", sort_key=0),
)


find_portfolio = command_of(
    PortfolioCall,
    """Find on a sample of partitions the few settings of a trainer that do best together.

    Each partition of `partwise train --portfolio RUN_ID` then tries just these.
    """,
    group=TUNING,
    types={
        "trainer": Annotated[
            TrainerOptions,
            Read(value=searched_arguments, fields=("trainer", "metric", "holdout", "label")),
        ],
        "space": Space,
        "execution": Annotated[
            # Which partitions are worked on says `--sample` of the call.
            without(ExecutionOptions, "sample"),
            Parameter(name="*", group=EXECUTION),
        ],
    },
)
