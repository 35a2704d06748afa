"""The flow that compares several models of each key on the same rows."""

from collections.abc import Sequence

import pyarrow as pa

from partwise.calls.partitions import CompareCall
from partwise.errors import PartwiseError
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_rows_of
from partwise.flows.running.earlier_call import EarlierCall, earlier_keys
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_shards import execute
from partwise.planning.comparison import Candidate, open_candidates, prepare_comparison
from partwise.runs.run import Run


@run_flow(CompareCall, name="compare-models")
def compare_models(call: CompareCall) -> Run:
    """Compare several models of each key, each on the very same rows, in one pass over the data.

    A row counts if it has a label and every candidate gave a finite number for it. A candidate that
    raises has no value there, and the ledger says why. Nothing is changed by it: promote_models
    does that, by a rule.

    Example:
        >>> run = compare_models(  # doctest: +SKIP
        ...     "new.parquet", "store", ["catalog://sales", "night-3"], "sales"
        ... )
        >>> Contest.of(run).table.to_pandas()  # doctest: +SKIP

    Returns:
        The run. `Contest.of(run).table` has a row for each key and candidate.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunNotFoundError: There is no such run among the candidates.
        CatalogNotFoundError: There is no such catalog, or no such version.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    candidates = open_candidates(call, open_store(call.store))
    source = open_rows_of(call)
    plan = prepare_comparison(
        call,
        source,
        candidates,
        reads=_columns_read(candidates, source.schema),
        earlier_keys=earlier_keys(call),
        packages=resolve_packages(call),
    )
    return execute(plan, call.store, call.cluster)


def _columns_read(candidates: Sequence[Candidate], schema: pa.Schema) -> list[str] | None:
    """Return the columns that all trainings looked at; None: others, or nobody knows which."""
    found: list[list[str] | None] = []
    for run in (run for each in candidates for run in each.trainings.values()):
        try:
            trainer = EarlierCall.of(run).trainer
            reads = getattr(trainer, "reads", None)
            found.append(None if reads is None else reads(schema))
        except PartwiseError:  # made elsewhere, or the rows lack a column
            found.append(None)
    return found[0] if found and all(each == found[0] for each in found) else None
