"""Guards that are taken out of the code, one at a time: the test that is named has to fail.

A guard whose test passes without it is not tested. A change of the code that a line of the table
no longer fits fails here too, within a second, so that the table stays true.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.conftest import Experiment

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = ("partwise", "blocks", "tasks", "flows", "tests")


@dataclass(frozen=True)
class Mutant:
    """A guard, how it is taken out, and the test that has to notice."""

    guard: str
    path: str
    old: str
    new: str
    test: str


MUTANTS = (
    Mutant(
        "content is flushed before it has its name",
        "partwise/store/local_objects.py",
        "        os.fsync(descriptor)\n    finally:\n        os.close(descriptor)\n\n\ndef _link(",
        "        pass\n    finally:\n        os.close(descriptor)\n\n\ndef _link(",
        "tests/store/test_store.py -k is_on_disk_before_it_is_visible",
    ),
    Mutant(
        "the folder is flushed after it",
        "partwise/store/local_objects.py",
        "            _flush_folder(folder)\n\n    def _make_folders",
        "            pass\n\n    def _make_folders",
        "tests/store/test_store.py -k is_on_disk_before_it_is_visible",
    ),
    Mutant(
        "an object is created by a link, which fails where there is one",
        "partwise/store/local_objects.py",
        "        os.link(temporary, target, follow_symlinks=False)\n    except OSError",
        "        os.replace(temporary, target)\n    except OSError",
        "tests/store/test_store.py -k creates_only_once",
    ),
    Mutant(
        "links in the store are not followed",
        "partwise/store/local_objects.py",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC",
        "tests/store/test_store.py -k does_not_follow_links_inside_the_store",
    ),
    Mutant(
        "the sha256 of an artifact",
        "partwise/runs/bundle.py",
        "hashlib.sha256(content).hexdigest() != artifact.sha256",
        "False",
        "tests/runs/test_bundle.py -k damaged_bytes_are_never_returned",
    ),
    Mutant(
        "the sha256 of a ledger",
        "partwise/runs/view.py",
        "sha256_of(content) != summary.ledger_sha256",
        "False",
        "tests/runs/test_run.py -k a_ledger_that_was_changed_is_named",
    ),
    Mutant(
        "the footer of a dataset's part",
        "partwise/datasets/rows.py",
        "hashlib.sha256(footer).hexdigest() != expected.footer_sha256",
        "False",
        "tests/datasets/test_bound.py -k a_footer_in_a_bucket",
    ),
    Mutant(
        "a taken lease is noticed",
        "partwise/store/lease.py",
        'if self._store.exists(_object(self._run_path, self._number + 1, "json")):',
        "if False:",
        "tests/store/test_lease.py -k a_frozen_owner_notices_that_it_was_replaced",
    ),
    Mutant(
        "a lease that was lost before its hold was there",
        "partwise/runs/holds.py",
        "        lease.check()\n",
        "        pass\n",
        "tests/runs/test_holds.py -k who_lost_the_run_before_its_hold",
    ),
    Mutant(
        "bundles are looked for before they are held",
        "partwise/runs/holds.py",
        "        _check_there(store, run_id, hold.files)\n",
        "",
        "tests/runs/test_holds.py -k tidied_up_since_they_were_chosen",
    ),
    Mutant(
        "what is held is no garbage",
        "partwise/runs/garbage.py",
        "_references(run, end)} | holds.files",
        "_references(run, end)}",
        "tests/runs/test_holds.py -k draws_on_outlives_an_overwrite",
    ),
    Mutant(
        "the sha256 of a catalog's table",
        "partwise/catalogs/catalog.py",
        "if sha256_of(content) != document.sha256:",
        "if False:",
        "tests/catalogs/test_damage.py -k a_changed_byte_anywhere",
    ),
    Mutant(
        "the file name of an artifact",
        "partwise/runs/bundle.py",
        "if not is_name_below(self.filename):",
        "if False:",
        "tests/runs/test_names_in_ledgers.py -k names_of_an_artifact_are_checked",
    ),
    Mutant(
        "a temporary file is made again",
        "partwise/runs/bundle.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
        "os.O_WRONLY | os.O_CREAT",
        "tests/runs/test_names_in_ledgers.py -k a_file_that_is_there_is_not_written_through",
    ),
    Mutant(
        "formats that run code are named by the caller",
        "partwise/models/serdes/__init__.py",
        "if name in SERDES and name not in PROGRAMS:",
        "if name in SERDES:",
        "tests/models/test_serde_choice.py -k a_file_that_runs_code_is_read_only_where",
    ),
    Mutant(
        "the sha256 of staged files",
        "partwise/shuffle/shared_folder.py",
        "hashlib.sha256(content).hexdigest() != staged.sha256",
        "False",
        "tests/shuffle/test_shared_folder.py -k what_somebody_put_in_its_place",
    ),
    Mutant(
        "a call of somebody else's wants trust",
        "partwise/planning/trust.py",
        "if trust or is_made_here(run):",
        "if True:",
        "tests/planning/test_trust.py -k exports_use_nothing_of_such_a_call",
    ),
    Mutant(
        "modules that a document may name",
        "partwise/trainers/allowed_modules.py",
        "if not _is_of_project(module):",
        "if False:",
        "tests/planning/test_trust.py -k modules_of_the_project_only",
    ),
    Mutant(
        "weights_only",
        "partwise/models/serdes/torch.py",
        "weights_only=True, map_location",
        "weights_only=False, map_location",
        "tests/models/test_torch_serde.py -k a_file_with_code_does_not_run_it",
    ),
    Mutant(
        "rows read are as many as a footer says",
        "partwise/sources/files/parquet_files.py",
        "if rows != expected or (pieces is None and rows != metadata.num_rows):",
        "if False:",
        "tests/datasets/test_bound.py -k a_flipped_bit_of_a_parquet_source_loses_no_row",
    ),
    Mutant(
        "no more is inflated than the ledger says",
        "partwise/runs/bundle.py",
        "inflater.decompress(stored, artifact.size_bytes + 1)",
        "inflater.decompress(stored)",
        "tests/runs/test_bundle.py -k no_more_is_inflated_than_the_ledger_says",
    ),
    Mutant(
        "no name twice in a document",
        "partwise/store/strict_json.py",
        "if len(values) < len(pairs):",
        "if False:",
        "tests/store/test_strict_json.py -k a_name_that_stands_twice",
    ),
    Mutant(
        "one's own claim is still there",
        "partwise/store/lease.py",
        "if not self._is_there():\n            raise StoreError(",
        "if False:\n            raise StoreError(",
        "tests/store/test_lease.py -k TestWhatItWroteIsGone",
    ),
    Mutant(
        "what is moved is announced, and refused to who was given up",
        "partwise/store/lease.py",
        "            raise self._taken_over() from None\n        self._steps += 1",
        "            pass\n        self._steps += 1",
        "tests/store/test_lease.py -k are_given_to_the_next_owner",
    ),
    Mutant(
        "a store that is another one now is noticed",
        "partwise/store/local_objects.py",
        "if held and _identity(self._root) not in held:",
        "if False:",
        "tests/runs/test_store_moves.py -k is_not_made_anew",
    ),
    Mutant(
        "a model that was lucky does not become a champion",
        "partwise/catalogs/decision.py",
        "unsure = has_value & (sure < rule.confidence)",
        "unsure = has_value & False",
        "tests/catalogs/test_decision.py -k equally_good",
    ),
    Mutant(
        "a row counts if every candidate gave a number",
        "partwise/engine/compare_work.py",
        "np.logical_and.reduce([present, *(each.finite for each in heard)])",
        "present",
        "tests/engine/test_compare_work.py -k rows_count_if",
    ),
    Mutant(
        "with a key, what it did not sign is refused",
        "partwise/store/signing.py",
        "if not keys or verify(content, purpose, text, store, scope) is not None:",
        "if True:",
        "tests/runs/test_signed.py -k with_a_key_what_it_did_not_sign_is_refused",
    ),
    Mutant(
        "with a key, a segment of an unfinished run that it did not sign counts as damaged",
        "partwise/runs/contents.py",
        "                check_own_signature(content, path, where, store)",
        "                pass",
        "tests/runs/test_signed_segments.py -k with_another_key_or_none",
    ),
    Mutant(
        "secrets in exceptions are masked",
        "partwise/engine/failures.py",
        "message = storable_start(message) if is_long else storable(message)",
        "message = message[:MESSAGE_CHARS]",
        "tests/test_redaction.py -k canaries_leak_by_no_way",
    ),
    Mutant(
        "clusters of our own speak TLS",
        "blocks/cluster_start.py",
        '        "protocol": "tls://",\n        "security": temporary_security(),\n',
        "",
        "tests/blocks/test_other_users.py -k nobody_else_runs_code",
    ),
    Mutant(
        "a silent worker is let go",
        "partwise/engine/driver/cluster_watch.py",
        "if silent_s > self._silence_s:",
        "if False:",
        "tests/engine/test_cluster_watch.py -k a_silent_worker_is_let_go",
    ),
    Mutant(
        "nobody is silent while the scheduler or the driver stood still",
        "partwise/engine/driver/cluster_watch.py",
        "min(step_s, max(_LARGEST_STEP_S, len(workers) / 50))",
        "step_s",
        "tests/engine/test_cluster_watch.py -k answer_that_takes_long",
    ),
    Mutant(
        "nobody is silent by the clock of the scheduler",
        "partwise/engine/driver/cluster_watch.py",
        "[0] != seen:",
        "[0] < seen:",
        "tests/engine/test_cluster_watch.py -k clock_that_goes_back",
    ),
    Mutant(
        "a shard whose heartbeats end is taken over",
        "partwise/engine/driver/shards.py",
        "if news is not None and silent_s > limit_s:",
        "if False:",
        "tests/engine/test_shard_starts.py -k heartbeats_end",
    ),
    Mutant(
        "a thread that hangs in the kernel sends no heartbeat",
        "partwise/engine/reporter.py",
        "if not sleep or sleep != self._sleep:",
        "if True:",
        "tests/engine/test_reporter.py -k hangs_in_the_kernel",
    ),
    Mutant(
        "a silent worker is lost to its gang",
        "partwise/gangs/attempt.py",
        "elif silent_s > longest_s:",
        "elif False:",
        "tests/gangs/test_verdict.py -k silent_or_gone",
    ),
    Mutant(
        "a partition has the time for which its worker was stopped",
        "partwise/engine/worker/supervisor.py",
        "if seconds - held_up > self.timeout_s:",
        "if seconds > self.timeout_s:",
        "tests/engine/test_shard_run.py -k how_long_the_worker_was_stopped",
    ),
    Mutant(
        "which generation was replaced goes by numbers, not by clocks",
        "partwise/runs/view.py",
        "ends = map(self.summary, sorted(self.summaries))",
        "ends = sorted(map(self.summary, self.summaries), key=lambda end: end.finished_at)",
        "tests/runs/test_garbage_rules.py -k slow_clock",
    ),
    Mutant(
        "a hold counts by the later of two clocks",
        "partwise/runs/holds.py",
        "max(hold.created_at, store.modified(hold.path))",
        "store.modified(hold.path)",
        "tests/runs/test_holds.py -k later_of_two",
    ),
    Mutant(
        "shards in a store stay while their newest part is young",
        "partwise/shuffle/shard_cache.py",
        "if all(name < limit for name in names):",
        "if True:",
        "tests/shuffle/test_kept_shards.py -k as_old_as_the_newest",
    ),
    Mutant(
        "shards in a store are used again only with a signature of ours",
        "partwise/shuffle/shard_cache.py",
        'if self.where == "store" and signer(sealed, self._purpose, self.store) is None:',
        "if False:",
        "tests/shuffle/test_kept_shards.py -k of_somebody_else",
    ),
    Mutant(
        "rows of a shard in a store equal their SHA-256",
        "partwise/shuffle/part_file.py",
        "if hashlib.sha256(message).digest() != digest.tobytes():",
        "if False:",
        "tests/shuffle/test_kept_shards.py -k no_flipped_bit",
    ),
    Mutant(
        "the index of a part in a store is the one that was written",
        "partwise/shuffle/part_file.py",
        "or (sha256 and hashlib.sha256(content).hexdigest() != sha256)",
        "",
        "tests/shuffle/test_kept_shards.py -k another_part",
    ),
    Mutant(
        "a claim of ours that nobody holds is nobody's",
        "partwise/store/lease_owner.py",
        "is_held = self.pid != os.getpid() or self.writer_id in held_here",
        "is_held = True",
        "tests/store/test_lease.py -k that_a_store_refuses",
    ),
    Mutant(
        "an owner that dies while it is asked gives way",
        "partwise/store/lease.py",
        'if owner.state() == "gone" or store.exists(',
        "if store.exists(",
        "tests/store/test_lease.py -k killed_while_it_is_asked",
    ),
    Mutant(
        "a claim that fails behind its lease gives it back",
        "partwise/runs/claim.py",
        "            self.__exit__()  # nobody else does: the block has not begun\n",
        "",
        "tests/runs/test_claim.py -k fails_behind_the_lease",
    ),
    Mutant(
        "who finds the very same bytes has created them",
        "partwise/store/store.py",
        "if objects.size(path) == len(data) and objects.read(path) == data:",
        "if False:",
        "tests/store/test_store_faults.py -k lost_request_or_answer",
    ),
    Mutant(
        "beside configured keys that of the machine does not count",
        "partwise/store/signing.py",
        "if not keys and (own := own_key(make=False)) is not None:\n        keys = (own,)",
        "if (own := own_key(make=False)) is not None:\n        keys = (*keys, own)",
        "tests/store/test_signing.py -k of_this_machine",
    ),
    Mutant(
        "a checkpoint that no key signed does not count",
        "partwise/runs/checkpoints.py",
        "    check_signed(content, path, path, store, signing_scope(root, generation, attempt))\n",
        "",
        "tests/gangs/test_signed_checkpoints.py -k forged_one",
    ),
    Mutant(
        "ranks go on from the checkpoint that the driver looked at",
        "partwise/gangs/checkpoints.py",
        "if self._resume_sha256 and hashlib",
        "if False and hashlib",
        "tests/gangs/test_signed_checkpoints.py -k behind_the_drivers_look",
    ),
    Mutant(
        "the key of an attempt is of that attempt alone",
        "partwise/store/signing.py",
        "        if not scope:\n            return self\n",
        "        return self\n",
        "tests/gangs/test_signed_checkpoints.py -k signs_nothing_else",
    ),
    Mutant(
        "a removal that no key signed does not count",
        "partwise/runs/contents.py",
        "if removals and (is_configured(store) if is_signed is None else is_signed):",
        "if False:",
        "tests/runs/test_forged_marks.py -k nobody_signed_does_not_count",
    ),
    Mutant(
        "a step that no key signed deletes nothing",
        "partwise/runs/steps.py",
        "            check_signed(content, path, where, store)\n",
        "",
        "tests/runs/test_forged_marks.py -k deletes_nothing",
    ),
    Mutant(
        "a folder of the scratch folder is one's own",
        "partwise/shuffle/shard_cache.py",
        "    check_own(path, _WRITABLE)\n",
        "",
        "tests/shuffle/test_scratch_owners.py -k others_can_write_to",
    ),
    Mutant(
        "the folder above a worker's is not one that another user can exchange",
        "partwise/engine/worker/scratch.py",
        "    if is_open or about.st_uid not in (os.getuid(), 0):\n",
        "    if False:\n",
        "tests/engine/test_scratch.py -k other_users_could_exchange",
    ),
    Mutant(
        "keepers end what they keep before they are killed",
        "partwise/engine/worker/child.py",
        "    keepers = [pid for pid in found - below if not clears_up(pid)]\n",
        "    keepers = []\n",
        "tests/gangs/test_stops.py -k sweep_leaves",
    ),
    Mutant(
        "a snapshot's checksum comes before its names",
        "partwise/scripts/snapshot.py",
        "    if hashlib.sha256(plain).hexdigest() != sha256_of_snapshot(name):",
        "    if False:",
        "tests/scripts/test_snapshot.py -k not_read_before",
    ),
    Mutant(
        "rows that are staged for ranks are those that were written",
        "partwise/ranks/staging.py",
        "if hashlib.sha256(content).hexdigest() != self.sha256:",
        "if False:",
        "tests/ranks/test_staging.py -k changed_in_the_store",
    ),
    Mutant(
        "an empty password is none",
        "flows/operations/services.py",
        "if kept := path.read_text().strip():",
        "if (kept := path.read_text().strip()) is not None:",
        "tests/flows/operations/test_intruders.py -k an_empty_password",
    ),
    Mutant(
        "a store behind a link is the same one",
        "partwise/store/signing.py",
        'return url if "://" in url else os.path.realpath(url)',
        "return url",
        "tests/runs/test_signed.py -k link_to_an_older_store",
    ),
    Mutant(
        "who says nothing to XGBoost is shown out",
        "partwise/trainers/ranks/xgboost_collective.py",
        "if is_late and not _received_bytes(one):",
        "if False:",
        "tests/trainers/test_xgboost_collective.py -k strangers_are_shown_out",
    ),
    Mutant(
        "a stranger makes no failure of the farewell of XGBoost's ranks",
        "partwise/trainers/ranks/xgboost_collective.py",
        "            except XGBoostError:\n                _kept",
        "            except ZeroDivisionError:\n                _kept",
        "tests/trainers/test_xgboost_collective.py -k strangers_are_shown_out",
    ),
    Mutant(
        "interpreter and packages of an environment lie in its folder",
        "partwise/environments/building.py",
        "python=python, site_packages=packages,",
        "python=read_document(entry).name, site_packages=packages,  # type: ignore",
        "tests/security/test_forged_files.py -k changed_without_a_key",
    ),
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the code and its tests that may be changed."""
    for name in FOLDERS:
        shutil.copytree(CHECKOUT / name, tmp_path / name, symlinks=True)
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def warm_pytest(copy: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that forks runs of pytest on the copy."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.warm_pytest"],
        cwd=copy,
        # With bytecode: else each run would compile all again.
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


