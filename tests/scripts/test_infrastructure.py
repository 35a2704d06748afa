"""What a call asks of machines, as the job that a worker of the pool would start."""

import asyncio
import re
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefect.client.schemas.objects import Flow, FlowRun

from partwise.errors import InputError
from partwise.scripts.infrastructure import (
    POOL_TYPES,
    SPOT_TAINTS,
    Infrastructure,
    job_variables,
)
from partwise.scripts.pool_template import extended
from tests.lazily import Lazily

collections = Lazily("prefect.server.api.collections")

docker, kubernetes = Lazily("prefect_docker.worker"), Lazily("prefect_kubernetes.worker")


def stock_template(pool_type: str) -> dict[str, Any]:
    """The template of a pool that somebody makes by `prefect work-pool create`."""
    kind = docker.DockerWorker if pool_type == "docker" else kubernetes.KubernetesWorker
    return kind.get_default_base_job_template()


def configuration(asked: Infrastructure, pool_type: str, template: Any = None) -> Any:
    """The job's configuration as a worker makes it for a flow run."""
    template = template or extended(stock_template(pool_type), pool_type)
    values = job_variables(asked, pool_type, template["variables"]["properties"])
    if pool_type == "docker":
        kind = docker.DockerWorkerJobConfiguration
    else:
        kind = kubernetes.KubernetesWorkerJobConfiguration
    made = asyncio.run(kind.from_template_and_values(template, values, client=SimpleNamespace()))
    flow = Flow(name="run-script", labels={})
    made.prepare_for_flow_run(FlowRun(flow_id=flow.id, name="one", labels={}), flow=flow)
    return made


def container(asked: Infrastructure, template: Any = None) -> dict[str, Any]:
    """The settings that the worker gives to docker-py, less what is there without being asked."""
    made = configuration(asked, "docker", template)
    daemon = SimpleNamespace(version=lambda: {"Version": "27.0.0"})
    settings = docker.DockerWorker(work_pool_name="any", test_mode=True)._build_container_settings(
        daemon, made
    )
    # What docker-py itself makes of them: a name that it does not know is an error.
    from docker.models.containers import _create_container_args

    _create_container_args({**settings, "version": "1.47"})
    return settings


def pod(asked: Infrastructure) -> dict[str, Any]:
    manifest = configuration(asked, "kubernetes").job_manifest
    return manifest["spec"]["template"]["spec"]


def variables_of(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["containers"][0]["env"]}


def test_a_container_of_docker_has_all_that_is_asked_for() -> None:
    asked = Infrastructure(
        image="registry.example.org:5000/team/forecast:1.4",
        image_pull_policy="Always",
        cpus=2.5,
        memory_gib=16,
        shm_gib=0.5,
        gpus=2,
        environment_variables={"LEVEL": "7"},
    )
    settings = container(asked)
    assert settings["image"] == "registry.example.org:5000/team/forecast:1.4"
    assert settings["mem_limit"] == "16384m"
    assert settings["shm_size"] == "512m"
    assert settings["nano_cpus"] == 2_500_000_000
    assert settings["device_requests"] == [
        {"driver": "nvidia", "count": 2, "capabilities": [["gpu"]]}
    ]
    assert settings["environment"]["LEVEL"] == "7"
    assert configuration(asked, "docker").image_pull_policy == "Always"


def test_a_pod_of_kubernetes_has_all_that_is_asked_for() -> None:
    made = pod(
        Infrastructure(
            image="team/forecast:1.4",
            image_pull_policy="Never",
            image_pull_secret="registry",
            cpus=2.5,
            memory_gib=16,
            shm_gib=8,
            gpus=2,
            vm_class="g5.xlarge",
            node_selector={"zone": "a"},
            vm_priority="low",
            priority_class="batch",
            environment_variables={"LEVEL": "7"},
        )
    )
    (first,) = made["containers"]
    assert first["image"] == "team/forecast:1.4"
    assert first["imagePullPolicy"] == "Never"
    assert first["resources"] == {
        "limits": {"cpu": "2500m", "memory": "16384Mi", "nvidia.com/gpu": 2},
        "requests": {"cpu": "2500m", "memory": "16384Mi"},
    }
    assert first["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    assert made["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8192Mi"}}
    ]
    assert made["imagePullSecrets"] == [{"name": "registry"}]
    assert made["nodeSelector"] == {"node.kubernetes.io/instance-type": "g5.xlarge", "zone": "a"}
    assert [each["key"] for each in made["tolerations"]] == list(SPOT_TAINTS)
    assert made["priorityClassName"] == "batch"
    assert variables_of(made)["LEVEL"] == "7"


