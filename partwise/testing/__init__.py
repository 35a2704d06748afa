"""Contracts: the tests that your own serde, exporter or source, or your object store, has to pass.

They need pytest. Inherit one in a test file of yours, and pytest runs its tests:

    from partwise.testing import SerdeContract

    class TestSkopsSerde(SerdeContract):
        serde = SkopsSerde()

        def model(self):
            return LinearRegression().fit(X, y)

        def predictions(self, model):
            return model.predict(X)
"""

import importlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from partwise.testing.exporter import ExporterContract
    from partwise.testing.serde import SerdeContract
    from partwise.testing.source import SourceContract
    from partwise.testing.store import StoreContract

__all__ = ["ExporterContract", "SerdeContract", "SourceContract", "StoreContract"]

_MODULES = {name: f"{__name__}.{name.removesuffix('Contract').lower()}" for name in __all__}

# Else a failed assertion of a contract would not show its values.
pytest.register_assert_rewrite(*_MODULES.values())


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
