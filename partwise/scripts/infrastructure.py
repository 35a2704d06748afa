"""What a call asks of the machines of a work pool, as the job variables of a pool of its type.

A work pool makes a job of its template: `{{ name }}` in it stands for the job variable of that
name, and a variable that the template does not know is dropped without a word. So a setting is
refused by its name where the type of the pool cannot have it, and where the template lacks its
variable. The names are those of the templates of prefect-docker 0.7 and prefect-kubernetes 0.8, and
of what `partwise.scripts.pool_template` adds to them.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.errors import InputError
from partwise.form_schema import FormSettings

WORK_POOL = "work-pool/"
"""How a `cluster` begins that is a work pool."""
CONTAINER_POOLS = ("docker", "kubernetes")
POOL_TYPES = ("process", *CONTAINER_POOLS)
"""The types of work pools whose jobs have settings here."""

REGISTRY_BLOCK = "docker-registry-credentials"
"""The type of the blocks that hold the password of an image registry."""

JobVariables = dict[str, JsonValue]

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# Without a tag means "latest", another image each day: a run could not be repeated.
_IMAGE = re.compile(
    r"(?:(?:localhost|[\w.-]+\.[\w.-]+|[\w.-]+(?=:\d))(?::\d+)?/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?P<version>(?::\w[\w.-]{0,127})?(?:@[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,})?)",
    re.ASCII,
)
_VARIABLE = re.compile(r"[A-Za-z_.-][\w.-]*", re.ASCII)
_KUBERNETES_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)

SPOT_TAINTS = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
"""What Google's and Azure's Kubernetes mark nodes with that they may take away. Amazon's marks none
by itself: there every job may come to such a node."""


class Infrastructure(FormSettings):
    """The machine and container in which a work pool runs a call. Left out: what the pool says.

    Example:
        >>> job_variables(Infrastructure(image="team/forecast:1.4", memory_gib=2), "docker")
        {'image': 'team/forecast:1.4', 'mem_limit': '2048m'}
    """

    model_config = ConfigDict(title="Infrastructure")

    image: str = Field(
        default="",
        description="The image of the container, with its tag or digest, such as "
        "registry.example.org/team/forecast:1.4. It has partwise installed, and the call's code.",
    )
    image_pull_policy: Literal["", "IfNotPresent", "Always", "Never"] = Field(
        title="When to pull the image",
        default="",
        description="IfNotPresent, Always or Never.",
    )
    registry_credentials: str = Field(
        title="Registry credentials (docker)",
        default="",
        description=f"The name of a block that opens the registry, {REGISTRY_BLOCK}/NAME.",
    )
    image_pull_secret: str = Field(
        title="Image pull secret (kubernetes)",
        default="",
        description="The name of a secret of the cluster that opens the registry.",
    )
    cpus: Annotated[float, Field(ge=0.01, le=4096)] | SkipJsonSchema[None] = Field(
        title="CPUs", default=None, description="CPUs that the container has, no more and no less."
    )
    memory_gib: Annotated[float, Field(ge=0.01, le=65536)] | SkipJsonSchema[None] = Field(
        title="Memory (GiB)",
        default=None,
        description="Memory that the container has, no more and no less.",
    )
    shm_gib: Annotated[float, Field(ge=0.01, le=65536)] | SkipJsonSchema[None] = Field(
        title="Shared memory (GiB)",
        default=None,
        description="The size of /dev/shm, by which processes of PyTorch exchange rows. It counts "
        "as memory of the container. Default: 64 MiB.",
    )
    gpus: Annotated[int, Field(ge=1, le=1024)] | SkipJsonSchema[None] = Field(
        title="GPUs", default=None, description="NVIDIA GPUs that the container has to itself."
    )
    vm_class: str = Field(
        title="VM class (kubernetes)",
        default="",
        description="The type of machine by the name that its cloud gives it, such as g5.xlarge.",
    )
    node_selector: Mapping[str, str] = Field(
        title="Node selector (kubernetes)",
        default={},
        description="Labels that the node must have, with their values.",
    )
    vm_priority: Literal["dedicated", "low"] = Field(
        title="Priority of the VM (kubernetes)",
        default="dedicated",
        description="low: the job may come to a spot node, which its cloud may take away.",
    )
    priority_class: str = Field(
        title="Priority class (kubernetes)",
        default="",
        description="The priority class of the pod, which decides who waits and who makes room.",
    )
    environment_variables: Mapping[str, str] = Field(
        default={},
        description="Of the process of the call. Prefect keeps them as they stand; of a secret, "
        "save a block and give {{ prefect.blocks.secret.NAME }}.",
    )

    @field_validator("vm_priority", mode="before")
    @classmethod
    def _is_a_priority(cls, name: object) -> object:
        # As AzureML has it.
        is_low = isinstance(name, str) and name.lower() in ("lowpriority", "low_priority")
        return "low" if is_low else name

    @field_validator("image")
    @classmethod
    def _is_of_one_version(cls, image: str) -> str:
        found = _IMAGE.fullmatch(image)
        if image and found is None:
            raise ValueError(f"{image!r} is not an image: give one such as team/forecast:1.4")
        if found is not None and not found["version"]:
            raise ValueError(
                f"{image!r} has no tag: it would be the newest of that day. Give one such as "
                f"{image}:1.4, or a digest"
            )
        return image

    @field_validator("registry_credentials")
    @classmethod
    def _is_a_block(cls, name: str) -> str:
        prefix, _, rest = name.partition("/")
        if name and (prefix != REGISTRY_BLOCK or not re.fullmatch(r"[a-z0-9-]+", rest)):
            # Not repeated: it may be a password.
            raise ValueError(f"it is not a block's name, {REGISTRY_BLOCK}/NAME")
        return name

    @field_validator("image_pull_secret", "priority_class")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if name and not _KUBERNETES_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a Kubernetes name: small letters, digits and '-'")
        return name

    @field_validator("vm_class")
    @classmethod
    def _is_a_label(cls, name: str) -> str:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{name!r} is not a type of machine, such as g5.xlarge")
        return name

    @field_validator("node_selector")
    @classmethod
    def _are_labels(cls, labels: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in labels.items():
            if not _LABEL_KEY.fullmatch(name) or not _LABEL.fullmatch(value):
                raise ValueError(f"{name!r}: {value!r} is not a label of Kubernetes'")
        return labels

    @field_validator("environment_variables")
    @classmethod
    def _can_be_set(cls, variables: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in variables.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} cannot be set: letters, digits and '_' make a name")
            if name.startswith("PREFECT__"):
                raise ValueError(f"{name} is Prefect's own, by which a flow run finds itself")
        return variables

    @model_validator(mode="after")
    def _names_one_type_of_machine(self) -> "Infrastructure":
        if self.vm_class and _INSTANCE_TYPE in self.node_selector:
            raise ValueError(f"vm_class is the label {_INSTANCE_TYPE}: give one of the two")
        return self

    def given(self) -> dict[str, Any]:
        """Return the settings that were given, by their names."""
        return self.model_dump(exclude_defaults=True)


def is_work_pool(cluster: object) -> TypeGuard[str]:
    """Whether a cluster, or the name of one, is that of a work pool: "work-pool/NAME"."""
    return isinstance(cluster, str) and cluster.startswith(WORK_POOL)


def job_variables(
    infrastructure: Infrastructure, pool_type: str, known: Collection[str] | None = None
) -> JobVariables:
    """Return the job variables for a flow run in a work pool.

    `known` are the variables that the template of the pool has; None: all. With a `pool_type` of
    any other kind than process, docker or kubernetes, nothing may be asked for.

    Returns:
        Values by the names of the template. Credentials of a registry stand there as
        `{"$ref": {"block_document_slug": name}}`, and never themselves.
    """
    given = infrastructure.given()
    settings = _SETTINGS.get(pool_type, {})
    if given and pool_type not in _SETTINGS:
        raise InputError(
            f"The infrastructure sets {_named(given)}, and of a work pool of type {pool_type!r} "
            f"only its own template and deployments can say that; for {', '.join(POOL_TYPES)} they "
            "can be set here."
        )
    if refused := {name for name in given if name not in settings}:
        hint = _INSTEAD.get(pool_type, "")
        raise InputError(
            f"The infrastructure sets {_named(refused)}, which a work pool of type {pool_type!r} "
            f"cannot have{hint}: leave it out, or choose another pool."
        )
    variables: JobVariables = {}
    for name, value in given.items():
        for variable, part in settings[name](value).items():
            if known is not None and variable not in known:
                raise InputError(
                    f"The infrastructure sets {name}, and the template of the work pool has no "
                    f"variable {variable!r} for it: add one, or make a pool with `partwise deploy "
                    f"--pool NAME --pool-type {pool_type}`, whose template has it."
                )
            there = variables.get(variable)
            joined = isinstance(there, dict) and isinstance(part, dict)
            variables[variable] = {**there, **part} if joined else part  # type: ignore[dict-item]
    return variables


def _named(settings: Collection[str]) -> str:
    return ", ".join(sorted(settings))


def _mebibytes(gib: float) -> int:
    return round(gib * 1024)


def _env(variables: Mapping[str, str]) -> JobVariables:
    return {"env": dict(variables)}


def _docker_extra(name: str, value: Any) -> JobVariables:
    return {"container_create_kwargs": {name: value}}


def _nvidia(count: int) -> JsonValue:
    return [{"driver": "nvidia", "count": count, "capabilities": [["gpu"]]}]


def _tolerations(_: str) -> JobVariables:
    return {"tolerations": [{"key": key, "operator": "Exists"} for key in SPOT_TAINTS]}


_INSTEAD = {
    "process": " (its flow runs are processes beside the worker, and have what that has)",
    "docker": " (its containers run on the worker's own machine)",
    "kubernetes": " (credentials of a registry are a secret of the cluster: image_pull_secret)",
}
_SETTINGS: Mapping[str, Mapping[str, Callable[[Any], JobVariables]]] = {
    "process": {"environment_variables": _env},
    "docker": {
        "image": lambda image: {"image": image},
        "image_pull_policy": lambda policy: {"image_pull_policy": policy},
        "registry_credentials": lambda name: {
            "registry_credentials": {"$ref": {"block_document_slug": name}}
        },
        "cpus": lambda cpus: _docker_extra("nano_cpus", round(cpus * 10**9)),
        "memory_gib": lambda gib: {"mem_limit": f"{_mebibytes(gib)}m"},
        "shm_gib": lambda gib: _docker_extra("shm_size", f"{_mebibytes(gib)}m"),
        "gpus": lambda count: _docker_extra("device_requests", _nvidia(count)),
        "environment_variables": _env,
    },
    "kubernetes": {
        "image": lambda image: {"image": image},
        "image_pull_policy": lambda policy: {"image_pull_policy": policy},
        "image_pull_secret": lambda name: {"image_pull_secrets": [{"name": name}]},
        # A request decides where the pod goes, and a limit what Dask counts there as its own.
        "cpus": lambda cpus: dict.fromkeys(("cpu_request", "cpu_limit"), f"{round(cpus * 1000)}m"),
        "memory_gib": lambda gib: dict.fromkeys(
            ("memory_request", "memory_limit"), f"{_mebibytes(gib)}Mi"
        ),
        "shm_gib": lambda gib: {"shm_size": f"{_mebibytes(gib)}Mi"},
        "gpus": lambda count: {"gpus": count},
        "vm_class": lambda name: {"node_selector": {_INSTANCE_TYPE: name}},
        "node_selector": lambda labels: {"node_selector": dict(labels)},
        "vm_priority": _tolerations,
        "priority_class": lambda name: {"priority_class_name": name},
        "environment_variables": _env,
    },
}
