"""Calling a flow from the command line, once what can be refused has been refused."""

from typing import TYPE_CHECKING

from partwise.calls.call import Call, VersionedCall
from partwise.calls.partitions import TrainCall
from partwise.calls.pipeline import PipelineCall
from partwise.calls.script import ScriptCall
from partwise.choices import GOES_ON
from partwise.engine.driver.named_modules import named_modules
from partwise.environments.environment import DEFAULT_ENVIRONMENT
from partwise.errors import RunCancelledError, RunFailedError
from partwise.flows.cli.exit_codes import code_of, code_of_run
from partwise.flows.cli.news import plain_news, server_of_runs, shown
from partwise.flows.cli.options import ClusterOptions
from partwise.flows.cli.run_output import print_run
from partwise.planning.refusals import check_call
from partwise.processes.worker_server import begin_worker_server
from partwise.runs.pipeline import Pipeline
from partwise.trainers.scored import ScoredTrainer

if TYPE_CHECKING:
    from partwise.runs.run import Run


def call_and_print(call: Call) -> int:
    """Carry out a call, print how its run ended, and return the exit code.

    Raises:
        RunFailedError: The run ended with FAILURE; it is printed all the same.
        RunCancelledError: It was cancelled; it is printed all the same.
        InputError: The call cannot be carried out; no server was started.
    """
    with shown("partwise"):
        call = check_call(call)
    if _will_start_workers(call):
        # On another core than the imports below.
        begin_worker_server()
        _begin_loading(call)
    # They import what flows need, which a call that is refused does without.
    from partwise.flows.orchestration.interruption import interrupts, watched_work

    with plain_news(), watched_work() as work:
        try:
            run = call_flow(call)
            for part in run.runs if isinstance(run, Pipeline) else [run]:
                print_run(part)
        except (RunFailedError, RunCancelledError) as error:
            if error.run is not None:
                print_run(error.run)
            raise
        except interrupts():
            if not work.has_begun:
                raise
            # For the second time, or while its end was printed.
            hint = f"partwise runs resume {call.run_id}"
            if isinstance(call, PipelineCall):
                hint = f"the same with --run-id {call.run_id} --on-existing-artifacts resume"
            raise KeyboardInterrupt(f"interrupted; {hint} goes on with what is not done") from None
    return code_of(run.status) if isinstance(run, Pipeline) else code_of_run(run)


def _will_start_workers(call: Call) -> bool:
    """Whether a call, as far as can be seen, starts workers here; a resume may have none to do."""
    where = call.cluster if isinstance(call, VersionedCall | ScriptCall) else None
    # Nothing said: one process for each core of this machine.
    is_here = where == "" or (isinstance(where, ClusterOptions) and where.is_local)
    return is_here and call.on_existing_artifacts not in GOES_ON


def _begin_loading(call: Call) -> None:
    """Begin to load the libraries of a trainer, where these are known by its type alone."""
    if not isinstance(call, TrainCall) or not isinstance(call.trainer, ScoredTrainer):
        return
    if call.environment == DEFAULT_ENVIRONMENT and call.execution.gpus is None:
        from partwise.engine.driver.preloading import preload_here

        preload_here(named_modules(call.trainer), call.execution.cpus)


def call_flow(call: Call) -> "Run | Pipeline":
    """Carry out a call by its flow, and return its run, or its pipeline of runs.

    Raises:
        InputError: The address of the cluster is refused.
        RunFailedError: It ended with FAILURE.
        RunCancelledError: It was cancelled.
    """
    opened = {
        key: value.build() if isinstance(value, ClusterOptions) else value
        for key, value in call.parameters().items()
    }
    with server_of_runs():
        from partwise import flows

        run: Run | Pipeline = getattr(flows, call.flow())(**opened)
        return run
