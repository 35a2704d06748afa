"""The flow that finds the few settings of a trainer that together do best on all partitions."""

from partwise.calls.partitions import PortfolioCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_rows_of
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.execute_shards import execute
from partwise.planning.portfolio import (
    pick_portfolio,
    prepare_portfolio,
    settings_to_score,
)
from partwise.runs.run import Run
from partwise.tasks.steps import run_logger


@run_flow(PortfolioCall, name="find-portfolio")
def find_portfolio(call: PortfolioCall) -> Run:
    """Score the same settings on a sample of partitions, and pick the few that do best together.

    `Tuned(trainer, portfolio=run_id)` then tries just these on each of all partitions.

    Example:
        >>> run = find_portfolio("sales.parquet", "store", trainer, space)  # doctest: +SKIP
        >>> run.portfolio.settings  # doctest: +SKIP
        ({}, {'learning_rate': 0.03, 'num_leaves': 12})

    Returns:
        The run. `run.portfolio` has the settings, and `run.predictions()` all scores: a row for
        each partition and setting.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    tuned = settings_to_score(call)
    plan = prepare_portfolio(call, open_rows_of(call), tuned, earlier_keys=earlier_keys(call))
    run = execute(plan, call.store, call.cluster)
    portfolio = pick_portfolio(run, tuned, call.size)
    if portfolio is not None:
        run_logger().info(
            "Run %s: %d of %d settings picked, which leave %.0f%% of the regret of the trainer's "
            "own, on %d partitions.",
            run.run_id,
            len(portfolio.settings),
            portfolio.tried,
            100 * portfolio.regrets[-1] / (portfolio.regrets[0] or 1),
            portfolio.partitions,
        )
    return run
