"""Documents of runs that are bound to each other, and signed."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.datasets.dataset import Dataset
from partwise.datasets.registration import register_dataset
from partwise.datasets.verification import verify_dataset
from partwise.errors import IntegrityError, RunFormatError, SignatureError
from partwise.runs.run import Run
from partwise.store import signing
from partwise.store.signing import KEYS_VARIABLE, STATE_VARIABLE
from partwise.store.store import Store
from tests.run_maker import RunMaker

OLD = f"2025:{'a1' * 32}"
NEW = f"2026:{'b2' * 32}"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(signing, "_of_blocks", {})
    return tmp_path / "state"


def made(store: Path, run_id: str = "run", generations: int = 1) -> Run:
    maker = RunMaker(Store.parse(store), run_id)
    for number in range(generations):
        maker.begin("overwrite")
        maker.commit(("a", "DONE", 1.0 + number), ("b", "DONE", 2.0))
        maker.end(2)
    return maker.open()


def test_a_run_is_made_here_where_this_users_key_signed_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path / "store")
    assert run.is_made_here()
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "of another"))
    assert not run.refresh().is_made_here()
    assert run.refresh().partitions.num_rows == 2


def test_a_run_is_made_here_where_a_configured_key_signed_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    run = made(tmp_path / "store")
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "of another"))
    assert run.refresh().is_made_here()
    monkeypatch.setenv(KEYS_VARIABLE, f"{NEW} {OLD}")
    assert run.refresh().is_made_here()
    monkeypatch.setenv(KEYS_VARIABLE, NEW)
    with pytest.raises(SignatureError, match="signed with the key '2025', which this process does"):
        run.refresh().is_made_here()


def test_the_call_of_another_run_or_generation_is_not_made_here(tmp_path: Path) -> None:
    run = made(tmp_path / "store", generations=2)
    other = made(tmp_path / "other", generations=1)
    first, second = ("runs/run/generations/0001.json", "runs/run/generations/0002.json")
    store = tmp_path / "store"
    kept = (store / second).read_bytes()
    shutil.copy(store / first, store / second)
    with pytest.raises(IntegrityError, match=r"0002\.json is of generation 1"):
        run.refresh().is_made_here()
    (store / second).write_bytes(kept)
    shutil.copy(tmp_path / "other" / first, store / first)
    with pytest.raises(IntegrityError, match=r"does not name the run\.json that stands there"):
        run.refresh().is_made_here(1)
    assert other.is_made_here(1)


def test_an_edited_call_is_refused_or_not_made_here(tmp_path: Path) -> None:
    run = made(tmp_path / "store")
    path = tmp_path / "store" / "runs/run/generations/0001.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"source_fingerprint": "s"', b'"source_fingerprint": "t"'))
    with pytest.raises(RunFormatError, match="differs from the checksum at its end"):
        run.refresh().read_generation_document()
    # Sealed again by somebody without our key, who also takes the summary away.
    body = signing.unseal(content)
    assert body is not None
    path.write_bytes(signing.seal(body.replace(b'"s"', b'"t"')))
    with pytest.raises(IntegrityError, match="differs from its checksum in the summary"):
        run.refresh().read_generation_document()
    path.with_name("0001.summary.json").unlink()
    assert not run.refresh().is_made_here()


def test_with_a_key_what_it_did_not_sign_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path / "store")
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "of another"))
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    with pytest.raises(SignatureError, match=r"run/generations/0001\.summary\.json is signed with"):
        _ = run.refresh().partitions
    for version in ("v1", "v2"):
        store = Path(__file__).parents[1] / "reference" / version / "store"
        with pytest.raises(SignatureError, match="is not signed, and this process was given"):
            _ = Run.open("train", store).partitions


@pytest.mark.parametrize("what", ["generations", "runs"])
def test_with_a_key_documents_of_another_run_or_store_are_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    made(tmp_path / "store", generations=2)
    if what == "runs":
        made(tmp_path / "store", "other", generations=2)
        source = tmp_path / "store/runs/other/generations"
    else:
        made(tmp_path / "other", generations=2)
        source = tmp_path / "other/runs/run/generations"
    for name in ("0002.json", "0002.ledger.parquet", "0002.summary.json"):
        shutil.copy(source / name, tmp_path / "store/runs/run/generations" / name)
    with pytest.raises((SignatureError, IntegrityError), match=r"elsewhere|does not name"):
        _ = Run.open("run", tmp_path / "store").partitions


def test_with_a_key_an_older_state_of_a_run_is_refused_until_it_is_wanted(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    store = tmp_path / "store"
    made(store, generations=1)
    shutil.copytree(store, tmp_path / "older")
    maker = RunMaker(Store.parse(store))
    maker.begin("overwrite")
    maker.commit(("a", "DONE", 7.0), ("b", "DONE", 2.0))
    maker.end(2)
    shutil.rmtree(store)
    (tmp_path / "older").rename(store)
    with pytest.raises(SignatureError, match=r"older than .* number 1, and number 2 .* delete "):
        Run.open("run", store)
    for file in (state / "seen").iterdir():
        file.unlink()
    assert Run.open("run", store).generation == 1
    # A run that was made again under its name is no older one.
    shutil.rmtree(store)
    assert made(store).refresh().generation == 1


def test_a_link_to_an_older_store_is_no_other_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    made(tmp_path / "older", generations=1)
    shutil.copytree(tmp_path / "older", tmp_path / "store")
    store = tmp_path / "store"
    maker = RunMaker(Store.parse(store))
    maker.begin("overwrite")
    maker.commit(("a", "DONE", 7.0), ("b", "DONE", 2.0))
    maker.end(2)
    (tmp_path / "link").symlink_to(store)
    assert Run.open("run", Store.parse(tmp_path / "link")).generation == 2
    shutil.rmtree(store)
    (tmp_path / "older").rename(store)
    for place in (store, tmp_path / "link"):
        with pytest.raises(SignatureError, match=r"older than .* number 1, and number 2 "):
            Run.open("run", Store.parse(place))


def test_with_a_key_a_newer_version_of_a_dataset_that_was_taken_away_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    for rows in (1, 2):
        register_dataset("sales", pa.table({"x": list(range(rows))}), store=tmp_path)
    assert Dataset.open("sales", store=tmp_path).version == 2
    (tmp_path / "datasets/sales/manifests/0002.json").unlink()
    with pytest.raises(SignatureError, match=r"older than .* number 1, and number 2"):
        Dataset.open("sales", store=tmp_path)
    assert Dataset.open("sales", 1, tmp_path).rows == 1


def test_a_generation_whose_document_is_lost_is_missed(tmp_path: Path) -> None:
    made(tmp_path, generations=2)
    (tmp_path / "runs/run/generations/0002.json").unlink()
    with pytest.raises(RunFormatError, match=r"lacks its generations/0002\.json"):
        Run.open("run", tmp_path).read_generation_document()


def test_with_a_key_verifying_a_dataset_misses_its_newest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    for rows in (1, 2):
        register_dataset("sales", pa.table({"x": list(range(rows))}), store=tmp_path)
    assert verify_dataset("sales", Store.parse(tmp_path)).damages == []
    (tmp_path / "datasets/sales/manifests/0002.json").unlink()
    [damage] = verify_dataset("sales", Store.parse(tmp_path)).damages
    assert "is older than when it was last read here" in damage
