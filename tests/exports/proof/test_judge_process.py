"""The judge as a process: what it has loaded, what it dies of, and what becomes of it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import helper, numpy_helper

from partwise.errors import ClusterError
from partwise.exports.proof import judge as judging
from partwise.exports.proof.judge import close_judges, judge
from partwise.exports.proof.judge_process import examine, loaded_libraries
from partwise.models.onnx_model import OnnxModel
from partwise.processes import starting
from partwise.processes.family import is_running
from tests.exports.proof.onnx_examples import ROWS, Example, linear, value
from tests.own_cluster import wait_for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def running_judge() -> judging.JudgeProcess:
    return judging._judges["onnx"]


def test_it_has_no_training_library_whatever_its_caller_has(path):
    for name in ("lightgbm", "xgboost"):
        import_module(name)
    example = linear()
    verdict = judge(example.save(path), example.expectation, example.cases)
    assert verdict.findings == ()
    maps = Path(f"/proc/{running_judge().pid}/maps").read_text()
    assert "onnxruntime" in maps
    for library in ("lightgbm", "xgboost", "torch", "sklearn"):
        assert library not in maps


def test_it_says_so_when_a_training_library_is_loaded(path):
    assert {"lightgbm", "xgboost"} <= {*loaded_libraries()}
    example = linear()
    here = examine(example.save(path), example.expectation, example.cases, lambda *_: None)
    assert [finding.check for finding in here.findings] == ["load"]
    assert all(name in here.findings[0].message for name in ("lightgbm", "xgboost"))


def test_one_process_judges_one_file_after_another(path):
    example = linear()
    example.save(path)
    judge(str(path), example.expectation, example.cases)
    pid = running_judge().pid
    wrong = [replace(example.cases[0], expected=example.cases[1].expected)]
    assert judge(str(path), example.expectation, wrong).findings
    assert judge(str(path), example.expectation, example.cases).findings == ()
    assert running_judge().pid == pid


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """Returns the judges, and what is left of dead ones."""

    def found() -> list[psutil.Process]:
        return [
            child
            for child in psutil.Process().children(recursive=True)
            if child.status() == psutil.STATUS_ZOMBIE
            or "proof.judge_process" in " ".join(child.cmdline())
        ]

    close_judges()
    # A test before may have left a process that nobody has waited for.
    others = found()
    return lambda: [child for child in found() if child not in others]


def in_background(example: Example, path: Path) -> tuple[threading.Thread, list]:
    found: list = []
    thread = threading.Thread(
        target=lambda: found.append(judge(str(path), example.expectation, example.cases))
    )
    thread.start()
    return thread, found


def started_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have the next judge run this code first; `model` is the module that runs ONNX files."""
    close_judges()
    prepare = f"import os, signal, partwise.models.onnx_model as model; {code}; "
    start = prepare + starting._CALL
    monkeypatch.setattr(starting, "_CALL", start)


def test_a_file_that_ends_the_process_while_it_loads_is_a_finding(path, monkeypatch, children):
    example = linear()
    example.save(path)
    with monkeypatch.context() as patch:
        started_with(
            patch, "model.open_session_in_place = lambda *a: os.kill(os.getpid(), signal.SIGSEGV)"
        )
        verdict = judge(str(path), example.expectation, example.cases)
    (finding,) = verdict.findings
    assert finding.check == "load"
    assert "was loaded: signal 11 (SIGSEGV)" in finding.message
    assert "Fatal Python error: Segmentation fault" in finding.message
    assert children() == []
    assert judge(str(path), example.expectation, example.cases).findings == ()
    assert [process.pid for process in children()] == [running_judge().pid]


def test_a_judge_that_does_not_start_is_given_up(path, monkeypatch, children):
    example = linear()
    with monkeypatch.context() as patch:
        started_with(patch, "os.kill(os.getpid(), signal.SIGSTOP)")
        patch.setattr(judging, "START_S", 0.5)
        with pytest.raises(ClusterError, match=r"did not start \(0.5 s\); it wrote: nothing"):
            judge(example.save(path), example.expectation, example.cases)
    assert children() == []