def test_what_is_not_asked_for_is_as_prefect_has_it() -> None:
    nothing = Infrastructure()
    for pool_type in POOL_TYPES:
        assert job_variables(nothing, pool_type) == {}
    stock = stock_template("docker")
    ours, theirs = container(nothing), container(nothing, stock)
    assert ours["environment"].keys() == theirs["environment"].keys()
    for made in (ours, theirs):
        # The flow run's own ID is in them.
        del made["environment"], made["labels"]
    assert ours == theirs
    nodes = pod(nothing)
    left = {"containers", "volumes", "completions", "parallelism", "restartPolicy"}
    assert set(nodes) == left
    assert nodes["containers"][0]["resources"] == {"limits": {}, "requests": {}}
    assert nodes["volumes"][0]["emptyDir"]["sizeLimit"] == "64Mi"
    assert job_variables(nothing, "ecs") == {}


@pytest.mark.parametrize(
    ("pool_type", "words"),
    [
        ("process", "image, memory_gib, vm_class"),
        ("docker", "vm_class"),
        ("ecs", "type 'ecs' only its own template"),
    ],
)
def test_what_a_pool_cannot_have_is_refused_by_its_name(pool_type: str, words: str) -> None:
    asked = Infrastructure(image="a/b:1", memory_gib=1, vm_class="g5.xlarge")
    with pytest.raises(InputError, match=re.escape(words)):
        job_variables(asked, pool_type)


def test_a_template_without_the_variable_is_told_by_setting_and_variable() -> None:
    stock = stock_template("kubernetes")["variables"]["properties"]
    with pytest.raises(InputError, match=r"shm_gib.*'shm_size'.*partwise deploy"):
        job_variables(Infrastructure(shm_gib=1), "kubernetes", stock)
    job_variables(Infrastructure(cpus=1, memory_gib=1), "kubernetes", stock)


def test_the_templates_that_prefect_knows_without_the_packages_are_extended_too() -> None:
    view = asyncio.run(collections.get_collection_view("aggregate-worker-metadata"))
    for package, pool_type in (
        ("prefect-docker", "docker"),
        ("prefect-kubernetes", "kubernetes"),
    ):
        stock = view[package][pool_type]["default_base_job_configuration"]
        template = extended(deepcopy(stock), pool_type)
        made = configuration(Infrastructure(shm_gib=2, gpus=1), pool_type, template)
        assert "2048" in str(made.model_dump())
        assert extended(stock, "ecs") == stock


# One value or none for each setting; names with odd characters where they are allowed.
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="{}\0"), max_size=12)
_NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "image": st.from_regex(
            r"([a-z]{1,5}\.org(:[0-9]{2,4})?/)?[a-z]{1,5}:[A-Z0-9][a-z.]{0,5}", fullmatch=True
        ),
        "image_pull_policy": st.sampled_from(["IfNotPresent", "Always", "Never"]),
        "image_pull_secret": _NAME,
        "cpus": st.floats(0.01, 512),
        "memory_gib": st.floats(0.01, 4096),
        "shm_gib": st.floats(0.01, 4096),
        "gpus": st.integers(1, 16),
        "vm_class": st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,8}[a-z]", fullmatch=True),
        "node_selector": st.dictionaries(_NAME, _NAME, min_size=1, max_size=3),
        "vm_priority": st.just("low"),
        "priority_class": _NAME,
        "environment_variables": st.dictionaries(
            st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), _TEXT, min_size=1, max_size=3
        ),
    },
)
_ONLY_KUBERNETES = {
    *("image_pull_secret", "vm_class", "node_selector", "vm_priority", "priority_class")
}


