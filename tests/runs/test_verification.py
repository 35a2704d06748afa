"""What `verify_run` finds, and what becomes of it: trials of damage over all files."""

from pathlib import Path

import pytest

from partwise.flows.cli.main import main
from partwise.outcomes import RunStatus
from partwise.runs.verification import set_aside, verify_run
from partwise.store.signing import KEYS_VARIABLE, STATE_VARIABLE
from partwise.store.store import Store
from tests.corruption import corruption_trials
from tests.run_maker import RunMaker
from tests.thoroughness import THOROUGH


@pytest.fixture
def key(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv(KEYS_VARIABLE, f"2026:{'a1' * 32}")


@pytest.mark.usefixtures("key")
def test_some_damages_are_refused_or_harmless(tmp_path: Path) -> None:
    trials = corruption_trials(1, 40, tmp_path)
    assert (trials.wrong, trials.not_verified) == ([], [])
    assert trials.count == 40
    assert trials.refused > 15


@pytest.mark.slow
@pytest.mark.usefixtures("key")
def test_more_damages_are_refused_or_harmless(tmp_path: Path) -> None:
    # `make chaos` tries a thousand.
    trials = corruption_trials(7, 400 if THOROUGH else 150, tmp_path)
    assert (trials.wrong, trials.not_verified) == ([], [])
    assert trials.refused > 0.38 * trials.count


def test_a_rotten_bundle_is_found_set_aside_and_made_anew(tmp_path: Path, capsys) -> None:
    maker = RunMaker(Store.parse(tmp_path))
    maker.begin()
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    maker.commit(("c", "DONE", 3.0))
    run = maker.end(3)
    assert verify_run("run", run.store).damages == []
    bundle = run.stored_artifacts(run.partition_id("a"))[0].bundle
    path = tmp_path / "runs/run" / bundle
    path.write_bytes(path.read_bytes().replace(b"a 1.0", b"a 2.0"))
    assert run.is_whole()
    [damage] = verify_run("run", run.store).damages
    assert (damage.path, damage.can_be_made_again) == (bundle, True)
    assert "--set-aside and resume the run" in str(damage)

    assert main(["runs", "verify", "run", "--store", str(tmp_path)]) == 1
    assert "1 damaged" in capsys.readouterr().out
    assert path.exists()
    assert main(["runs", "verify", "run", "--set-aside", "--store", str(tmp_path)]) == 1
    assert f"set aside: {bundle}" in capsys.readouterr().out
    assert not run.refresh().is_whole()
    assert (tmp_path / "runs/run/damaged" / path.name).exists()
    assert [damage.what for damage in verify_run("run", run.store).damages] == ["it is gone"]
    assert set_aside(verify_run("run", run.store), run.store) == []

    maker.begin()
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    maker.commit(("c", "DONE", 3.0))
    assert maker.end(3).status is RunStatus.SUCCESS
    assert main(["runs", "verify", "run", "--store", str(tmp_path)]) == 0
    assert "all as they were written" in capsys.readouterr().out


def test_a_run_of_an_earlier_release_is_said_not_to_be_bound(capsys) -> None:
    store = Path(__file__).parents[1] / "reference" / "v2" / "store"
    found = verify_run("infer", Store.parse(store))
    assert found.damages == []
    assert len(found.notes) == 1
    assert main(["runs", "verify", "infer", "--store", str(store)]) == 0
    assert "not bound: generation 1 is of an earlier release" in capsys.readouterr().out


def test_a_dataset_is_verified(tmp_path: Path, capsys) -> None:
    from partwise.datasets.registration import register_dataset
    from tests.corruption import TABLE

    for start in (0, 3):
        register_dataset("sales", TABLE.slice(start), store=tmp_path)
    arguments = ["data", "verify", "sales", "--store", str(tmp_path)]
    assert main(arguments) == 0
    assert "4 files of sales" in capsys.readouterr().out
    (tmp_path / "datasets/sales/manifests/0001.json").unlink()
    part = sorted((tmp_path / "datasets/sales/parts").glob("*/*.parquet"))
    for path in part:
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    assert main(arguments) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "manifests/0001.json is gone, and later versions are there" in printed
    assert "was changed after it was registered" in printed
    assert main(["data", "verify", "sales@2", "--store", str(tmp_path)]) == 1