def endless() -> Example:
    """A graph that runs for hours: a loop of 10^15 rounds around a sum."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["condition_in"], ["condition_out"]),
            helper.make_node("Add", ["sum_in", "sum_in"], ["sum_out"]),
        ],
        "body",
        [
            value("round", onnx.TensorProto.INT64, []),
            value("condition_in", onnx.TensorProto.BOOL, []),
            value("sum_in", onnx.TensorProto.FLOAT, ["N", 1]),
        ],
        [
            value("condition_out", onnx.TensorProto.BOOL, []),
            value("sum_out", onnx.TensorProto.FLOAT, ["N", 1]),
        ],
    )
    example = linear()
    graph = example.graph
    graph.node[0].output[0] = "start"
    loop = helper.make_node("Loop", ["rounds", "yes", "start"], ["prediction"], body=body)
    graph.node.append(loop)
    graph.initializer.append(numpy_helper.from_array(np.array(10**15), "rounds"))
    graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    return example


def test_a_file_that_ends_the_process_while_it_runs_is_a_finding(path):
    example = endless()
    example.save(path)
    close_judges()
    thread, found = in_background(example, path)
    wait_for(
        lambda: "onnx" in judging._judges and running_judge().at[0] == "run", "it does not run"
    )
    os.kill(running_judge().pid, signal.SIGKILL)
    thread.join(30)
    (finding,) = found[0].findings
    assert (finding.check, finding.case) == ("run", "held-out rows")
    assert "SIGKILL; the machine may have run out of memory" in finding.message
    assert "onnx" not in judging._judges


def test_a_file_that_takes_too_long_is_a_finding(path):
    example = endless().expecting(timeout_s=2.0)
    verdict = judge(example.save(path), example.expectation, example.cases)
    (finding,) = verdict.findings
    assert (finding.check, finding.case) == ("run", "held-out rows")
    assert "was not judged within 2 s" in finding.message
    assert "judge_timeout_s" in finding.message
    right = linear()
    assert judge(right.save(path), right.expectation, right.cases).findings == ()


def test_there_may_be_no_limit(path):
    example = linear().expecting(timeout_s=float("inf"))
    assert judge(example.save(path), example.expectation, example.cases).findings == ()


def test_a_judge_that_died_between_two_files_is_replaced(path):
    example = linear()
    judge(example.save(path), example.expectation, example.cases)
    psutil.Process(running_judge().pid).kill()
    psutil.Process(running_judge().pid).wait(5)
    assert judge(str(path), example.expectation, example.cases).findings == ()


def test_an_interrupted_question_is_not_answered_to_the_next(path, monkeypatch):
    example = linear()
    judge(example.save(path), example.expectation, example.cases)

    def interrupt(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(judging.JudgeProcess, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            judge(str(path), example.expectation, example.cases)
    assert "onnx" not in judging._judges
    wrong = [replace(example.cases[0], expected=example.cases[1].expected)]
    assert judge(str(path), example.expectation, wrong).findings


def test_a_judge_that_does_not_start_is_an_error_with_what_it_wrote(path, monkeypatch):
    close_judges()
    monkeypatch.setattr(starting, "_CALL", "raise SystemExit('no such module')")
    example = linear()
    with pytest.raises(ClusterError, match=r"did not start \(exit status 1\).*no such module"):
        judge(example.save(path), example.expectation, example.cases)


FORK = """
import os, sys, time
import psutil
from tests.exports.proof.onnx_examples import linear
from partwise.exports.proof import judge as judging
from pathlib import Path
example = linear()
path = example.save(Path(sys.argv[1]))

def ask():
    assert judging.judge(path, example.expectation, example.cases).findings == ()
    return judging._judges["onnx"].pid

first = ask()
child = os.fork()
if not child:
    mine = ask()
    assert mine != first, "a forked process has to ask a judge of its own"
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ask() == first, "the fork has to leave this judge alone"
assert [process.pid for process in psutil.Process().children()] == [first]
print(first, flush=True)
os._exit(0)
"""


def test_a_fork_gets_its_own_and_a_judge_dies_with_its_caller(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.returncode, done.stderr) == (0, "")
    judge_pid = int(done.stdout)
    wait_for(lambda: not is_running(judge_pid), "the judge outlives its caller", 5)


def test_what_an_export_prints_is_no_answer(path, monkeypatch):
    """The standard output is for answers: it leads elsewhere for everything else."""
    noisy = "(print('noise', flush=True), os.write(1, b'more'), old(*a))[-1]"
    started_with(
        monkeypatch, f"old = model.OnnxModel.run; model.OnnxModel.run = lambda *a: {noisy}"
    )
    example = linear()
    assert judge(example.save(path), example.expectation, example.cases).findings == ()
    assert "noise" in running_judge().read_log()
    close_judges()


def test_models_run_on_one_thread(path):
    model = OnnxModel.from_file(linear().save(path))
    assert model.session.get_session_options().intra_op_num_threads == 1
    assert len(model.run({"features": ROWS})["slope"]) == len(ROWS)
