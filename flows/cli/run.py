"""`partwise run`: a training script, or any command, on nodes x processes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from partwise.calls.script import MONTH_S
from partwise.choices import OnExisting, ScriptBackend
from partwise.errors import InputError
from partwise.flows.cli.environment_options import EnvironmentOptions
from partwise.flows.cli.options import RUN, ClusterOptions, Names, StoreUrl
from partwise.flows.cli.parsing import parse_parameter
from partwise.scripts.infrastructure import Infrastructure

if TYPE_CHECKING:
    from collections.abc import Iterable

SCRIPT, PROCESSES = Group("Script", sort_key=0), Group("Processes", sort_key=1)


@Parameter(name="*", group=SCRIPT)
@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """What is run, and what it is given."""

    source_directory: Annotated[str, Parameter(alias="-d")] = "."
    """The folder that the processes get a copy of, but for what .gitignore and .partwiseignore
    name. run://RUN is the one that a run was begun with."""
    command: str = ""
    """In place of a script: a command line for the shell."""
    param: Names = ()
    """An argument of the script by its name, such as epochs=3; may be repeated."""
    input: Names = ()
    """A file, folder, URL, dataset or artifact of a run, as NAME=PATH; may be repeated. The script
    finds its path in PARTWISE_INPUT_<NAME>, and in arguments as {inputs.NAME}."""
    output: Names = ()
    """A glob of files that are kept, relative to the working folder; may be repeated. Default:
    outputs/**."""
    env: Names = ()
    """A variable of the processes, as NAME=VALUE; may be repeated."""
    resume_from: str = ""
    """Another run, or a folder or URL, with files that the script begins with."""
    resume_argument: str = "--resume-from"
    """How the script is told their path, besides PARTWISE_RESUME_FROM. Empty: not at all."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of the flow.

        Raises:
            InputError: One is not of the form name=value.
        """
        return {
            "source_directory": self.source_directory,
            "command": self.command,
            "inputs": _pairs("--input", self.input),
            "outputs": self.output or ("outputs/**",),
            "environment_variables": _pairs("--env", self.env),
            "resume_from": self.resume_from,
            "resume_argument": self.resume_argument,
        }


@Parameter(name="*", group=PROCESSES)
@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """How many processes there are, what each may use, and when they are ended."""

    nodes: Annotated[int, Parameter(alias="-n")] = 1
    """Dask workers with processes."""
    ranks_per_node: Annotated[int, Parameter(alias="-k")] = 1
    """Processes on each of them."""
    cpus: int = -1
    """CPUs of each process. -1: all there are, in equal parts."""
    gpus: int = -1
    """GPUs of each process. -1: those there are, in equal parts."""
    backend: ScriptBackend = "none"
    """What the processes exchange data by; mpi: Open MPI starts them."""
    timeout_s: float = MONTH_S
    """Seconds after which an attempt is ended."""
    grace_s: float = 30.0
    """Seconds that processes have to end by themselves."""
    join_timeout_s: float = 300.0
    """Seconds to wait for workers that are busy with something else."""
    max_retries: int = 0
    """How often all processes are started again after one has failed."""
    cluster: str = ""
    """A saved cluster such as cuda-cluster/big, a scheduler's address, or work-pool/NAME, where the
    whole call is carried out. Default: what the options of the cluster say."""


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class ScriptRunOptions:
    """The run's name and place."""

    run_id: str = ""
    """A name for the run: letters, digits, "-" and "_". Default: one is made up."""
    store: StoreUrl = "artifacts"
    """The artifact store: a folder, or a URL such as s3://bucket/folder."""
    on_existing_artifacts: OnExisting = "error"
    """When the run exists: refuse, begin again, or go on unless it is done."""


_SCRIPT = ScriptOptions()
_PROCESSES = ProcessOptions()
_RUN = ScriptRunOptions()
_ENVIRONMENT = EnvironmentOptions()
_CLUSTER = ClusterOptions()
_INFRASTRUCTURE = Infrastructure()


def run(
    script: str = "",
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    options: ScriptOptions = _SCRIPT,
    processes: ProcessOptions = _PROCESSES,
    run: ScriptRunOptions = _RUN,
    environment: EnvironmentOptions = _ENVIRONMENT,
    cluster: ClusterOptions = _CLUSTER,
    infrastructure: Infrastructure = _INFRASTRUCTURE,
) -> int:
    """Run a training script or a command as processes on several machines.

    Args:
        script: The Python script, relative to the source directory.
        arguments: Its arguments, behind "--": partwise run train.py -- --epochs 3.
        options: What is run.
        processes: How many there are.
        run: The run's name and place.
        environment: Packages of its own.
        cluster: Where the work is done.
        infrastructure: The machine and container that a work pool gives it.
    """
    from partwise.calls.script import ScriptCall
    from partwise.flows.cli.flow_calls import call_and_print
    from partwise.flows.orchestration.run_ids import new_run_id
    from partwise.scripts.spec import argument_words

    given = {
        **options.arguments(),
        **vars(processes),
        **vars(run),
        "environment": environment.build(),
        "run_id": run.run_id or new_run_id("run-script"),
        "cluster": _target(processes.cluster, cluster),
        "infrastructure": infrastructure,
    }
    by_name = dict(parse_parameter(text) for text in options.param)
    words = [*argument_words(by_name), *arguments]
    return call_and_print(ScriptCall(script, arguments=words, **given))


def _target(name: str, cluster: ClusterOptions) -> ClusterOptions | str:
    if name and cluster != _CLUSTER:
        raise InputError("--cluster and the options of a cluster: give one of them.")
    return name or cluster.checked()


def _pairs(option: str, texts: "Iterable[str]") -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{option} {text!r} is not of the form NAME=VALUE.")
        pairs[name.strip()] = value
    return pairs
