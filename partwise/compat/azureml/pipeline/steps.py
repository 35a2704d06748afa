"""A parallel run: a script that is called for each mini-batch of rows or files."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.compat.azureml.core.environment import Environment
from partwise.compat.azureml.core.workspace import Workspace
from partwise.compat.azureml.pipeline.entry_script import PATHS, EntryScript, content_of
from partwise.compat.counts import count_of
from partwise.engine.options import ExecutionOptions
from partwise.environments.environment import DEFAULT_ENVIRONMENT
from partwise.errors import InputError

MINI_BATCH = "mini_batch"


@dataclass(slots=True)
class ParallelRunConfig:
    """The settings of a parallel run.

    Rows need `partition_keys`: each key is a mini-batch. Of files, `mini_batch_size` are one.
    `node_count`, `process_count_per_node` and `logging_level` are the cluster's own matter.
    """

    environment: Environment | None = None
    entry_script: str | None = None
    error_threshold: int = -1
    output_action: str = "append_row"
    compute_target: Any = None
    node_count: int = 1
    process_count_per_node: int | None = None
    mini_batch_size: int | str | None = None
    source_directory: str | None = None
    description: str | None = None
    logging_level: str = "INFO"
    run_invocation_timeout: int = 60
    run_max_try: int = 3
    append_row_file_name: str | None = None
    allowed_failed_count: int | None = None
    allowed_failed_percent: float | None = None
    partition_keys: list[str] | None = None
    environment_variables: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.output_action not in ("append_row", "summary_only"):
            raise InputError(
                f"output_action={self.output_action!r} is neither append_row nor summary_only."
            )
        script = Path(self.source_directory or ".", self.entry_script or "")
        if not script.is_file():
            raise InputError(f"There is no entry script at {str(script)!r}.")

    def execution(self) -> ExecutionOptions:
        """Return how long and how often a mini-batch is tried, and how many may fail."""
        budgets = [count_of("error_threshold", self.error_threshold, -1)]
        if self.allowed_failed_count is not None:
            budgets.append(count_of("allowed_failed_count", self.allowed_failed_count, -1))
        given = [each for each in budgets if each >= 0]
        percent = self.allowed_failed_percent
        if isinstance(percent, str):
            raise InputError(f"allowed_failed_percent={percent!r} is no number: give 0 to 100.")
        return ExecutionOptions(
            timeout_s=self.run_invocation_timeout,
            max_retries=count_of("run_max_try", self.run_max_try) - 1,
            max_failed=min(given) if given else None,
            max_failed_fraction=None if percent is None else percent / 100,
        )


@dataclass(slots=True)
class ParallelRunStep:
    """What `Experiment.submit` runs by `map_partitions`.

    `inputs` is what `map_partitions` takes as rows, or without `partition_keys` a list of files or
    a folder of them. `output` is not used: `Run.download_file` writes the rows.
    """

    name: str
    parallel_run_config: ParallelRunConfig
    inputs: Any
    output: Any = None
    side_inputs: Any = None
    arguments: list[Any] | None = None
    allow_reuse: bool = True

    def __post_init__(self) -> None:
        if self.side_inputs:
            raise InputError(
                "side_inputs= has no counterpart: give their paths in arguments, which init() "
                "finds in sys.argv."
            )
        if self.output is not None:
            warnings.warn(
                f"output={self.output!r} is not written: Run.download_file"
                f"({self.append_row_file_name!r}) writes the rows where you say.",
                stacklevel=3,
            )

    @property
    def append_row_file_name(self) -> str:
        """The file that `Run.download_file` writes."""
        return self.parallel_run_config.append_row_file_name or "parallel_run_step.txt"

    def arguments_of_map(self, workspace: Workspace) -> dict[str, Any]:
        """Return the arguments of `map_partitions`."""
        config = self.parallel_run_config
        keys = list(config.partition_keys or ())
        script = Path(config.source_directory or ".", config.entry_script or "").resolve()
        environment = config.environment
        of_environment = environment.environment_variables if environment else {}
        if names := [*(config.environment_variables or {}), *of_environment]:
            raise InputError(
                f"The environment variables {', '.join(names)} have no counterpart in a parallel "
                "run: set them in init() of the entry script, or where the workers are started."
            )
        return {
            "data": self.inputs if keys else self._files(),
            "partition_by": keys or MINI_BATCH,
            "function": EntryScript(
                str(script),
                content_of(script),
                tuple(str(each) for each in self.arguments or ()),
                of_files=not keys,
                keeps_rows=config.output_action == "append_row",
            ),
            "environment": environment.packages if environment else DEFAULT_ENVIRONMENT,
            "execution": config.execution(),
            "cluster": workspace.cluster(config.compute_target),
        }

    def _files(self) -> pa.Table:
        """Return the paths of files with the numbers of their mini-batches."""
        given_size = self.parallel_run_config.mini_batch_size
        size = 10 if given_size is None else given_size
        if not (str(size).isdecimal() and int(size)):
            raise InputError(
                f"mini_batch_size={size!r} is a size of rows: give partition_keys=, by which rows "
                "are divided here; of files it is how many are one mini-batch."
            )
        given = self.inputs
        if isinstance(given, str | Path):
            path = Path(given)
            given = [path] if path.is_file() else [e for e in path.rglob("*") if e.is_file()]
        paths = sorted(str(Path(each).resolve()) for each in given)
        if not paths:
            raise InputError(f"There is no file at inputs={self.inputs!r}.")
        numbers = [number // int(size) for number in range(len(paths))]
        return pa.table({PATHS: paths, MINI_BATCH: numbers})
