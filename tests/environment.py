"""What tests take over from the machine, and that each leaves its process as it was.

All processes that a test starts take over that of the test.
"""

import os
import sys
from collections.abc import Iterator

import pytest

OF_MACHINE = frozenset(
    {
        *(
            "CI",
            "HOME",
            "HOSTNAME",
            "LANG",
            "LANGUAGE",
            "LOGNAME",
            "PATH",
            "SHELL",
            "TERM",
            "TMPDIR",
        ),
        *("TZ", "USER", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "OMP_NUM_THREADS"),
    }
)
OF_MACHINE_TOO = (
    "CUDA_",
    "LC_",
    "LD_",
    "NVIDIA_",
    "PARTWISE_CHAOS_",
    "PARTWISE_SCREENSHOTS",
    "PARTWISE_TEST_",
    "PARTWISE_THOROUGH",
    "PIP_",
    "PYTEST_",
    "SSL_",
)
"""How names begin. eatmydata needs `LD_`."""

# Libraries set these when they are first imported, for good.
OF_IMPORTS = frozenset(
    {
        *("ENABLE_RUNTIME_UPTIME_TELEMETRY", "TF2_BEHAVIOR"),  # TensorFlow
        *("TPU_ML_PLATFORM", "TPU_ML_PLATFORM_VERSION"),
        *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),  # scikit-learn
        "TORCHINDUCTOR_CACHE_DIR",  # PyTorch, by a compiled optimizer
        *("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"),  # PyTorch, with a GPU
        "RAPIDS_NO_INITIALIZE",  # dask-cuda
        "_RJEM_MALLOC_CONF",  # polars
        "_MLFLOW_TELEMETRY_SESSION_ID",  # MLflow, also where it sends nothing
    }
)

# Dask gives these to the processes of a cluster, by way of this one.
OF_CLUSTERS = frozenset(
    {
        *("MALLOC_TRIM_THRESHOLD_", "PYTHONHASHSEED", "__DASK_PARENT_PID"),
        *("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }
)


def is_of_machine(name: str) -> bool:
    """Whether a variable is about the machine or what runs the tests, not about a person's work."""
    proxy = name.lower().endswith("_proxy")
    return name in OF_MACHINE or name.startswith(OF_MACHINE_TOO) or proxy


@pytest.fixture(autouse=True)
def nothing_is_left_changed() -> Iterator[None]:
    """Fail a test that leaves variables, the working directory or settings of Prefect changed."""
    variables, folder, prefect = dict(os.environ), os.getcwd(), _settings()
    yield
    left = [*_changed(variables, dict(os.environ))]
    if os.getcwd() != folder:
        left.append(f"the working directory {os.getcwd()}")
        os.chdir(folder)
    if prefect is not None and _settings() is not prefect:
        left.append("other settings of Prefect")
    os.environ |= variables
    for name in os.environ.keys() - variables.keys():
        if name not in OF_IMPORTS:
            del os.environ[name]
    if left:
        pytest.fail(f"the test leaves behind: {', '.join(left)}")


def _changed(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """Yield each variable that is another, by what became of it."""
    for name in sorted(before.keys() | after.keys()):
        # pytest's own, for the phase of a test.
        if name == "PYTEST_CURRENT_TEST" or name in (OF_IMPORTS | OF_CLUSTERS) - before.keys():
            continue
        if (value := after.get(name)) != before.get(name):
            yield f"{name} unset" if value is None else f"{name}={value!r}"


def _settings() -> object:
    """Prefect's settings in this thread, where somebody has imported it."""
    if (context := sys.modules.get("prefect.context")) is None:
        return None
    return context.SettingsContext.get()
