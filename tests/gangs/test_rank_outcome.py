"""What a rank tells its node of the files that it made."""

import os
from pathlib import Path

import pytest

from partwise.engine.outcome import Produced, WrittenModel
from partwise.errors import InputError
from partwise.gangs.rank import _describe
from partwise.outcomes import PartitionStatus
from partwise.ranks.context import RankContext


@pytest.fixture
def context(tmp_path, monkeypatch) -> RankContext:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return RankContext(rank=0, world_size=1, model_directory=tmp_path / "model")


def test_an_output_is_the_file_that_the_rank_sees(context) -> None:
    """The worker may have one of that name in its own working directory."""
    Path("metrics.json").write_text("{}")
    context.outputs["metrics.json"] = Path("metrics.json")
    outcome = _describe(Produced(status=PartitionStatus.DONE), context)
    assert outcome.files == {"metrics.json": os.path.abspath("metrics.json")}


@pytest.mark.parametrize("path", ["missing", "."])
def test_an_output_that_is_no_file_is_refused(context, path) -> None:
    context.outputs["a.txt"] = Path(path)
    with pytest.raises(InputError, match=r"output 'a\.txt' is to be .*: there is no such file"):
        _describe(Produced(status=PartitionStatus.DONE), context)


@pytest.mark.parametrize("name", ["log.txt", "model.txt"])
def test_no_file_has_the_name_of_the_log_or_the_model(context, name) -> None:
    """An artifact has one name, and each of them would have been there twice."""
    path = Path(name)
    path.touch()
    context.outputs[name] = path
    model = WrittenModel(filename="model.txt", content=str(path), serde="text")
    with pytest.raises(InputError, match=f"The file '{name}' of rank 0 has the name of its log"):
        _describe(Produced(status=PartitionStatus.DONE, model=model), context)
