"""The flow that calls a function for every partition."""

from partwise.calls.partitions import MapCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_output, open_rows_of
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_shards import execute
from partwise.planning.partitions import prepare_mapping
from partwise.runs.run import Run
from partwise.tasks.publish_rows import with_output


@run_flow(MapCall, name="map-partitions")
def map_partitions(call: MapCall) -> Run:
    """Call a function for every partition, and keep what it returns and uploads as a run.

    Example:
        >>> run = map_partitions("sales.parquet", "store", "reports:draw")  # doctest: +SKIP
        >>> run.predictions()  # doctest: +SKIP

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
        OutputError: The run is complete, but its rows are not all in the table.
    """
    output = open_output(call.output)
    plan = prepare_mapping(
        call,
        open_rows_of(call),
        output=output,
        earlier_keys=earlier_keys(call),
        packages=resolve_packages(call),
    )
    return with_output(execute(plan, call.store, call.cluster), output, call.execution)
