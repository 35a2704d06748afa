"""A call that stands in the store: used when it is one's own, or when its caller says so."""

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from partwise.calls.reading import read_arguments, read_call
from partwise.errors import FunctionError, InputError, RunFormatError, SerdeError, TrustError
from partwise.flows.cli.main import main
from partwise.flows.running.earlier_call import EarlierCall
from partwise.models.serdes import LightGBMSerde
from partwise.runs.documents import generation_file
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer
from partwise.trainers.allowed_modules import MODULES_VARIABLE, check_allowed
from tests.security.forgery import read_members, reseal, write_members

RUNS = ("touch", "ran-what-the-store-names")


@dataclass(frozen=True, kw_only=True)
class MarkingSerde:
    """A serde as a project has one."""

    filename: str = "model.bin"

    def write(self, model: Any, file_path: str) -> None:
        Path(file_path).write_text(str(model))

    def read(self, file_path: str) -> Any:
        return Path(file_path).read_text()


def marking(data, context) -> None:
    """Train, as a project's function does."""


def call_of(**arguments: Any) -> dict[str, Any]:
    data = arguments.pop("data", None)
    given = {"trainer": {"kind": "lightgbm", "label": "y"}, "seed": 3, "serde": None}
    return {
        "flow": arguments.pop("flow", "train_models"),
        "data": data,
        "arguments": given | arguments,
        "version": None,
    }


@pytest.fixture
def forge(make_run, monkeypatch, tmp_path):
    """Write another call into a run, as whoever can write to the store may."""
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    run = make_run.end(1)
    monkeypatch.chdir(tmp_path)

    def forged(call: dict[str, Any]) -> Run:
        folder = Path(run.store.url, "runs", run.run_id)
        path = folder / generation_file(1)
        write_members(path, read_members(path) | {"call": call, "call_obstacle": None})
        reseal(folder)
        return Run.open(run.run_id, run.store)

    return forged


@pytest.fixture
def canary_host():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        yield listener


def is_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


STORE = {"name": "partwise.store.store:Store", "settings": {"url": "/tmp"}}
SERDE = {"name": "subprocess:check_output", "settings": {"args": RUNS}}


@pytest.mark.parametrize(
    "call",
    [
        call_of(serde=SERDE),
        call_of(trainer="os:system"),
        call_of(flow="export_models", example_inputs="os:getcwd", exporter="os:getcwd"),
        call_of(flow="run_script", command=list(RUNS)),
    ],
    ids=["serde", "trainer", "exporter", "script"],
)
def test_a_resume_shows_the_call_of_a_run_made_elsewhere_and_ends(forge, call, capsys):
    run = forge(call)
    for command in ("resume", "repeat"):
        code = main(["runs", command, run.run_id, "--store", run.store.url])
        shown = " ".join(capsys.readouterr().err.split())
        assert code == 2
        assert "was not begun by this user on this machine" in shown
        assert call["flow"] in shown
        assert "--trust" in shown
    assert not Path(RUNS[1]).exists()


def test_exports_use_nothing_of_such_a_call_but_plain_settings(forge, canary_host, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "a-secret")
    uri = f"postgresql://somebody@127.0.0.1:{canary_host.getsockname()[1]}/x"
    recipe = {"query": {"query": "t", "uri": uri}, "columns": None, "filter": None}
    earlier = EarlierCall.of(forge(call_of(data=recipe, serde=SERDE, exporter="os:getcwd")))
    assert earlier.seed == 3
    assert earlier.trainer == LightGBMTrainer(label="y")
    with pytest.raises(TrustError, match=r"not begun by this user .* trust=True"):
        earlier.open_rows("", None, None)
    with pytest.raises(TrustError):
        earlier.named("exporter")
    assert earlier.named("example_inputs") == ""
    written_before = call_of(flow="export_models", trainer=None, inputs="os:getcwd")
    with pytest.raises(TrustError):
        EarlierCall.of(forge(written_before)).named("example_inputs")
    functions = {"kind": "best", "label": "y", "candidates": ["os:system"]}
    with pytest.raises(TrustError):
        EarlierCall.of(forge(call_of(trainer=functions))).trainer  # noqa: B018 (a property)
    assert not Path(RUNS[1]).exists()
    assert not is_called(canary_host)


