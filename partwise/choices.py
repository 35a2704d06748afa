"""Choices of which callers name one: sets of words that signatures, forms and commands offer.

They stand below all rooms, since the rooms that use them import pyarrow, and the help of a command
does without.
"""

from typing import Literal

OnExisting = Literal["error", "overwrite", "resume", "resume-failed"]
"""What becomes of a run that exists."""

OnExistingWhole = Literal["error", "overwrite", "resume"]
"""The same of one whose partitions are not each done by itself."""

GOES_ON: tuple[OnExisting, ...] = ("resume", "resume-failed")
"""Which of these go on with it."""

NullKeys = Literal["error", "drop", "keep"]
"""What happens to a row whose key is null: refuse the data, leave the row out, or keep it as the
partition of the null key."""

OnMissingModel = Literal["fail", "skip", "previous", "previous-or-skip"]
"""What becomes of a partition without a model."""

ASKS_PREVIOUS: tuple[OnMissingModel, ...] = ("previous", "previous-or-skip")
"""Which of these ask earlier runs first."""

SKIPS: tuple[OnMissingModel, ...] = ("skip", "previous-or-skip")
"""Which of these skip it in the end."""

Format = Literal["parquet", "csv", "json", "orc", "ipc", "excel"]
"""The formats of files; json: a JSON object on each line."""

SchemaPolicy = Literal["cast", "strict", "union"]
"""What becomes of schemas that differ: the columns of the first, of common types; a refusal; the
columns of all, of common types."""

Task = Literal["regression", "binary", "multiclass"]
"""What a model predicts."""

FitOn = Literal["auto", "train", "all"]
"""The rows that the kept model is trained on: `fits_on_all` says what "auto" is."""

Direction = Literal["", "minimize", "maximize"]
"""Which scores are better; empty: as the metric's name says, and the lower of a function's."""

ScriptBackend = Literal["none", "gloo", "nccl", "mpi"]
"""How the ranks of a script find each other: by torchrun's variables, or started by mpirun."""

TransformersFormat = Literal["onnx", "torchscript", "pt2", "neuron"]
"""What a model of transformers becomes."""

Preprocessor = Literal[
    "auto", "none", "tokenizer", "feature_extractor", "image_processor", "processor"
]
"""What makes real inputs of a model of transformers."""
