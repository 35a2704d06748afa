"""The files in containers/: against their schemas, our own code, and as processes of this machine.

No image is built and no cluster of Kubernetes is asked: that needs a registry. docs/containers.md
says what was built by hand.
"""

import importlib.resources
import json
import re
import shlex
import stat
import subprocess
import tomllib
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import Any

import dask
import jsonschema
import kubernetes_validate
import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker
from packaging.specifiers import SpecifierSet

from partwise.blocks.cluster_start import DASK_SETTINGS
from partwise.flows.project.new_project import write_project
from tests.containers.compose import FOLDER, ROOT, environment_of, make_secrets, read_compose
from tests.flows.operations.project import COMMAND, wait_until
from tests.ports import free_port

MANIFESTS = ("scheduler.yaml", "workers.yaml", "prefect-worker.yaml", "network.yaml")
COMMANDS = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("secrets")
    (project := folder / "my shop").mkdir()
    return make_secrets(folder, project)


@pytest.fixture(scope="module")
def services(secrets) -> dict[str, Any]:
    found: dict[str, Any] = read_compose(secrets)["services"]
    return found


@pytest.fixture(scope="module")
def manifests() -> list[dict[str, Any]]:
    texts = [(FOLDER / "kubernetes" / name).read_text() for name in MANIFESTS]
    return [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.fixture(scope="module")
def kustomization() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (FOLDER / "kubernetes" / "kustomization.yaml").read_text()
    )
    return found


def deployments_of(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests
        if each["kind"] == "Deployment"
    }


def test_the_compose_file_is_one(secrets):
    schemas = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text())
    jsonschema.validate(read_compose(secrets), schema)


def test_the_manifests_are_those_of_kubernetes(manifests):
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_kustomize_knows_every_manifest_and_each_reference_leads_somewhere(
    manifests, kustomization
):
    assert tuple(kustomization["resources"]) == MANIFESTS
    maps = {each["name"] for each in kustomization["configMapGenerator"]}
    page = (ROOT / "docs" / "containers.md").read_text()
    made = set(re.findall(r"kubectl create secret generic ([\w-]+)", page))
    for spec in deployments_of(manifests).values():
        [container] = spec["containers"]
        assert container["image"] == kustomization["images"][0]["name"]
        for source in container["envFrom"]:
            assert {ref["name"] for ref in source.values()} <= maps | made
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert volumes["tls"]["secret"]["secretName"] in made


