"""A function that is called for each partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import partwise.connector.context as our_context
import partwise.connector.data_connector as our_data
from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.dpf_run import (  # noqa: E501
    DPFRun,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.entities import (  # noqa: E501
    ExecutionOptions,
    own_options,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.partition_context import (  # noqa: E501
    PartitionContext,
)
from partwise.compat.snowflake.snowpark.context import get_active_session
from partwise.compat.snowflake.snowpark.session import Session
from partwise.compat.snowflake.stages import rows_of, stage_store
from partwise.engine.options import ExecutionOptions as OwnExecutionOptions
from partwise.errors import InputError, RunExistsError, RunNotFoundError
from partwise.formatting import did_you_mean
from partwise.runs.run import Run
from partwise.sources.files.discovery import is_hidden
from partwise.sources.files.file_set import Files
from partwise.store.store import Store
from partwise.tables.column_names import names_in_words

FILE_COLUMN = "__FILE__"
"""With each file's path: of rows of a stage the key, which functions do not see."""


def given(
    data: our_data.DataConnector, context: our_context.PartitionContext, session: Session
) -> tuple[DataConnector, PartitionContext]:
    """Return rows and context as functions of theirs take them."""
    table = data.to_arrow()
    if FILE_COLUMN in table.column_names:
        data = our_data.DataConnector(table.drop_columns([FILE_COLUMN]))
    return DataConnector(data), PartitionContext(context, session)


@dataclass(frozen=True)
class MappedFunction:
    """A function of theirs as `map_partitions` calls it; what it returns counts for nothing."""

    function: Callable[[DataConnector, PartitionContext], Any]
    session: Session = field(default_factory=get_active_session)

    def __call__(self, data: our_data.DataConnector, context: our_context.PartitionContext) -> None:
        """Call it for one partition."""
        self.function(*given(data, context, self.session))


class DPF:
    """A function that is called for each partition of a frame or of the files of a stage.

    Args:
        func: Called as `func(data_connector, context)`.
        stage_name: Where runs are kept: a stage, a folder, or a URL.
    """

    def __init__(self, func: Callable[..., Any], stage_name: str) -> None:
        self._function = func
        self._store = stage_store(stage_name)

    def run(
        self,
        *,
        partition_by: str,
        snowpark_dataframe: Any,
        run_id: str,
        on_existing_artifacts: str = "error",
        execution_options: ExecutionOptions | OwnExecutionOptions | None = None,
    ) -> DPFRun:
        """Start a run over a frame's rows: of Snowpark, pandas or polars, or an Arrow table.

        Raises:
            RunExistsError: It exists, and `on_existing_artifacts` is "error".
        """
        rows = {"data": rows_of(snowpark_dataframe), "partition_by": partition_by}
        return self._started(rows, run_id, on_existing_artifacts, execution_options)

    def run_from_stage(
        self,
        stage_location: str,
        run_id: str,
        file_pattern: str = "*.parquet",
        partition_ids: Sequence[str] | None = None,
        on_existing_artifacts: str = "error",
        execution_options: ExecutionOptions | OwnExecutionOptions | None = None,
    ) -> DPFRun:
        """Start a run in which each file of a folder is a partition, named by its path there.

        With `partition_ids` these files alone are, whatever the pattern says.

        Raises:
            RunExistsError: It exists, and `on_existing_artifacts` is "error".
            InputError: The folder has no file of one of `partition_ids`, or has one that matches
                and would be left out.
        """
        folder = stage_store(stage_location)
        files = _files(folder, file_pattern, partition_ids)
        rows = {"data": files, "partition_by": FILE_COLUMN}
        return self._started(rows, run_id, on_existing_artifacts, execution_options)

    def _started(
        self,
        rows: dict[str, Any],
        run_id: str,
        on_existing_artifacts: str,
        options: ExecutionOptions | OwnExecutionOptions | None,
    ) -> DPFRun:
        if on_existing_artifacts not in ("error", "overwrite"):
            raise InputError(
                f'on_existing_artifacts is "error" or "overwrite", not {on_existing_artifacts!r}.'
            )
        if on_existing_artifacts == "error":
            refuse_existing(run_id, self._store)
        flow, settings = self._call()
        work = flow.start(
            **rows,
            **settings,
            run_id=run_id,
            store=self._store,
            on_existing_artifacts=on_existing_artifacts,
            execution=own_options(options),
        )
        return self._handle(run_id, work)

    def _call(self) -> tuple[Any, dict[str, Any]]:
        """Return the flow that this is a call of, and what is said of the function there."""
        # Here: workers read the module for the function, and know no flows.
        from partwise.flows import map_partitions

        return map_partitions, {"function": MappedFunction(self._function, self._session())}

    def _session(self) -> Session:
        """Return the session that the function is given."""
        return get_active_session().of_store(self._store)

    def _handle(self, run_id: str, work: Any) -> DPFRun:
        return DPFRun(run_id, self._store, work)


def _files(folder: str, file_pattern: str, partition_ids: Sequence[str] | None) -> Files:
    """Return the files of a folder that are partitions."""
    there = dict.fromkeys(Store.of(folder).list(""))
    if partition_ids is None:
        matches = (each for each in there if PurePosixPath(each).match(file_pattern))
        if hidden := [each for each in matches if is_hidden(each)]:
            raise InputError(
                f"Files of {folder} match {file_pattern!r} and would be left out, since a part of "
                f"their path begins with '.' or '_': {names_in_words(hidden, 5)}. Rename them, or "
                "name the files by partition_ids."
            )
        # Files in folders of the stage match as well, as there.
        return Files(f"{folder}/**/{file_pattern}", file_column=FILE_COLUMN)
    wanted = dict.fromkeys(map(str, partition_ids))
    if missing := [each for each in wanted if each not in there]:
        raise InputError(
            f"partition_ids names files that {folder} has not: {names_in_words(missing, 5)}."
            f"{did_you_mean(missing[0], there)}"
        )
    return Files(list(wanted), folder=folder, file_column=FILE_COLUMN)


def refuse_existing(run_id: str, store: str) -> None:
    """See to it that no run of this name is there: the run itself would find it only later."""
    try:
        run = Run.open(run_id, store)
    except RunNotFoundError:
        return
    raise RunExistsError(
        f"The run {run_id!r} exists in {store} ({run.status.value}): pass another run_id, or "
        'on_existing_artifacts="overwrite".'
    )
