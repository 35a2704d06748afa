"""A class of partwise's own that moved keeps the name under which runs have fingerprinted it."""

from importlib.util import find_spec

import pytest

import partwise
from partwise.fingerprints.canonical import canonical_bytes
from partwise.fingerprints.class_content import class_content
from partwise.fingerprints.first_places import _FIRST
from partwise.fingerprints.functions import code_fingerprint

PLACES = {
    "Best": "best",
    "DistributedLightGBM": "distributed_lightgbm",
    "DistributedXGBoost": "distributed_xgboost",
    "LastValue": "naive",
    "LightGBMTrainer": "lightgbm",
    "Linear": "scikit_learn",
    "Mean": "naive",
    "RandomForest": "scikit_learn",
    "SeasonalNaive": "naive",
    "StatsForecast": "stats_forecast",
    "TorchDistributor": "torch_distributor",
    "Tuned": "tuned",
    "XGBoostTrainer": "xgboost",
}
"""Where runs of November 2026 met them."""


@pytest.mark.parametrize("name", PLACES)
def test_a_trainer_has_the_name_that_runs_know(name):
    kind = getattr(partwise, name)
    known = f"partwise.trainers.{PLACES[name]}".encode()
    assert known + name.encode() in canonical_bytes(kind)


def test_code_of_a_user_that_names_one_is_as_it_was(monkeypatch):
    class Own(partwise.LightGBMTrainer):
        pass

    today = code_fingerprint(Own)
    monkeypatch.setattr(partwise.LightGBMTrainer, "__module__", "partwise.trainers.lightgbm")
    assert code_fingerprint(Own) == today


def test_all_that_moved_is_there():
    assert all(find_spec(module) for module in _FIRST)


def test_what_the_base_of_settings_got_later_does_not_count():
    class Own(partwise.LightGBMTrainer):
        pass

    content = class_content(Own, whole=False)
    found = repr((content["config"], content["model_config"], content["validators"]))
    assert "field_title_generator" in Own.model_config
    assert "field_title_generator" not in found
    assert "_has_names_of_today" not in found
    assert all(each["field_title_generator"] is None for _, each in content["fields"])
