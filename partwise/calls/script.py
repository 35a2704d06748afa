"""The call of a training script, or of any command, on nodes x processes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar

from partwise.calls.call import WHERE, Call, CallKind, Role
from partwise.choices import OnExistingWhole
from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.scripts.infrastructure import Infrastructure

if TYPE_CHECKING:
    from partwise.calls.parameters import (
        ArgumentsParameter,
        BackendParameter,
        ClusterParameter,
        CommandParameter,
        InputsByNameParameter,
        PathParameter,
        TextsByNameParameter,
        TextsParameter,
    )

DEFAULT_INFRASTRUCTURE = Infrastructure()
MONTH_S = 30 * 24 * 3600.0
"""After which a script is ended where nothing else is said: as AzureML has it."""


@dataclass(frozen=True)
class ScriptCall(Call):
    """A call of `run_script`."""

    kind: ClassVar[CallKind] = "run-script"

    entry_script: PathParameter = ""
    """The Python script, relative to source_directory."""
    _: KW_ONLY
    source_directory: PathParameter = "."
    """The folder that the processes get a copy of, but for what .gitignore and .partwiseignore
    name; run://RUN is the one that a run was begun with."""
    arguments: ArgumentsParameter = ()
    """Arguments of the script: a list of words, or by name: {"epochs": 3} becomes --epochs 3, True
    or an empty text the name alone, and a list several values. {inputs.NAME}, {outputs},
    {checkpoints} and {resume_from} in them stand for paths, $RANK, $LOCAL_RANK, $NODE_RANK,
    $WORLD_SIZE, $MASTER_ADDR and $MASTER_PORT for their values."""
    command: CommandParameter = ""
    """In place of a script: a command line for the shell, or a list of words."""
    nodes: int = 1
    """Dask workers with processes, 1 or more."""
    ranks_per_node: int = 1
    """Processes on each of them, 1 or more."""
    cpus: int = -1
    """CPUs of each process, as OMP_NUM_THREADS says them. -1: all there are, in equal parts."""
    gpus: int = -1
    """GPUs of each process. -1: those there are, in equal parts."""
    backend: BackendParameter = "none"
    """What the processes exchange data by: gloo or nccl, which find each other by the environment
    variables; mpi, which has Open MPI start them; or none."""
    environment_variables: TextsByNameParameter = field(default_factory=dict)
    """More variables of the processes. They are written down in the run."""
    inputs: InputsByNameParameter = field(
        default_factory=dict, metadata=Role(is_data=True).metadata
    )
    """By name: a path or URL of a file or folder, a dataset, dataset://sales@3, artifacts of a run,
    run://RUN/0/outputs/model.pt, or rows, as train_models takes them. The processes find each as a
    path, in the variable PARTWISE_INPUT_NAME."""
    outputs: TextsParameter = ("outputs/**",)
    """Globs relative to the working folder: what is kept with the run."""
    resume_from: PathParameter = ""
    """Another run of the store, or a folder or URL, with files that the script begins with, where
    the run has no checkpoint of its own."""
    resume_argument: str = "--resume-from"
    """How the script is given the path of what it resumes from, besides the variable
    PARTWISE_RESUME_FROM. Empty: not at all."""
    timeout_s: float = MONTH_S
    """Seconds after which an attempt is ended: SIGTERM, and after the grace SIGKILL, to all that it
    has started."""
    grace_s: float = 30.0
    """Seconds that processes have to end by themselves, once they are asked to."""
    join_timeout_s: float = 300.0
    """Seconds to wait for workers that are busy with something else."""
    max_retries: int = 0
    """How often all processes are started again after one has failed, from the last checkpoint
    where there is one."""
    on_existing_artifacts: OnExistingWhole = field(default="error", metadata=WHERE)
    """When the run exists: "error", "overwrite" it, or "resume": do nothing where it is done with
    the same files, inputs and settings, and else begin again, from the last checkpoint where there
    is one."""
    environment: Environment = DEFAULT_ENVIRONMENT
    """Packages of the script's own, in place of those of the workers: resolved with uv on this
    machine, built once on each worker's. Empty: the workers' own Python."""
    cluster: ClusterParameter = field(default="", metadata=WHERE)
    """The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or CustomCluster
    block, the name of one that is saved, such as cuda-cluster/big, or a scheduler's address; or a
    work pool, work-pool/NAME, in which the whole call is then carried out, on the machine that a
    worker of the pool starts it on."""
    infrastructure: Infrastructure = field(default=DEFAULT_INFRASTRUCTURE, metadata=WHERE)
    """The machine and container that it needs in a work pool."""