@pytest.mark.parametrize(
    ("serde", "error", "why"),
    [
        (SERDE, FunctionError, "neither partwise's nor of the project"),
        ({"name": "partwise.runs.run:Run", "settings": {}}, SerdeError, "not a class of serdes"),
        (STORE, SerdeError, "not a class of serdes"),
        ({"name": f"{__name__}:forge", "settings": {}}, SerdeError, "not a class of serdes"),
        ({"name": f"{__name__}:None", "settings": {}}, InputError, "cannot be imported"),
        ({"name": "lightgbm", "settings": {"secret": 1}}, SerdeError, "takes no such settings"),
    ],
)
def test_a_serde_is_a_class_of_serdes_also_where_the_call_is_trusted(
    serde, error, why, monkeypatch
):
    # The project is what has the tests.
    monkeypatch.chdir(Path(__file__).parents[3])
    with pytest.raises(error, match=why):
        read_arguments(call_of(serde=serde))


def test_what_is_of_the_project_is_made_again(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    own = {"name": f"{__name__}:MarkingSerde", "settings": {"filename": "x"}}
    assert read_arguments(call_of(serde=own))[1]["serde"] == MarkingSerde(filename="x")
    native = {"name": "lightgbm", "settings": {"filename": "model.txt"}}
    assert read_arguments(call_of(serde=native))[1]["serde"] == LightGBMSerde()
    named = read_arguments(call_of(trainer=f"{__name__}:marking"))[1]
    assert named["trainer"] == f"{__name__}:marking"


def test_modules_of_the_project_only_and_those_that_are_configured(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("of_project.py").write_text("raise RuntimeError('it was imported')")
    installed = Path("venv", "lib", "site-packages")
    installed.mkdir(parents=True)
    Path(installed, "installed_there.py").touch()
    monkeypatch.syspath_prepend(str(installed.resolve()))
    check_allowed("of_project:train")
    check_allowed("partwise.trainers:default_predict")
    for name in ("os:system", "installed_there:x", "pytest:main", "nowhere:x", ":x", "partwises:x"):
        with pytest.raises(FunctionError, match="neither partwise's nor of the project"):
            check_allowed(name)
    monkeypatch.setenv(MODULES_VARIABLE, "installed_there, shared.models")
    check_allowed("installed_there:x")
    check_allowed("shared.models.deep:x")
    with pytest.raises(FunctionError):
        check_allowed("shared.other:x")


@pytest.mark.parametrize(
    "damage",
    [
        {"flow": "importlib"},
        {"flow": None},
        {"arguments": 3},
        {"arguments": {"trainer": {"kind": "lightgbm", "label": 7}}},
        {"arguments": {"trainer": {}}},
        {"data": {"query": {"query": 3}}},
        {"data": "x"},
        {"data": {"paths": ["x"], "columns": None}},
        {"arguments": {"serde": {"name": 3, "settings": {}}}},
        {"arguments": {"serde": "subprocess:run"}},
    ],
    ids=str,
)
def test_a_call_that_is_none_is_refused_in_a_sentence(damage):
    with pytest.raises(RunFormatError, match="cannot be read"):
        read_arguments(call_of() | damage)


def test_a_call_that_lacks_an_argument_or_has_another_is_refused_in_a_sentence(tmp_path):
    recipe = {"paths": [str(tmp_path)], "columns": None, "filter": None}
    whole = call_of(partition_by=["k"]) | {"data": recipe}
    assert read_call(whole).flow() == "train_models"
    for damage in (call_of() | {"data": recipe}, call_of(partition_by=["k"])):
        with pytest.raises(RunFormatError, match=r"cannot be read .*missing 1 required"):
            read_call(damage)
    with pytest.raises(RunFormatError, match=r"cannot be read .*surprise"):
        read_call(call_of(surprise=1) | {"data": recipe})


def test_a_run_that_was_made_here_is_resumed_without_a_word(make_run):
    make_run.begin()
    make_run.die()
    run = make_run.open()
    assert os.environ["PARTWISE_STATE"]
    assert EarlierCall.of(run).arguments == {}
    assert run.is_made_here()
