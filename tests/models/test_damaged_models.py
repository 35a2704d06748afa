"""Files that no library reads: one error of ours, whatever the library raises."""

import numpy as np
import pytest

from partwise.errors import PartwiseError, SerdeError
from partwise.models.serdes import (
    PROGRAMS,
    SERDES,
    LightGBMSerde,
    PickleSerde,
    PlainSerde,
    XGBoostSerde,
)
from partwise.models.serdes.protocol import reads_streams

ROWS = np.arange(40.0).reshape(20, 2)


def written(name: str, path: str) -> None:
    if name == "lightgbm":
        import lightgbm

        settings = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 1, "num_leaves": 4}
        data = lightgbm.Dataset(ROWS, ROWS[:, 0])
        LightGBMSerde().write(lightgbm.train(settings, data, 2), path)
    elif name == "xgboost":
        import xgboost

        data = xgboost.DMatrix(ROWS, ROWS[:, 0])
        XGBoostSerde().write(xgboost.train({"nthread": 1}, data, 2), path)
    else:
        PickleSerde().write({"a": [1, 2]}, path)


@pytest.mark.parametrize("name", sorted(SERDES.keys() - PROGRAMS - {"keras"} | {"pickle"}))
@pytest.mark.parametrize("content", [b"", b"x", b"{}", b"[" * 5000, bytes(range(256)), b"PK\3\4"])
def test_a_file_of_another_kind_is_refused_in_a_sentence(name, content, tmp_path):
    serde = SERDES[name]()
    path = tmp_path / serde.filename
    path.write_bytes(content)
    with pytest.raises(PartwiseError, match=r"\w+ \w+ \w+"):
        serde.read(str(path))
    if reads_streams(serde):
        with path.open("rb") as file, pytest.raises(PartwiseError, match=r"\w+ \w+ \w+"):
            serde.read_stream(file)


@pytest.mark.parametrize("name", ["lightgbm", "pickle"])
def test_a_file_that_is_cut_off_is_refused_in_a_sentence(name, tmp_path):
    # XGBoost's reader may end the process here, and others where bits are other ones; but what is
    # read from a store has the checksum of its ledger.
    serde = SERDES[name]()
    path = tmp_path / serde.filename
    written(name, str(path))
    whole = path.read_bytes()
    end = whole.index(b"end of trees") if name == "lightgbm" else len(whole)
    for size in range(0, end, 97 if name == "lightgbm" else 7):
        path.write_bytes(whole[:size])
        with pytest.raises(PartwiseError, match=r"not a model that \w+ reads"):
            serde.read(str(path))


@pytest.mark.parametrize("name", ["lightgbm", "pickle", "plain", "xgboost"])
def test_a_file_that_is_not_there_is_not_damaged(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="no_model"):
        SERDES[name]().read(str(tmp_path / "no_model"))


@pytest.mark.parametrize("inside", ["", '"text": 1', '"text": "tree"', '"more": {}'])
def test_a_newer_format_is_told_by_its_number_whatever_is_inside(inside, tmp_path):
    path = tmp_path / "model.json"
    inner = f', "model": {{"serde": "lightgbm", {inside}}}' if inside else ""
    path.write_text(f'{{"kind": "of then"{inner}, "format_version": 9}}')
    with pytest.raises(SerdeError, match=r"version 9, .* up to \d; install a newer partwise"):
        PlainSerde().read(str(path))
