"""Words of AzureML's estimators in calls of scripts: they are understood, or named one by one."""

import pytest

from partwise import LocalCluster, run_script
from partwise.errors import InputError
from partwise.flows.running.connections import open_cluster
from partwise.scripts.spec import argument_words


def test_an_empty_value_is_an_option_without_one() -> None:
    given = {"--verbose": "", "epochs": 3, "suffix": [""], "names": ["a", ""], "zero": 0}
    assert argument_words(given) == (
        *("--verbose", "--epochs", "3", "--suffix", "", "--names", "a", "", "--zero", "0"),
    )


@pytest.mark.parametrize("name", ["Nccl", "Gloo", "MPI", "none"])
def test_a_backend_is_taken_in_any_letters(name) -> None:
    assert run_script.checked({"backend": name}, run_script.valid)["backend"] == name.lower()


def test_a_wrong_backend_is_named_alone() -> None:
    given = {"backend": "ParameterServer", "environment_variables": {"PASSWORD": "canary"}}
    with pytest.raises(InputError) as caught:
        run_script.checked(given, run_script.valid)
    said = str(caught.value)
    assert "backend 'ParameterServer': Input should be 'none', 'gloo', 'nccl' or 'mpi'" in said
    assert "canary" not in said
    assert "\n" not in said


def test_local_is_the_cores_of_this_machine() -> None:
    assert open_cluster("local") == open_cluster("") == LocalCluster()
