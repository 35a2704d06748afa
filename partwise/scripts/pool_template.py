"""The template of a work pool of ours: Prefect's own, with variables for all of `Infrastructure`.

Prefect's template for Kubernetes has none for shared memory, GPUs, nodes, priorities and pull
secrets. That for Docker has `container_create_kwargs` where prefect-docker is installed; the one
that Prefect's server knows without it, which is older, has not. And of Prefect 3.8 the server takes
no block where the template of prefect-docker 0.7 wants one: it looks for schemas of blocks under
"definitions", and they stand under "$defs". So a reference is allowed beside the block's schema.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

SHM = "shm"
DEFAULT_SHM = "64Mi"
"""What a container has of every runtime where nobody says otherwise."""

_DOCKER_VARIABLES: Mapping[str, Any] = {
    "container_create_kwargs": {
        "title": "Container Configuration",
        "description": "Configuration for containers created by workers, by the names of docker-py",
        "type": "object",
    }
}
_REFERENCE: Mapping[str, Any] = {
    "title": "Reference to a block",
    "type": "object",
    "properties": {"$ref": {"type": "object"}},
    "required": ["$ref"],
}
_KUBERNETES_VARIABLES: Mapping[str, Any] = {
    "shm_size": {
        "title": "Shared Memory",
        "description": "The size of /dev/shm, such as 8Gi. It counts as memory of the container.",
        "type": "string",
        "default": DEFAULT_SHM,
    },
    "gpus": {
        "title": "GPUs",
        "description": "NVIDIA GPUs of the container.",
        "type": "integer",
    },
    "node_selector": {
        "title": "Node Selector",
        "description": "Labels that the node must have.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    },
    "tolerations": {
        "title": "Tolerations",
        "description": "Taints of nodes to which the pod may come all the same.",
        "type": "array",
        "items": {"type": "object"},
    },
    "priority_class_name": {
        "title": "Priority Class",
        "description": "The priority class of the pod.",
        "type": "string",
    },
    "image_pull_secrets": {
        "title": "Image Pull Secrets",
        "description": "Secrets of the namespace that open the registry, as [{name: ...}].",
        "type": "array",
        "items": {"type": "object"},
    },
}
_POD: Mapping[str, Any] = {
    "nodeSelector": "{{ node_selector }}",
    "tolerations": "{{ tolerations }}",
    "priorityClassName": "{{ priority_class_name }}",
    "imagePullSecrets": "{{ image_pull_secrets }}",
}


def extended(template: Mapping[str, Any], pool_type: str) -> dict[str, Any]:
    """Return a pool's template with what it lacks for `Infrastructure`; what it has, it keeps."""
    made: dict[str, Any] = deepcopy(dict(template))
    job, known = made["job_configuration"], made["variables"].setdefault("properties", {})
    if pool_type == "docker":
        for name in _DOCKER_VARIABLES:
            job.setdefault(name, f"{{{{ {name} }}}}")
        made["variables"]["properties"] = {**_DOCKER_VARIABLES, **known}
        credentials = known.get("registry_credentials", {})
        if not takes_reference(credentials):
            credentials["anyOf"].append(dict(_REFERENCE))
    if pool_type == "kubernetes":
        _extend_pod(job["job_manifest"]["spec"]["template"]["spec"])
        made["variables"]["properties"] = {**_KUBERNETES_VARIABLES, **known}
    return made


def takes_reference(variable: Mapping[str, Any]) -> bool:
    """Whether the server takes a reference to a block for a variable that wants a block."""
    return "anyOf" not in variable or _REFERENCE in variable["anyOf"]


def _extend_pod(pod: dict[str, Any]) -> None:
    for name, value in _POD.items():
        pod.setdefault(name, value)
    # A volume in memory is the only way in which Kubernetes lets a pod choose its shared memory.
    volume = {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": "{{ shm_size }}"}}
    pod["volumes"] = [*pod.get("volumes", ()), volume]
    container = pod["containers"][0]
    mount = {"name": SHM, "mountPath": "/dev/shm"}  # noqa: S108 (shared memory, not a folder)
    container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    limits = container.setdefault("resources", {}).setdefault("limits", {})
    limits.setdefault("nvidia.com/gpu", "{{ gpus }}")
