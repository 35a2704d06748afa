import dataclasses
import json
import subprocess
import sys

import pytest

from partwise.errors import SerdeError
from partwise.models.serdes import (
    PROGRAMS,
    SERDES,
    LightGBMSerde,
    PickleSerde,
    TorchSerde,
    XGBoostSerde,
    refuse_program,
    serde_by_name,
    serde_for,
    serde_name,
)


class OwnSerde:
    filename = "model.own"

    def write(self, model, file_path):
        raise NotImplementedError

    def read(self, file_path):
        raise NotImplementedError


OWN = f"{__name__}:OwnSerde"


def stand_in(module, name, *bases):
    return type(name, bases, {"__module__": module})


def test_the_type_decides_by_its_nearest_ancestor():
    torch_module = stand_in("torch.nn.modules.module", "Module")
    keras_model = stand_in("keras.src.models.model", "Model", torch_module)
    cases = {
        "torch": stand_in("mine", "Net", torch_module),
        "keras": stand_in("keras.src.models.sequential", "Sequential", keras_model),
        "xgboost": stand_in(
            "xgboost.sklearn", "XGBRegressor", stand_in("xgboost.sklearn", "XGBModel")
        ),
        "lightgbm": stand_in("lightgbm.basic", "Booster"),
    }
    assert {name: serde_name(serde_for(kind())) for name, kind in cases.items()} == {
        name: name for name in cases
    }


@pytest.mark.parametrize(
    "model",
    [{"a": 1}, 3.0, stand_in("mine", "Booster")(), stand_in("xgboost_like", "Booster")()],
    ids=["dict", "float", "own", "similar"],
)
def test_a_type_without_native_format_is_refused_with_the_ways_out(model):
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    with pytest.raises(SerdeError, match=rf"{kind}: pass .*\(--pickle on .*\) or your own .*or"):
        serde_for(model)


def test_choosing_imports_no_library():
    code = (
        "import sys; from partwise.models.serdes import SERDES, serde_for;"
        "[make() for make in SERDES.values()]\n"
        "try: serde_for([])\n"
        "except ValueError: pass\n"
        "print(*{'xgboost', 'lightgbm', 'torch', 'keras', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_names_lead_back_to_serdes():
    for name, make in SERDES.items():
        assert serde_name(make()) == name
        assert serde_by_name(name, make()) == make()
    assert serde_name(OwnSerde()) == OWN


def test_settings_may_come_from_a_document():
    for name, make in SERDES.items():
        settings = json.loads(json.dumps(dataclasses.asdict(make())))
        assert type(make())(**settings) == make(), name
        assert hash(type(make())(**settings)) == hash(make()), name


def test_a_given_serde_is_used_where_its_name_fits():
    given = TorchSerde(classes=(OwnSerde,))
    assert serde_by_name("torch", given) is given
    assert serde_by_name("lightgbm", given) == LightGBMSerde()
    assert serde_by_name("xgboost", None) == XGBoostSerde()
    assert serde_by_name("xgboost", PickleSerde()) == XGBoostSerde()


@pytest.mark.parametrize("given", [None, LightGBMSerde(), OwnSerde()], ids=["none", "other", "own"])
def test_a_pickle_is_not_read_unless_the_caller_passes_its_serde(given):
    with pytest.raises(SerdeError, match=r"'pickle', .*pass serde=PickleSerde\(\)"):
        serde_by_name("pickle", given)
    pickled = PickleSerde(filename="other.pkl")
    assert serde_by_name("pickle", pickled) is pickled


@pytest.mark.parametrize("given", [None, PickleSerde()], ids=["none", "other"])
def test_a_serde_of_ones_own_has_to_be_given(given):
    with pytest.raises(SerdeError, match=f"by the serde '{OWN}', and .* given: pass an object"):
        serde_by_name(OWN, given)
    own = OwnSerde()
    assert serde_by_name(OWN, own) is own
    assert serde_by_name("__main__:OwnSerde", own) is own
    with pytest.raises(SerdeError, match="'mine:OtherSerde'"):
        serde_by_name("mine:OtherSerde", own)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_file_that_runs_code_is_read_only_where_its_format_is_named(name):
    # A ledger has the name, and whoever writes to the store may change it.
    for given in (None, LightGBMSerde(), OwnSerde()):
        with pytest.raises(SerdeError, match="runs the code in it: if you trust"):
            serde_by_name(name, given)
    given = SERDES[name]()
    assert serde_by_name(name, given) is given
    for named in ("", "native", "onnx"):
        with pytest.raises(SerdeError, match=f"pass format='{name}'"):
            refuse_program(name, named)
    refuse_program(name, name)
    refuse_program("onnx", "")
