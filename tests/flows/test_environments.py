"""Functions with packages of their own: before the workers' packages, and part of what a resume
compares."""

import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise import (
    Environment,
    EnvironmentBuildError,
    ExecutionOptions,
    PackageError,
    PickleSerde,
    Result,
    Run,
    map_partitions,
    run_inference,
    train_models,
)
from partwise.calls.partitions import MapCall
from partwise.calls.reading import read_arguments
from partwise.environments.cache import environments_folder
from partwise.fingerprints.changes import describe_changes
from tests.environments.wheels import make_wheel

pytestmark = pytest.mark.usefixtures("single_shard")

ROWS = pa.table({"key": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]})


@pytest.fixture
def wheels(tmp_path) -> Path:
    folder = tmp_path / "wheels"
    make_wheel(folder, "shop", "1.0", "def main():\n    print('open')\n", script="shop")
    make_wheel(folder, "shop", "2.0", "def main():\n    print('open')\n", script="shop")
    return folder


@pytest.fixture
def call(tmp_path, wheels, cluster):
    def map_rows(function, *packages, **options):
        asked = Environment()
        if packages:
            asked = Environment(packages=packages, find_links=(str(wheels),), no_index=True)
        options = {"run_id": "run", "cluster": cluster, "store": tmp_path / "store"} | options
        options = {"environment": asked, "data": ROWS} | options
        return map_partitions(partition_by="key", function=function, **options)

    return map_rows


def look(data, context):
    """Tell which packages a partition has."""
    import shop

    program = subprocess.run(["shop"], capture_output=True, text=True).stdout.strip()
    import numpy

    return pa.table(
        {
            "shop": [shop.__version__],
            "program": [program],
            "numpy": [numpy.__version__],
            "place": [shop.__file__],
            "pid": [os.getpid()],
        }
    )


def see(data, context):
    """Tell where a package comes from, or that it is not there."""
    try:
        import shop
    except ImportError:
        return pa.table({"shop": ["none"]})
    return pa.table({"shop": [shop.__version__]})


def fit(data, context):
    import shop

    return Result(model=shop.Model(data.to_arrow()["x"].to_pylist()))


def predict(data, model, context):
    return pa.table({"total": [model.total]})


def versions(run: Run) -> set[str]:
    return {row["shop"] for row in run.predictions().to_pylist()}


@pytest.mark.slow
def test_a_function_has_its_packages_before_those_of_the_workers(call) -> None:
    run = call(look, "shop")
    rows = run.predictions().to_pylist()
    assert {(row["shop"], row["program"]) for row in rows} == {("2.0", "open")}
    assert rows[0]["place"].startswith(str(environments_folder()))
    assert run.read_generation_document().environment["shop"].startswith("2.0 (")
    each_in_its_own = ExecutionOptions(isolation="partition")
    run = call(look, "shop<2", run_id="isolated", execution=each_in_its_own)
    assert {row["shop"] for row in run.predictions().to_pylist()} == {"1.0"}
    assert versions(call(see, run_id="none", environment=Environment())) == {"none"}


@pytest.mark.slow
def test_a_resume_compares_packages_and_keeps_versions_that_fit(call, wheels) -> None:
    assert versions(call(see, "shop")) == {"2.0"}
    make_wheel(wheels, "shop", "3.0")
    again = call(see, "shop", on_existing_artifacts="resume")
    assert (again.kept, versions(again)) == (2, {"2.0"})
    other = call(see, "shop!=2.0", on_existing_artifacts="resume")
    assert (other.kept, versions(other)) == (0, {"3.0"})
    parts = [other.read_generation_document(number).code_parts for number in (1, 3)]
    (change,) = describe_changes(*parts)
    assert re.fullmatch(r"shop is 3\.0 \(\w+\) and was 2\.0 \(\w+\)", change)
    without = call(see, on_existing_artifacts="resume", environment=Environment())
    assert (without.kept, versions(without)) == (0, {"none"})
    # A new run, and one that is begun again, have the newest.
    assert versions(call(see, "shop", on_existing_artifacts="overwrite")) == {"3.0"}


def test_a_call_with_packages_is_repeated_from_what_is_written_down(call, tmp_path) -> None:
    run = call(see, "shop<2")
    kind, arguments = read_arguments(run.read_generation_document().call_known)
    assert kind is MapCall
    assert arguments["environment"].packages == ("shop<2",)


@pytest.mark.slow
def test_a_model_of_a_package_is_trained_and_used_in_its_environment(
    tmp_path, wheels, cluster
) -> None:
    content = "class Model:\n    def __init__(self, values):\n        self.total = sum(values)\n"
    make_wheel(wheels, "shop", "4.0", content)
    common = {
        "store": tmp_path / "store",
        "serde": PickleSerde(),
        "environment": Environment(packages=("shop",), find_links=(str(wheels),), no_index=True),
        "cluster": cluster,
    }
    train_models(ROWS, "key", fit, run_id="one", **common)
    run = run_inference(ROWS, "key", "one", predict, **common)
    assert run.predictions()["total"].to_pylist() == [3.0, 3.0]


def test_what_cannot_be_resolved_is_told_before_a_run_is_begun(call, tmp_path) -> None:
    with pytest.raises(PackageError, match=r"environment of shop>7.* uv says: .*only shop<=2\.0"):
        call(see, "shop>7")
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("run.json"))


def test_packages_that_partwise_cannot_work_with_are_refused(call, wheels, tmp_path) -> None:
    make_wheel(wheels, "old-maths", "1.0", requires=["numpy<2"])
    make_wheel(wheels, "numpy", "1.26.0")
    with pytest.raises(PackageError, match=r"uv says: .*numpy>=2\.0"):
        call(see, "old-maths")
    make_wheel(wheels, "numpy", "99.0", "raise ImportError('this is none')")
    with pytest.raises(EnvironmentBuildError, match=r"partwise does not run on .* this is none"):
        call(see, "numpy")
    assert not list(tmp_path.glob("store/runs/*"))


def test_a_password_is_nowhere_in_the_store(call, tmp_path, wheels, capfd) -> None:
    asked = Environment(
        packages=("shop",),
        find_links=(str(wheels),),
        no_index=True,
        extra_index_urls=("https://carol:s3cret@wheels.invalid/simple",),
    )
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    run = call(see, environment=asked, data=tmp_path / "rows.parquet")
    assert versions(run) == {"2.0"}
    document = run.read_generation_document()
    assert document.call is None
    assert "holds a password" in document.call_obstacle
    for path in filter(Path.is_file, (tmp_path / "store").rglob("*")):
        assert b"s3cret" not in path.read_bytes(), path
    assert "s3cret" not in "".join(capfd.readouterr())
