"""`partwise init`: what it writes, that it works as it stands, and what it refuses."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import cloudpickle
import pytest
import yaml

from partwise.blocks import LocalCluster
from partwise.errors import InputError
from partwise.flows.cli.main import main
from partwise.flows.operations.deploy import read_project
from partwise.flows.project import new_project
from partwise.flows.project.new_project import write_project
from tests.only_installed import TEMPLATE, hide_others, told_by
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("projects") / "shop-1"
    assert write_project(folder) == "shop-1"
    return folder


def test_a_project_is_these_files_and_git_leaves_out_what_runs_make(shop):
    files = sorted(str(path.relative_to(shop)) for path in shop.rglob("*") if path.is_file())
    assert files == [
        *(".gitignore", "README.md", "data/sales.parquet", "forecast.py", "prefect.yaml"),
        *("requirements.txt", "test_forecast.py"),
    ]
    texts = [path.read_text() for path in shop.iterdir() if path.is_file()]
    assert not [text for text in texts if "PROJECT_NAME" in text or "PARTWISE_VERSION" in text]
    assert {"/artifacts/", "/.partwise/"} <= set((shop / ".gitignore").read_text().splitlines())
    assert (shop / "data" / "sales.parquet").stat().st_size < 300_000


def test_its_deployments_cannot_be_taken_for_those_of_another_project(shop, tmp_path):
    write_project(tmp_path / "other")
    ours, others = read_project(shop), read_project(tmp_path / "other")
    assert ours.pools == ("shop-1",)
    names = [{one["name"] for one in project.deployments} for project in (ours, others)]
    assert len(names[0]) == 5
    assert names[0].isdisjoint(names[1])
    document = yaml.safe_load((shop / "prefect.yaml").read_text())
    [training, inference] = document["deployments"][:2]
    assert inference["triggers"][0]["match"]["partwise.deployment"] == (
        f"train-models/{training['name']}"
    )
    assert training["schedules"][0]["active"] is False


@pytest.mark.parametrize("name", ["no", "On", "true", "null", "shop"])
def test_a_name_that_yaml_takes_for_another_value_is_a_text(tmp_path, name):
    write_project(tmp_path / name)
    assert read_project(tmp_path / name).pools == (name,)
    document = yaml.safe_load((tmp_path / name / "prefect.yaml").read_text())
    assert document["name"] == name
    assert all(name in one["tags"] for one in document["deployments"] if "tags" in one)
    assert [each["name"] for each in document["notifications"]] == [name]


def test_its_own_tests_pass(shop, dask_client, prefect_server, tmp_path, monkeypatch):
    """In this process, on the session's workers; the slow test has pytest run them."""

    @contextmanager
    def client(self: LocalCluster):
        yield dask_client

    monkeypatch.setattr(LocalCluster, "client", client)
    monkeypatch.chdir(shop)
    monkeypatch.syspath_prepend(shop)
    spec = importlib.util.spec_from_file_location("test_of_shop", shop / "test_forecast.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # These workers were not started in its folder.
    cloudpickle.register_pickle_by_value(forecast := sys.modules["forecast"])
    try:
        module.test_a_store_gets_a_model()
        module.test_a_store_that_is_new_is_skipped()
        module.test_models_are_trained_kept_and_used(tmp_path)
    finally:
        cloudpickle.unregister_pickle_by_value(forecast)
        del sys.modules["forecast"]


@pytest.mark.slow  # a project with a forecast of its own
def test_a_forecast_reaches_days_that_the_table_does_not_have(
    dask_client, tmp_path, monkeypatch, capsys
):
    """By the words of its README, in this process; its own test and its deployments too."""

    @contextmanager
    def client(self: LocalCluster):
        yield dask_client

    monkeypatch.setattr(LocalCluster, "client", client)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "tomorrow", "--template", "forecast"]) == 0
    said = capsys.readouterr().out.splitlines()
    folder = tmp_path / "tomorrow"
    assert said[-1].startswith("next: cd tomorrow && partwise train data/sales.parquet ")
    for line in said[1:-1]:
        assert (folder / line.split()[0]).is_file()
    assert not [path for path in folder.iterdir() if path.is_file() and "_NAME" in path.read_text()]
    [training, inference, _, _, on_demand] = read_project(folder).deployments
    assert training["parameters"]["trainer"] == "forecast:trainer"
    assert inference["parameters"]["data"] == on_demand["parameters"]["data"] == "data/days.parquet"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    try:
        lines = words_of((folder / "README.md").read_text())
        for line in lines[:5]:
            assert main(shlex.split(line)[1:]) == 0, line
        assert "20 DONE" in capsys.readouterr().out
        report = (folder / "artifacts/runs/december/report.html").read_text()
        assert report.count('<polyline class="predicted"') == 3
        assert report.count('<polygon class="band"') == 3
        spec = importlib.util.spec_from_file_location("its_test", folder / "test_forecast.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.test_the_days_to_come_are_forecast_with_bounds(tmp_path / "store")
    finally:
        sys.modules.pop("forecast", None)


@pytest.mark.parametrize("template", ["function", "forecast"])
def test_its_code_is_formatted_and_linted_as_ours(tmp_path, template):
    write_project(shop := tmp_path / "shop", template)
    options = ["--isolated", "--line-length", "100"]
    for words in (["format", "--check"], ["check", "--select", "E,F,B,UP,ANN,ARG"]):
        command = [sys.executable, "-m", "ruff", *words, *options, "forecast.py"]
        done = subprocess.run(command, cwd=shop, capture_output=True, text=True)
        unused = re.findall(r"^\w+\d+ ", done.stdout, re.MULTILINE)
        assert done.returncode == 0, (unused, done.stdout)


def test_the_command_says_what_it_made_and_what_to_type_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "shop"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"shop is a project, in {tmp_path / 'shop'}"
    assert lines[-1].startswith("next: cd shop && partwise train data/sales.parquet ")
    for line in lines[1:-1]:
        assert (tmp_path / "shop" / line.split()[0]).is_file()

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["init", "."]) == 0
    assert "next: partwise train" in capsys.readouterr().out

    assert main(["init", ""]) == 2
    assert "The name is empty" in capsys.readouterr().err
    assert main(["init", "."]) == 2
    assert "is not empty, and nothing in it is replaced" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["-x", "1st", "a b", "a.b", "näh", "Prefect-shop", "x" * 51, "a\nb", "a/b c"]
)
def test_odd_names_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="cannot be the name of a project: give one of at most"):
        write_project(tmp_path / "p-1" / name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_as_it_is(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("mine")
    with pytest.raises(InputError, match=r"full is not empty, .* give another name"):
        write_project(tmp_path / "full")
    assert (tmp_path / "full" / "README.md").read_text() == "mine"
    for make in (Path.touch, lambda path: path.symlink_to("nowhere")):
        make(place := tmp_path / "place")
        with pytest.raises(InputError, match="is there already, and is not a folder"):
            write_project(place)
        place.unlink()
    with pytest.raises(InputError, match=r"cannot be written to .* \(Not a directory\): choose"):
        write_project(tmp_path / "full" / "README.md" / "shop")


@pytest.mark.parametrize("was_there", [True, False])
def test_a_project_that_cannot_be_finished_is_taken_away(tmp_path, monkeypatch, was_there):
    def full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_project, "write_demo_table", full_disk)
    if was_there:
        (tmp_path / "shop").mkdir()
    with pytest.raises(InputError, match=r"\(No space left on device\): choose a place"):
        write_project(tmp_path / "shop")
    assert list(tmp_path.rglob("*")) == [tmp_path / "shop"] * was_there


def test_what_another_writes_meanwhile_is_left_as_it_is(tmp_path, monkeypatch):
    theirs = tmp_path / "shop" / "prefect.yaml"
    read = Path.read_text

    def meanwhile(path: Path, *arguments: object, **named: object) -> str:
        if path.parent == new_project.TEMPLATE:
            theirs.write_text("theirs")
        return read(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", meanwhile)
    with pytest.raises(InputError, match="cannot be written"):
        write_project(tmp_path / "shop")
    assert list((tmp_path / "shop").iterdir()) == [theirs]
    assert theirs.read_text() == "theirs"


def words_of(readme: str) -> list[str]:
    """The lines between fences, in their order."""
    blocks = re.findall(r"^```bash\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow  # a server, a worker and eight commands, each with a start of its own
def test_the_words_of_its_readme_where_only_a_wheel_and_what_it_tells_is_installed(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", installed, wheel], check=True)
    port = str(free_port())
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "PARTWISE_"))}
    told = told_by((TEMPLATE / "README.md.template").read_text())
    assert set(told) == {"partwise", "pytest>=9"}
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(hide_others(tmp_path / "only", told)), str(installed)]),
        "PATH": os.pathsep.join(
            [str(installed / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PREFECT_HOME": str(tmp_path / "home"),
        "PARTWISE_PORT": port,
        "COLUMNS": "200",
    }

    def run(script: str, folder: Path) -> str:
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
        )
        assert done.returncode == 0, done.stdout
        assert "Traceback" not in done.stdout
        return done.stdout

    where = run(
        'python -c "import partwise; print(partwise.__file__)"; partwise init shop', tmp_path
    )
    assert where.startswith(str(installed))
    shop = tmp_path / "shop"
    words = words_of((shop / "README.md").read_text())
    assert {"up", "deploy", "down"} <= {line.split()[1] for line in words}
    # The forecast is started by an event, a moment after the training.
    used = "until ls artifacts/runs/nightly-*-used/report.html; do sleep 1; done 2> /dev/null"
    words.insert(words.index("partwise down"), used)
    try:
        printed = run("\n".join(words).replace(":4200/", f":{port}/"), shop)
    finally:
        run("partwise down", shop)
    assert printed.count("20 DONE") >= 3
    assert "prefect deployment run train-models/shop-nightly" in printed
    assert "20 DONE" in run("partwise runs show $(basename artifacts/runs/nightly-*-used)", shop)
    assert "3 passed" in run("python -m pytest -p no:cacheprovider", shop)
