"""LightGBM's own names, told by its library alone."""

import subprocess
import sys

import pytest

from partwise.errors import InputError
from partwise.trainers.ready.lightgbm import lightgbm_names
from partwise.trainers.ready.lightgbm_parameters import parameter_names


def test_the_names_are_those_of_the_package() -> None:
    from lightgbm.basic import _ConfigAliases

    expected = {
        alias: name
        for name, aliases in _ConfigAliases._get_all_param_aliases().items()
        for alias in (name, *aliases)
    }
    assert parameter_names() == expected
    assert lightgbm_names({"eta": 0.1, "num_leaves": 4}) == {"learning_rate": 0.1, "num_leaves": 4}
    with pytest.raises(InputError, match="LightGBM has no parameter 'num_leafs'"):
        lightgbm_names({"num_leafs": 4})


def test_a_trainer_is_checked_without_the_package() -> None:
    code = (
        "import sys, pyarrow as pa; from partwise import LightGBMTrainer;"
        "schema = pa.schema({'y': pa.float64(), 'x': pa.float64()});"
        "LightGBMTrainer(label='y', params={'eta': 0.1}).check(schema, key_columns=());"
        "print({'lightgbm', 'sklearn', 'pandas', 'prefect', 'distributed'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
