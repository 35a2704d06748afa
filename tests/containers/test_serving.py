"""What serves models: the image's target, the manifests of Kubernetes, the unit of systemd."""

import re
import shutil
import subprocess
import tomllib
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.containers.compose import FOLDER, ROOT

UNIT = FOLDER / "systemd" / "partwise-serve@.service"


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    text = (FOLDER / "kubernetes" / "serve.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(manifests) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["Deployment"]["spec"]["template"]["spec"]
    return spec


def settings() -> dict[str, list[str]]:
    """The settings of the unit, each with its values."""
    pairs = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE)
    return {name: [value for each, value in pairs if each == name] for name, _ in pairs}


def test_the_manifests_are_those_of_kubernetes(manifests):
    assert [*manifests] == ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"]
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_all_manifests_mean_the_same_pods_and_port(manifests, pod):
    labels = {"app.kubernetes.io/name": "serve"}
    [container] = pod["containers"]
    [port] = container["ports"]
    deployment = manifests["Deployment"]["spec"]
    assert labels.items() <= deployment["template"]["metadata"]["labels"].items()
    assert deployment["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    ports = [manifests["Service"]["spec"]["ports"][0]["targetPort"]]
    ports += [rule["ports"][0]["port"] for rule in manifests["NetworkPolicy"]["spec"]["ingress"]]
    ports += [container[f"{name}Probe"]["httpGet"]["port"] for name in PROBES]
    assert {*ports} == {port["name"]}
    assert f"EXPOSE {port['containerPort']}\n" in (FOLDER / "Dockerfile").read_text()


PROBES = {"startup": "live", "readiness": "ready", "liveness": "live"}


def test_pods_have_limits_few_rights_and_the_key_from_a_secret(manifests, pod):
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    limits = container["resources"]["limits"]
    assert limits["memory"] == container["resources"]["requests"]["memory"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {*mounts} == {*volumes}
    assert volumes["api-key"]["secret"]["secretName"] == "partwise-serve"
    assert f"--api-key-file={mounts['api-key']}/api-key" in container["args"]
    assert volumes["scratch"]["emptyDir"]["sizeLimit"] == limits["ephemeral-storage"]
    for name, health in PROBES.items():
        assert container[f"{name}Probe"]["httpGet"]["path"] == f"/v2/health/{health}"
    assert manifests["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_image_has_a_target_that_serves_and_builds_the_other_one_by_default(pod):
    text = (FOLDER / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    assert [*stages[-2:]] == [("partwise", "serve"), ("partwise", "")]
    serve = text.split("FROM partwise AS serve\n")[1].split("\nFROM ")[0]
    extra = re.search(r"whl\)\[(\w+)\]", serve)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra is not None
    assert extra[1] in project["optional-dependencies"]
    # Root's rights end before anything is started.
    assert serve.rindex("USER 10001:10001") > serve.rindex("RUN ")
    assert "/v2/health/ready" in serve
    assert pod["containers"][0]["image"] == "partwise:serve"


def test_the_unit_holds_no_secret_and_runs_as_nobody():
    unit = settings()
    assert unit["DynamicUser"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    [start] = unit["ExecStart"]
    [credential] = unit["LoadCredential"]
    name, _, source = credential.partition(":")
    assert f"--api-key-file %d/{name} " in start
    assert source == "/etc/partwise/serve-%i.key"
    given = (FOLDER / "systemd" / "serve.env").read_text()
    set_there = {*re.findall(r"^#?(\w+)=", given, re.MULTILINE)}
    assert {*re.findall(r"\$\{?([A-Z]+)", start)} <= set_there
    assert not re.findall(r"^#?AWS\w+=.+$|KEYS?=.+$", given, re.MULTILINE)


def test_systemd_takes_the_unit(tmp_path):
    if not (program := shutil.which("systemd-analyze")):
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "partwise-serve@sales.service"
    # Programs that are not there are problems of their own.
    unit.write_text(UNIT.read_text().replace("/opt/partwise/bin/partwise", shutil.which("true")))
    done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    command = [program, "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
