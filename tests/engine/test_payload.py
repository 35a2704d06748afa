"""What names the work of an execution, in each of its assignments."""

from typing import Any

import pytest
from distributed.protocol import pickle

from partwise.engine.driver.named_modules import named_modules
from partwise.engine.driver.payload import full_name_of


def fit(data: Any, context: Any) -> None:
    """Do nothing."""


def test_the_name_of_a_scripts_function_is_pickled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask looks for the words `__main__` in a pickle, and where they stand makes another one."""
    monkeypatch.setattr(fit, "__module__", "__main__")

    def refuse(*_: object, **__: object) -> bytes:
        raise AssertionError("pickled once more, by cloudpickle")

    monkeypatch.setattr(pickle.cloudpickle, "dumps", refuse)
    # Else what follows would prove nothing.
    with pytest.raises(AssertionError, match="once more"):
        pickle.dumps(fit.__module__)
    name = full_name_of(fit)
    assert pickle.loads(pickle.dumps(name)) == name


def test_works_share_a_name_that_use_the_same() -> None:
    assert full_name_of(fit) == full_name_of(fit)
    others = [full_name_of(fit, "run-1"), full_name_of(fit, "run-2"), full_name_of(full_name_of)]
    assert len({full_name_of(fit), *others}) == 4


def test_a_function_that_exec_made_has_a_name_and_no_module() -> None:
    made: dict[str, Any] = {}
    exec("def fit(data, context): ...", made)
    assert made["fit"].__module__ is None
    assert full_name_of(made["fit"]) not in ("", full_name_of(fit))
    assert named_modules(made["fit"], ["library torch"]) == ("torch",)
