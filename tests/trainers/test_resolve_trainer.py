import sys

import pytest

from partwise.errors import FunctionError
from partwise.trainers import LightGBMTrainer, default_predict, resolve_trainer

MODULE = """
from partwise.trainers import LightGBMTrainer
ready = LightGBMTrainer(label="y")
settings = {"label": "y"}
class Own: ...
def fit(data, context): ...
def _hidden(data, context): ...
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_fits").mkdir()
    (tmp_path / "own_fits" / "daily.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("import no_such_module")
    (tmp_path / "json.py").write_text("raise SystemExit('the module of the cwd came first')")
    yield tmp_path
    for name in ("own_fits", "own_fits.daily", "own_broken"):
        sys.modules.pop(name, None)


def test_what_can_be_called_is_returned():
    trainer = LightGBMTrainer(label="y")
    assert resolve_trainer(trainer) is trainer
    assert resolve_trainer("partwise.trainers:default_predict") is default_predict


def test_the_current_directory_comes_last(project):
    assert resolve_trainer("own_fits.daily:fit").__name__ == "fit"
    assert resolve_trainer("own_fits.daily:ready") == LightGBMTrainer(label="y")
    assert sys.path[-1] == str(project)
    assert resolve_trainer("json:dumps").__module__ == "json"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_fits.daily", "'own_fits.daily' does not name a train function: write"),
        ("own_fits.daily:", "does not name"),
        ("own_fits/daily.py:fit", "does not name"),
        ("own_fits.daily:fit.__globals__", "does not name"),
        ("own_fits.daily:_hidden", "with no name that starts with an underscore"),
        ("own_fits.__init__:fit", "with no name that starts with an underscore"),
        ("own_fits.weekly:fit", r"cannot be imported \(ModuleNotFoundError: .*own_fits.weekly"),
        ("own_broken:fit", r"cannot be imported \(ModuleNotFoundError: .*no_such_module"),
        ("own_fits.daily:fitt", r"'own_fits.daily' \(.*daily.py\) has no 'fitt'"),
        ("own_fits:fit", "The module 'own_fits' has no 'fit'"),
        ("sys:fit", "The module 'sys' has no 'fit'"),
        ("own_fits.daily:settings", "is a dict: give a function"),
        ("own_fits.daily:Own", "is a type: give a function"),
    ],
)
def test_what_cannot_be_found_or_called_is_refused_in_one_line(project, name, message):
    with pytest.raises(FunctionError, match=message) as caught:
        resolve_trainer(name)
    assert "\n" not in str(caught.value)


def test_a_class_is_no_trainer():
    with pytest.raises(FunctionError, match=r"is a .*: give a function of .* or a trainer"):
        resolve_trainer(LightGBMTrainer)
