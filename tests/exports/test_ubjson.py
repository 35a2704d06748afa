import json

import numpy as np
import pytest

from partwise.exports.trees.ubjson import read_ubjson
from tests.lazily import Lazily

xgboost = Lazily("xgboost")

RNG = np.random.default_rng(0)


def plain(value):
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | np.ndarray):
        return [plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("name", ["gbtree", "dart", "gblinear"])
def test_it_holds_what_the_json_of_a_model_holds(name):
    columns = np.column_stack([RNG.integers(0, 20, 300), RNG.normal(size=(300, 2)) * 1e3])
    kinds = ["q", "float", "float"] if name == "gblinear" else ["c", "float", "float"]
    rows = xgboost.DMatrix(
        columns, columns[:, 1], feature_names=["é", "日本", "c"], feature_types=kinds, nthread=1
    )
    model = xgboost.train({"nthread": 1, "booster": name}, rows, 12)
    model.set_attr(note='"größe"')
    found = plain(read_ubjson(bytes(model.save_raw("ubj"))))
    expected = json.loads(bytes(model.save_raw("json")), parse_float=lambda n: float(np.float32(n)))
    assert found == expected


def test_values_of_each_type():
    content = (
        b"[i\xffU\xffI\x01\x00l\x00\x01\x00\x00D?\xf8\x00\x00\x00\x00\x00\x00TFZ{i\x01aSU\x01b}]"
    )
    assert read_ubjson(content) == [-1, 255, 256, 65536, 1.5, True, False, None, {"a": "b"}]
    assert read_ubjson(b"[$I#U\x02\x00\x07\xff\xff").tolist() == [7, -1]
    assert read_ubjson(b"[#i\x02TF") == [True, False]
    with pytest.raises(ValueError, match="type 'C' at 0"):
        read_ubjson(b"Cx")
