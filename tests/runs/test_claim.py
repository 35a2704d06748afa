"""Beginning work on a run: under one identity, one process at a time."""

from dataclasses import replace
from pathlib import Path

import pytest

from partwise.errors import InputError, KeyClassError, RunBusyError, RunExistsError, StoreError
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn

INTENT = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
KEY = KeyColumn(name="key", key_class=KeyClass.STRING)


@pytest.fixture
def ended(make_run):
    """A complete run of one partition."""
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    return make_run.end(1)


def identity(**changes) -> Identity:
    return Identity(**({"run_id": "run", "kind": "map", "key_columns": (KEY,)} | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": "train"}, InputError, "exists with kind 'map', and this call has 'train'"),
        (
            {"key_columns": (KeyColumn(name="store", key_class=KeyClass.STRING),)},
            InputError,
            r"exists with partition_by \['key'\], and this call has \['store'\]",
        ),
        ({"models": ("run://t",)}, InputError, r"exists with models \(\)"),
        (
            {"key_columns": (KeyColumn(name="key", key_class=KeyClass.INTEGER),)},
            KeyClassError,
            "'key'.*string.*integer|'key'.*integer.*string",
        ),
    ],
)
@pytest.mark.parametrize("on_existing", ["resume", "overwrite"])
def test_a_run_keeps_its_identity(ended, on_existing, changes, error, message) -> None:
    with (
        pytest.raises(error, match=message) as refused,
        Claim(ended.store, identity(**changes), on_existing),
    ):
        pass
    assert "\n" not in str(refused.value)
    assert ended.refresh().generation == 1


@pytest.mark.parametrize("changed", ["params=", "arguments="])
def test_what_changed_of_a_script_is_told_by_names_of_today(make_run, changed) -> None:
    before = {"params=": "1", "arguments=": "2", "backend=": "3"}
    code = replace(INTENT, code_parts=before)
    identity = Identity(run_id="run", kind="run-script", key_columns=(KEY,))
    with Claim(make_run.store, identity, "error") as claim:
        claim.begin(n_shards=1, intent=code)
    after = replace(INTENT, code_fingerprint="d", code_parts={**before, changed: "4"})
    with Claim(make_run.store, identity, "resume") as claim:
        told = claim.why_nothing_counts(after)
    assert told is not None
    assert told.endswith("run again: arguments= has changed.")


def test_a_run_of_before_its_kind_had_a_name_is_gone_on_with(ended) -> None:
    with Claim(ended.store, identity(kind="find-portfolio"), "resume") as claim:
        assert claim.existing is not None
    assert ended.refresh().kind == "map"


def test_a_store_that_fails_behind_the_lease_leaves_the_run_free(ended, monkeypatch) -> None:
    find, looks = Run.find_if_there, []

    def fail(run_id, store) -> Run:
        looks.append(run_id)
        if len(looks) > 1:
            raise StoreError("no answer")
        return find(run_id, store)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "find_if_there", fail)
        with (
            pytest.raises(StoreError, match="no answer"),
            Claim(ended.store, identity(), "resume"),
        ):
            pass
    with Claim(ended.store, identity(), "resume") as claim:
        claim.check()


def test_a_claim_is_released_and_the_next_begins_another_generation(ended) -> None:
    for generation in (2, 3):
        with Claim(ended.store, identity(), "resume") as claim:
            with (
                pytest.raises(RunBusyError, match="this very process"),
                Claim(ended.store, identity(), "resume"),
            ):
                pass
            claim.begin(n_shards=0, intent=INTENT)
            assert claim.generation == generation
            assert claim.compatible == tuple(range(1, generation))
    with (
        pytest.raises(RunExistsError, match=r"'run' exists in .*IN_PROGRESS"),
        Claim(ended.store, identity(), "error"),
    ):
        pass


def test_who_begins_a_run_looks_at_no_other(ended, monkeypatch) -> None:
    """A store has thousands, and may be far away."""
    looked: list[str] = []
    list_folder = Store.list_folder

    def noted(store: Store, folder: str) -> list[str]:
        looked.append(folder)
        return list_folder(store, folder)

    monkeypatch.setattr(Store, "list_folder", noted)
    with Claim(ended.store, identity(run_id="rum"), "error") as claim:
        claim.begin(n_shards=1, intent=INTENT)
    assert looked
    assert {folder.split("/")[1] for folder in looked if "/" in folder} == {"rum"}
    assert "runs" not in looked


@pytest.mark.parametrize(
    ("history", "compatible"),
    [
        ([("resume", "c")], (1, 2)),
        ([("resume", "other")], (1,)),
        ([("overwrite", "c")], (2,)),
        ([("resume", None), ("resume", "c")], (1, 3)),
        ([("overwrite", "other"), ("resume", "c")], (3,)),
        ([("resume", "c"), ("overwrite", "c"), ("resume", "c")], (3, 4)),
    ],
)
def test_generations_of_the_same_code_count_back_to_an_overwrite(
    ended, make_run, history, compatible
) -> None:
    for on_existing, code in history:
        make_run.begin(on_existing, code)
        make_run.leave()
    with Claim(ended.store, identity(), "resume") as claim:
        assert claim.earlier_generations(INTENT) == compatible
    with Claim(ended.store, identity(), "overwrite") as claim:
        assert claim.earlier_generations(INTENT) == ()


def test_checkpoints_are_those_of_the_same_code_and_inputs(ended) -> None:
    inputs = ["other", "i", "i", None]
    for fingerprint in inputs:
        with Claim(ended.store, identity(), "resume") as claim:
            claim.begin(n_shards=0, intent=replace(INTENT, inputs_fingerprint=fingerprint))
    with Claim(ended.store, identity(), "resume") as claim:
        resumable = claim.resumable_generations(INTENT)
        # The first one of all, of the fixture, has the inputs of INTENT as well.
        assert [number for number in resumable if number > 1] == [3, 4]
        unknown = replace(INTENT, inputs_fingerprint=None)
        assert claim.resumable_generations(unknown) == ()
        changed = replace(INTENT, code_fingerprint="changed")
        assert claim.resumable_generations(changed) == ()
    with Claim(ended.store, identity(), "overwrite") as claim:
        assert claim.resumable_generations(INTENT) == ()


def test_an_error_is_not_hidden_by_a_store_that_fails_too(ended) -> None:
    lease = Path(ended.path, "lease")

    def work() -> None:
        lease.rename(lease.with_name("away"))
        lease.touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Claim(ended.store, identity(), "resume"):
        work()