@settings(max_examples=30)
@given(_SETTINGS)
def test_every_setting_is_in_the_job_or_refused_by_its_name(chosen: dict[str, Any]) -> None:
    """Breaks with a setting that is dropped, overwritten by another one, or misspelled."""
    asked = Infrastructure(**chosen)
    refused = sorted(_ONLY_KUBERNETES & chosen.keys())
    if refused:
        with pytest.raises(InputError, match=re.escape(f"sets {', '.join(refused)}, which")):
            job_variables(asked, "docker")
    rest = {name: value for name, value in chosen.items() if name not in refused}
    docker, made = container(Infrastructure(**rest)), pod(asked)
    (first,) = made["containers"]
    limits, requests = (first["resources"][name] for name in ("limits", "requests"))
    for name, value in chosen.items():
        match name:
            case "image":
                assert docker["image"] == first["image"] == value
            case "image_pull_policy":
                assert first["imagePullPolicy"] == value
            case "image_pull_secret":
                assert made["imagePullSecrets"] == [{"name": value}]
            case "cpus":
                assert limits["cpu"] == requests["cpu"]
                assert abs(int(limits["cpu"].removesuffix("m")) / 1000 - value) <= 0.0005
                assert abs(docker["nano_cpus"] / 10**9 - value) < 1e-8
            case "memory_gib":
                assert limits["memory"] == requests["memory"] == f"{docker['mem_limit'][:-1]}Mi"
                assert abs(int(docker["mem_limit"][:-1]) - value * 1024) <= 0.5
            case "shm_gib":
                size = made["volumes"][0]["emptyDir"]["sizeLimit"]
                assert size == f"{docker['shm_size'][:-1]}Mi"
                assert abs(int(size[:-2]) - value * 1024) <= 0.5
            case "gpus":
                assert limits["nvidia.com/gpu"] == docker["device_requests"][0]["count"] == value
            case "vm_class":
                assert made["nodeSelector"]["node.kubernetes.io/instance-type"] == value
            case "node_selector":
                assert value.items() <= made["nodeSelector"].items()
            case "vm_priority":
                assert len(made["tolerations"]) == len(SPOT_TAINTS)
            case "priority_class":
                assert made["priorityClassName"] == value
            case "environment_variables":
                assert value.items() <= docker["environment"].items()
                assert value.items() <= variables_of(made).items()


@given(_SETTINGS)
def test_settings_are_written_down_and_read_again(chosen: dict[str, Any]) -> None:
    asked = Infrastructure(**chosen)
    assert Infrastructure.model_validate_json(asked.model_dump_json()) == asked
    assert set(asked.given()) == chosen.keys()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("image", "team/forecast", "has no tag"),
        ("image", "localhost:5000/forecast", "has no tag"),
        ("image", "Team/Forecast:1", "is not an image"),
        ("image", "forecast:1 --privileged", "is not an image"),
        ("registry_credentials", "hunter2", "is not a block's name"),
        ("registry_credentials", "secret/other", "is not a block's name"),
        ("image_pull_secret", "Not_A_Name", "not a Kubernetes name"),
        ("cpus", 0, "greater than"),
        ("memory_gib", -1, "greater than"),
        ("gpus", 0, "greater than"),
        ("vm_class", "g5 xlarge", "not a type of machine"),
        ("node_selector", {"a b": "c"}, "not a label"),
        ("node_selector", {"a": "b c"}, "not a label"),
        ("vm_priority", "spot", "Input should be"),
        ("environment_variables", {"A=B": "1"}, "cannot be set"),
        ("environment_variables", {"": "1"}, "cannot be set"),
        ("environment_variables", {"PREFECT__FLOW_RUN_ID": "1"}, "Prefect's own"),
        ("image_name", "a:1", r"no image_name \(did you mean image\?\)"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Infrastructure(**{setting: value})


@pytest.mark.parametrize("name", ["low", "lowpriority", "LowPriority", "low_priority"])
def test_a_priority_is_taken_as_azureml_writes_it(name) -> None:
    assert Infrastructure(vm_priority=name).vm_priority == "low"


def test_a_password_in_the_place_of_a_block_is_not_repeated() -> None:
    with pytest.raises(InputError) as caught:
        Infrastructure(registry_credentials="hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "image",
    [
        "a:1",
        "a/b/c:1.2-x_3",
        "localhost:5000/a:1",
        "r.example.org/a@sha256:" + "0f" * 32,
        "a:1@sha256:" + "0f" * 32,
    ],
)
def test_an_image_of_one_version_is_taken(image: str) -> None:
    assert Infrastructure(image=image).image == image


def test_two_words_for_one_label_are_refused() -> None:
    with pytest.raises(InputError, match="give one of the two"):
        Infrastructure(vm_class="a", node_selector={"node.kubernetes.io/instance-type": "b"})
