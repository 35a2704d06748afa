"""The flow that runs any training script on nodes x processes."""

from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.errors import InputError
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_store
from partwise.flows.running.environments import resolve_script_packages
from partwise.flows.running.execute_gang import execute_gang
from partwise.flows.running.parameters import (
    NONE_GIVEN,
    ClusterParameter,
    CommandParameter,
    InputsByNameParameter,
    ParamsByNameParameter,
    StoreParameter,
    TextsByNameParameter,
    TextsParameter,
)
from partwise.flows.running.prepare_script import ScriptCall, prepare_script
from partwise.flows.running.script_inputs import open_inputs
from partwise.flows.running.send_script import send_script
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run
from partwise.scripts.infrastructure import Infrastructure, is_work_pool
from partwise.scripts.spec import MONTH_S, ScriptBackend

DEFAULT_INFRASTRUCTURE = Infrastructure()


@run_flow(name="run-script", kind="run-script", opaque=("inputs",))
def run_script(
    entry_script: str = "",
    *,
    source_directory: str = ".",
    params: ParamsByNameParameter = NONE_GIVEN,
    arguments: TextsParameter = (),
    command: CommandParameter = "",
    run_id: str = "",
    store: StoreParameter = "artifacts",
    node_count: int = 1,
    process_count_per_node: int = 1,
    cpus_per_process: int = -1,
    gpus_per_process: int = -1,
    backend: ScriptBackend = "none",
    environment_variables: TextsByNameParameter = NONE_GIVEN,
    inputs: InputsByNameParameter = NONE_GIVEN,
    outputs: TextsParameter = ("outputs/**",),
    resume_from: str = "",
    resume_argument: str = "--resume-from",
    max_run_duration_s: float = MONTH_S,
    grace_s: float = 30.0,
    join_timeout_s: float = 300.0,
    max_restarts: int = 0,
    on_existing_artifacts: OnExisting = "error",
    environment: Environment = DEFAULT_ENVIRONMENT,
    compute_target: ClusterParameter = "",
    infrastructure: Infrastructure = DEFAULT_INFRASTRUCTURE,
) -> Run:
    """Run a training script, or any command, as node_count x process_count_per_node processes.

    The script knows nothing of partwise: it finds torchrun's, Open MPI's and AzureML's environment
    variables, its inputs as paths, and a folder for what is to be kept. The run has a partition for
    each process, with its exit code, log, metrics and outputs.

    Example:
        >>> run = run_script(
        ...     "train.py",
        ...     source_directory="project",
        ...     params={"epochs": 3},
        ...     process_count_per_node=2,
        ... )  # doctest: +SKIP
        >>> run.artifact(0, "outputs/model.pt", torch.load)  # doctest: +SKIP

    Args:
        entry_script: The Python script, relative to source_directory.
        source_directory: The folder that the processes get a copy of, but for what .gitignore and
            .partwiseignore name; run://RUN is the one that a run was begun with.
        params: Arguments of the script by name: {"epochs": 3} becomes --epochs 3, True the name
            alone, and a list several values.
        arguments: More arguments. {inputs.NAME}, {outputs}, {checkpoints} and {resume_from} in them
            stand for paths, $RANK, $LOCAL_RANK, $NODE_RANK, $WORLD_SIZE, $MASTER_ADDR and
            $MASTER_PORT for their values.
        command: In place of a script: a command line for the shell, or a list of words.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        node_count: Dask workers with processes, 1 or more.
        process_count_per_node: Processes on each of them, 1 or more.
        cpus_per_process: CPUs of each process, as OMP_NUM_THREADS says them. -1: all there are, in
            equal parts.
        gpus_per_process: GPUs of each process. -1: those there are, in equal parts.
        backend: What the processes exchange data by: gloo or nccl, which find each other by the
            environment variables; mpi, which has Open MPI start them; or none.
        environment_variables: More variables of the processes. They are written down in the run.
        inputs: By name: a path or URL of a file or folder, a dataset, dataset://sales@3, artifacts
            of a run, run://RUN/0/outputs/model.pt, or rows, as train_models takes them. The
            processes find each as a path, in the variable PARTWISE_INPUT_<NAME>.
        outputs: Globs relative to the working folder: what is kept with the run.
        resume_from: Another run of the store, or a folder or URL, with files that the script begins
            with, where the run has no checkpoint of its own.
        resume_argument: How the script is told the path of what it resumes from, besides the
            variable PARTWISE_RESUME_FROM. Empty: not at all.
        max_run_duration_s: Seconds after which an attempt is ended: SIGTERM, and after the grace
            SIGKILL, to all that it has started.
        grace_s: Seconds that processes have to end by themselves, once they are told to.
        join_timeout_s: Seconds to wait for workers that are busy with something else.
        max_restarts: How often all processes are started again after one has failed, from the last
            checkpoint where there is one.
        on_existing_artifacts: When the run exists: "error", "overwrite" it, or "resume": do nothing
            where it is done with the same files, inputs and settings, and else begin again, from
            the last checkpoint where there is one.
        environment: Packages of the script's own, in place of those of the workers: resolved with
            uv on this machine, built once on each worker's. Empty: the workers' own Python.
        compute_target: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster
            or CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address; or a work pool, work-pool/NAME, in which the whole call is then
            carried out, on the machine that a worker of the pool starts it on.
        infrastructure: The machine and container that it needs in a work pool.

    Returns:
        The run; its status is SUCCESS.

    Raises:
        PackageError: The environment cannot be resolved; has the resolver's own words.
        InputError: An argument cannot be used, a script or an input is not there, or the cluster
            has no room for the processes; nothing was run.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: A process failed, or its time ran out; carries the run.
        RunCancelled: The run was cancelled.
        ClusterError: Workers stayed busy for too long, or the cluster is gone.
    """
    opened = open_store(store)
    call = ScriptCall(
        run_id=run_id,
        entry_script=entry_script,
        command=command,
        source_directory=source_directory,
        params=params,
        arguments=arguments,
        node_count=node_count,
        process_count_per_node=process_count_per_node,
        cpus_per_process=cpus_per_process,
        gpus_per_process=gpus_per_process,
        backend=backend,
        environment_variables=environment_variables,
        outputs=outputs,
        resume_from=resume_from,
        resume_argument=resume_argument,
        max_run_duration_s=max_run_duration_s,
        grace_s=grace_s,
        join_timeout_s=join_timeout_s,
        max_restarts=max_restarts,
        on_existing_artifacts=on_existing_artifacts,
    )
    if is_work_pool(compute_target):
        return send_script(call, inputs, environment, store, opened, compute_target, infrastructure)
    if infrastructure != DEFAULT_INFRASTRUCTURE:
        raise InputError(
            "infrastructure= is for a work pool: give compute_target='work-pool/NAME', or leave it "
            "out."
        )
    found, shown = open_inputs(inputs, opened)
    resolved = resolve_script_packages(environment, run_id, store, on_existing_artifacts)
    plan = prepare_script(call, found, opened, shown, environment=environment, resolved=resolved)
    return execute_gang(plan, store, compute_target)
