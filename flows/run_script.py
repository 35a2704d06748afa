"""The flow that runs any training script on nodes x processes."""

from partwise.calls.script import DEFAULT_INFRASTRUCTURE, ScriptCall
from partwise.errors import InputError
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.environments import resolve_script_packages
from partwise.flows.running.execute_gang import execute_gang
from partwise.flows.running.script_inputs import open_inputs
from partwise.planning.script import prepare_script
from partwise.runs.run import Run
from partwise.scripts.infrastructure import is_work_pool


@run_flow(ScriptCall, name="run-script")
def run_script(call: ScriptCall) -> Run:
    """Run a training script, or any command, as nodes x ranks_per_node processes.

    The script knows nothing of partwise: it finds torchrun's, Open MPI's and AzureML's environment
    variables, its inputs as paths, and a folder for what is to be kept. The run has a partition for
    each process, with its exit code, log, metrics and outputs.

    Example:
        >>> run = run_script(
        ...     "train.py",
        ...     source_directory="project",
        ...     arguments={"epochs": 3},
        ...     ranks_per_node=2,
        ... )  # doctest: +SKIP
        >>> run.artifact(0, "outputs/model.pt", torch.load)  # doctest: +SKIP

    Returns:
        The run; its status is SUCCESS.

    Raises:
        PackageError: The environment cannot be resolved; has the resolver's own words.
        InputError: An argument cannot be used, a script or an input is not there, or the cluster
            has no room for the processes; nothing was run.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: A process failed, or its time ran out; carries the run.
        RunCancelledError: The run was cancelled.
        ClusterError: Workers stayed busy for too long, or the cluster is gone.
    """
    store = open_store(call.store)
    if is_work_pool(call.cluster):
        # It imports Prefect, which takes a second.
        from partwise.flows.running.send_script import send_script

        return send_script(call, store)
    if call.infrastructure != DEFAULT_INFRASTRUCTURE:
        raise InputError(
            "infrastructure= is for a work pool: give cluster='work-pool/NAME', or leave it out."
        )
    found, shown = open_inputs(call.inputs, store)
    plan = prepare_script(call, found, store, shown, resolve_script_packages(call))
    return execute_gang(plan, call.store, call.cluster)