def test_what_is_secret_is_made_once_for_this_user_only(secrets, tmp_path):
    (project := tmp_path / "shop").mkdir()
    first = make_secrets(tmp_path / "made", project)
    files = [path for path in (tmp_path / "made").rglob("*") if path.name != "make-secrets"]
    assert {path.name for path in files} == {
        ".env",
        "certs",
        "ca.crt",
        "ca.key",
        "tls.crt",
        "tls.key",
    }
    assert not [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert first["CONTAINER_USER"].split(":")[0] not in ("0", "root")
    certificates = {path.name: path.read_bytes() for path in files if path.is_file()}

    assert make_secrets(tmp_path / "made", project) == first
    assert all(
        (tmp_path / "made" / "certs" / n).read_bytes() == b
        for n, b in certificates.items()
        if n != ".env"
    )
    random = ("POSTGRES_PASSWORD", "PREFECT_PASSWORD", "S3_PASSWORD", "SIGNING_KEYS")
    assert not [name for name in random if first[name] == secrets[name] or len(first[name]) < 40]


def test_nothing_is_open_and_nothing_is_root(services):
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports == ["127.0.0.1:4200:4200"]
    for name, service in services.items():
        assert service["mem_limit"], name
        if "build" in service:
            assert service["read_only"], name
            assert service["cap_drop"] == ["ALL"], name
            assert not service["user"].startswith("0"), name


def test_no_password_stands_in_a_file():
    compose = (FOLDER / "compose.yaml").read_text()
    values = re.findall(r"(?:PASSWORD|AUTH_STRING|SECRET\w*|KEYS): (.*)", compose)
    assert len(values) >= 6
    assert not [value for value in values if not value.startswith("${")]
    assert "kind: Secret" not in "".join(p.read_text() for p in (FOLDER / "kubernetes").iterdir())
    ignored = (FOLDER / ".gitignore").read_text().split()
    assert ignored == ["/.env", "/certs/"]


def test_pods_have_limits_and_few_rights(manifests):
    for spec in deployments_of(manifests).values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        [container] = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        limits = container["resources"]["limits"]
        assert limits["memory"] == container["resources"]["requests"]["memory"]
        [scratch] = [v["emptyDir"] for v in spec["volumes"] if v["name"] == "scratch"]
        assert scratch["sizeLimit"] == limits["ephemeral-storage"]


def test_dask_is_set_as_in_clusters_that_we_start(services, kustomization):
    literals = kustomization["configMapGenerator"][1]["literals"]
    variables = dict(literal.split("=", 1) for literal in literals)
    composed = services["scheduler"]["environment"]
    assert composed == variables
    assert variables.items() <= services["dask-worker"]["environment"].items()
    settings = dask.config.collect_env(variables)
    with dask.config.set({}):
        for name, value in DASK_SETTINGS.items():
            assert dask.config.get(name, config=settings) == value, name
    for what in ("scheduler", "worker"):
        routes = dask.config.get(f"distributed.{what}.http.routes", config=settings)
        assert routes == ["distributed.http.health"]


def test_dask_takes_the_options_of_all_commands_and_all_connections_have_tls(
    services, manifests, tmp_path
):
    make_secrets(tmp_path / "made", tmp_path)
    certificates = tmp_path / "made" / "certs"
    pods = {name: spec["containers"][0] for name, spec in deployments_of(manifests).items()}
    commands = [services["scheduler"]["command"], services["dask-worker"]["command"]]
    commands += [pods["dask-scheduler"]["args"], pods["dask-worker"]["args"]]
    for program, what, *options in commands:
        assert program == "dask"
        # It looks whether the files are there.
        options = [re.sub("=/(run/secrets|tls)/", f"={certificates}/", each) for each in options]
        context = COMMANDS[what].make_context(what, options)
        assert all(context.params[name] for name in ("tls_ca_file", "tls_cert", "tls_key"))
        assert context.params["dashboard"] is False
        if what == "scheduler":
            assert context.params["protocol"] == "tls"
        else:
            assert context.params["scheduler"].startswith("tls://")


def test_the_image_is_of_a_python_that_we_support_with_the_versions_that_were_tested():
    text = (FOLDER / "Dockerfile").read_text()
    python = re.search(r"^ARG PYTHON=(\S+)", text, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert python is not None
    assert SpecifierSet(project["requires-python"]).contains(python[1])
    assert "--constraint /constraints.txt" in text
    extras = re.findall(r'extras="([\w,]*),?\$EXTRAS"|^ARG EXTRAS=(\w+)', text, re.MULTILINE)
    named = {name for pair in extras for part in pair for name in part.split(",") if name}
    assert named == {"cuda", "torch", "postgresql"} <= set(project["optional-dependencies"])
    copied = set(re.findall(r"^COPY (?!--)(\w+) \1$", text, re.MULTILINE))
    assert copied == {"partwise", "blocks", "flows", "tasks"}
    allowed = (FOLDER / "Dockerfile.dockerignore").read_text().split()
    assert copied <= {line.removeprefix("!") for line in allowed}


@pytest.mark.slow  # a whole installation: two servers, a cluster, a Prefect worker
def test_the_services_as_processes(s3_endpoint_url, tmp_path):
    """All that Docker would start but PostgreSQL and MinIO: SQLite and moto stand for them."""
    write_project(project := tmp_path / "shop")
    secrets = make_secrets(tmp_path / "made", project)
    assert secrets["WORK_POOL"] == "shop"
    ports = {name: free_port() for name in ("prefect", "scheduler", "health", "worker")}
    places = {
        "/run/secrets": str(tmp_path / "made" / "certs"),
        "/scratch": str(tmp_path / "scratch"),
        "http://s3:9000": s3_endpoint_url,
        "prefect-server:4200": f"127.0.0.1:{ports['prefect']}",
        "127.0.0.1:4200": f"127.0.0.1:{ports['prefect']}",
        "scheduler:8786": f"127.0.0.1:{ports['scheduler']}",
        "--port=8786": f"--port={ports['scheduler']}",
        r"postgresql\+asyncpg:.*": f"sqlite+aiosqlite:///{tmp_path}/prefect.db",
        "0.0.0.0": "127.0.0.1",
        "^4200$": str(ports["prefect"]),
    }

    def here(value: str) -> str:
        for place, ours in places.items():
            value = re.sub(place, lambda _, ours=ours: ours, value)
        return value

    yaml_file = project / "prefect.yaml"
    page = (ROOT / "docs" / "containers.md").read_text()
    rows = re.search(r"^  rows: &rows\n(?:    .*\n)+", page.replace("\n    ", "\n"), re.MULTILINE)
    assert rows is not None
    text = yaml_file.read_text()
    yaml_file.write_text(re.sub(r"  rows: &rows\n(?:    .*\n)+", lambda _: here(rows[0]), text))
    (tmp_path / "scratch").mkdir()
    services = read_compose(secrets)["services"]
    with ExitStack() as stack:

        def start(name: str, health: str = "", **replaced: str) -> subprocess.Popen[bytes]:
            service = services[name]
            (home := tmp_path / f"home-{name}").mkdir(exist_ok=True)
            environment = environment_of(
                service, {"HOME": str(home), "PYTHONPATH": f"{ROOT}:{project}"}
            )
            words = [here(replaced.get(word, word)) for word in service["command"]]
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            process = stack.enter_context(
                subprocess.Popen(
                    words,
                    cwd=project,
                    env={key: here(value) for key, value in environment.items()},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
            stack.callback(process.terminate)

            def answers() -> bool:
                assert process.poll() is None, (tmp_path / f"{name}.log").read_text()
                try:
                    return urllib.request.urlopen(health, timeout=5).status == 200
                except (urllib.error.URLError, OSError):
                    return False

            if health:
                wait_until(answers, f"{name} to be healthy")
            return process

        start("prefect-server", f"http://127.0.0.1:{ports['prefect']}/api/health")
        moved = {
            "--dashboard-address=127.0.0.1:8787": f"--dashboard-address=127.0.0.1:{ports['health']}"
        }
        start("scheduler", f"http://127.0.0.1:{ports['health']}/health", **moved)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{ports['health']}/info/main/workers.html")
        moved = {
            "--dashboard-address=127.0.0.1:8787": f"--dashboard-address=127.0.0.1:{ports['worker']}"
        }
        start("dask-worker", f"http://127.0.0.1:{ports['worker']}/health", **moved)
        assert start("deploy").wait(120) == 0, (tmp_path / "deploy.log").read_text()
        start("prefect-worker")
        words = "prefect deployment run train-models/shop-nightly --watch"
        environment = environment_of(services["prefect-worker"], {"HOME": str(tmp_path)})
        done = subprocess.run(
            shlex.split(words),
            env={key: here(value) for key, value in environment.items()},
            capture_output=True,
            text=True,
            timeout=400,
        )
        log = (tmp_path / "prefect-worker.log").read_text()
        assert done.returncode == 0, done.stdout + done.stderr + log
        listed = subprocess.run(
            [*COMMAND, "runs", "list", "--json", "--store", "s3://runs/shop"],
            env={key: here(value) for key, value in environment.items()}
            | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert '"SUCCESS"' in listed.stdout, listed.stdout