def is_noticed(warm_pytest: subprocess.Popen[str], test: str) -> bool:
    """Whether the named test fails on the copy; one that finds nothing to run does not count."""
    assert warm_pytest.stdin
    assert warm_pytest.stdout
    path, selection = test.split(" -k ")
    words = ["-x", "-p", "no:cacheprovider", "-n0", "-m", "", path, "-k", selection]
    # Plugins that are imported already are not rewritten.
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    print(json.dumps(words), file=warm_pytest.stdin, flush=True)
    code, output = json.loads(warm_pytest.stdout.readline())
    assert code in (0, 1), f"{test}: {code}: {output[-4000:]}"
    # A guard is taken out by code that runs.
    assert not re.search("^E .*(NameError|SyntaxError)", output, re.MULTILINE), f"{test}: {output}"
    return bool(code)


def test_the_table_is_of_the_code_as_it_is() -> None:
    places = [(CHECKOUT / mutant.path).read_text().count(mutant.old) for mutant in MUTANTS]
    assert [m.guard for m, n in zip(MUTANTS, places, strict=True) if n != 1] == []


@pytest.mark.slow
def test_each_guard_has_a_test_that_notices_its_absence(
    experiment: Experiment, copy: Path, warm_pytest: subprocess.Popen[str]
) -> None:
    passed = []
    for number, mutant in enumerate(MUTANTS):
        path = copy / mutant.path
        content, was = path.read_text(), path.stat()
        assert content.count(mutant.old) == 1, f"the table is out of date: {mutant.guard}"
        path.write_text(content.replace(mutant.old, mutant.new))
        # Bytecode is known by its source's length and the second of its last change.
        os.utime(path, (number, number))
        try:
            if not is_noticed(warm_pytest, mutant.test):
                passed.append(mutant.guard)
        finally:
            path.write_text(content)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert not passed, passed
    experiment.tell("G19", tried=len(MUTANTS), lost=0, what="each noticed by the test it names")
