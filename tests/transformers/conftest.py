"""What tests of exports share."""

import sys
from collections.abc import Iterator

import pytest

from partwise.exports.proof.judge import close_judges
from tests.transformers.neuron_stand_in import STAND_IN


@pytest.fixture(scope="module", autouse=True)
def no_judge_outlives_a_module():
    yield
    close_judges()


@pytest.fixture
def neuron_sdk(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("sdk")
    (folder / "torch_neuronx.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(folder))  # for the process that judges as well
    yield
    sys.modules.pop("torch_neuronx", None)
