"""A script as the ranks of one node, without Dask and Prefect."""

import json
import os
import textwrap
from pathlib import Path

import pytest

from partwise.errors import InputError
from partwise.runs.checkpoints import complete_checkpoints
from partwise.runs.documents import run_path
from partwise.scripts.inputs import SharedPath
from partwise.scripts.outputs import check_globs, find_outputs
from partwise.store.store import Store
from tests.scripts.script_ranks import RUN, run_script_ranks


def test_a_script_has_its_files_inputs_and_variables_and_leaves_outputs(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    files = {
        "helper.py": "VALUE = 7",
        "main.py": textwrap.dedent("""
            import json, os, pathlib, sys
            import helper
            rank = os.environ["RANK"]
            print(json.dumps({"metrics": {"value": helper.VALUE, "rank": int(rank)}}))
            pathlib.Path(os.environ["PARTWISE_OUTPUTS"], f"{rank}.json").write_text(json.dumps({
                "arguments": sys.argv[1:],
                "rows": pathlib.Path(os.environ["PARTWISE_INPUT_TRAIN_ROWS"]).read_text(),
                "resume": os.environ.get("PARTWISE_RESUME_FROM"),
                "folder": os.getcwd(),
            }))
            pathlib.Path(f"left-{rank}.txt").write_text("kept")
            pathlib.Path("other.tmp").write_text("not kept")
        """),
    }
    ended = run_script_ranks(
        tmp_path,
        files,
        ranks=2,
        words=("main.py", "--data={inputs.train-rows}", "$LOCAL_RANK", "$HOME", "{x}"),
        inputs={"train-rows": SharedPath(path=str(tmp_path / "rows.csv"))},
        outputs=("outputs/**", "left-*.txt"),
    )
    assert [each.code for each in ended] == [0, 0]
    assert [each.metrics for each in ended] == [{"value": 7, "rank": 0}, {"value": 7, "rank": 1}]
    # All ranks of a node work in one folder, and its first one keeps what they leave.
    assert ended[1].outputs == {}
    names = ["left-0.txt", "left-1.txt", "outputs/0.json", "outputs/1.json"]
    assert list(ended[0].outputs) == names
    seen = [json.loads(ended[0].outputs[name]) for name in names[2:]]
    assert [each["arguments"] for each in seen] == [
        [f"--data={tmp_path / 'rows.csv'}", str(rank), "$HOME", "{x}"] for rank in (0, 1)
    ]
    assert {each["rows"] for each in seen} == {"a,b\n1,2\n"}
    assert {each["resume"] for each in seen} == {None}
    assert {each["folder"] for each in seen} == {str(tmp_path / "node" / "work")}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("import nowhere", 1),
    ],
)
def test_a_rank_ends_as_its_script_does(tmp_path, text, code):
    (ended,) = run_script_ranks(tmp_path, {"main.py": f"print('at work')\n{text}\n"})
    assert (ended.code, ended.outputs) == (code, {})


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="program 'no-such-program' cannot be started on rank 0"):
        run_script_ranks(tmp_path, {"a": ""}, words=("no-such-program",), is_script=False)


def test_a_vanished_input_is_named(tmp_path):
    with pytest.raises(InputError, match=r"The input 'rows', /nowhere/x\.csv, is not there"):
        run_script_ranks(
            tmp_path, {"main.py": ""}, inputs={"rows": SharedPath(path="/nowhere/x.csv")}
        )


def test_a_command_line_finds_what_it_is_given(tmp_path):
    (ended,) = run_script_ranks(
        tmp_path,
        {"it's.txt": "one two"},
        words=(),
        shell="cat $NAME > {outputs}/copy && exit $STATUS",
        environment_variables={"NAME": '"it\'s.txt"', "STATUS": "0"},
        outputs=("outputs/**",),
    )
    assert ended.code == 1  # a shell does not read quotes in values of variables
    (ended,) = run_script_ranks(
        tmp_path,
        {"it's.txt": "one two"},
        node="again",
        words=(),
        shell='cat "$NAME" > {outputs}/copy && exit $STATUS',
        environment_variables={"NAME": "it's.txt", "STATUS": "0"},
        outputs=("outputs/**",),
    )
    assert ended.outputs == {"outputs/copy": b"one two"}


SAVES = """
import argparse, os, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--resume-from", type=pathlib.Path)
given = parser.parse_args().resume_from
folder = pathlib.Path(os.environ["PARTWISE_CHECKPOINTS"])
assert (given is None) == (not list(folder.iterdir()))
step = int((given / "step").read_text()) if given else 0
(folder / "step").write_text(str(step + 1))
print('{"metrics": {"step": %d}}' % step)
sys.exit(0 if step else 5)
"""


def test_the_end_of_a_failed_script_is_no_end_of_its_checkpoint(tmp_path):
    (failed,) = run_script_ranks(tmp_path, {"main.py": SAVES})
    assert (failed.code, failed.metrics) == (5, {"step": 0})
    store, root = Store.parse(tmp_path / "store"), run_path(RUN, "checkpoints")
    (name,) = complete_checkpoints(store, root)
    ended = run_script_ranks(
        tmp_path, {"main.py": SAVES}, ranks=2, node="next", resume_from=f"{root}/{name}"
    )
    assert [(each.code, each.metrics) for each in ended] == [(0, {"step": 1})] * 2
    assert len(complete_checkpoints(store, root)) == 2


LINKS = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["PARTWISE_CHECKPOINTS"])
latest = folder / "latest"
step = int((latest / "step").read_text()) + 1 if latest.exists() else 0
for name in ("empty", f"step-{step}"):
    (folder / name).mkdir(exist_ok=True)
(folder / f"step-{step}" / "step").write_text(str(step))
if not step:
    (folder / "step-0" / "root").symlink_to("..")
    (folder / "nothing").symlink_to("empty")
(folder / "new").symlink_to(f"step-{step}")
os.replace(folder / "new", latest)
print('{"metrics": {"step": %d}}' % step)
sys.exit(0 if step else 5)
"""


def test_a_script_finds_the_links_of_its_checkpoint_and_can_replace_them(tmp_path):
    (failed,) = run_script_ranks(tmp_path, {"main.py": LINKS})
    assert (failed.code, failed.metrics) == (5, {"step": 0})
    store, root = Store.parse(tmp_path / "store"), run_path(RUN, "checkpoints")
    (name,) = complete_checkpoints(store, root)
    (ended,) = run_script_ranks(
        tmp_path, {"main.py": LINKS}, node="next", resume_from=f"{root}/{name}"
    )
    assert (ended.code, ended.metrics) == (0, {"step": 1})


def test_a_folder_to_resume_from_is_handed_over_as_it_is(tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    (ended,) = run_script_ranks(
        tmp_path,
        {"main.py": "import sys, pathlib; pathlib.Path('seen').write_text(repr(sys.argv[1:]))"},
        resume_from=str(given),
        resume_argument="--ckpt={resume_from}/last.pt",
        outputs=("seen",),
    )
    assert ended.outputs["seen"].decode() == repr([f"--ckpt={given}/last.pt"])


def test_a_script_that_imports_partwise_reports_to_its_rank(tmp_path):
    text = """
        from partwise import get_context
        context = get_context()
        context.report(loss=0.5, losses=[1.0, 0.5])
        context.report(loss=0.25, rank=context.rank, size=context.world_size)
        context.checkpoint(lambda folder: (folder / "state").write_text("x"), step=3)
    """
    files = {"main.py": textwrap.dedent(text)}
    ended = run_script_ranks(tmp_path, files, ranks=2, outputs=("outputs/**",))
    assert [each.metrics for each in ended] == [
        {"loss": 0.25, "rank": rank, "size": 2} for rank in (0, 1)
    ]
    reported = {name: content for each in ended for name, content in each.outputs.items()}
    assert reported["outputs/reported-1.json"] == b'{"losses": [1.0, 0.5]}'
    store = Store.parse(tmp_path / "store")
    assert len(complete_checkpoints(store, run_path(RUN, "checkpoints"))) == 1


@pytest.mark.parametrize("glob", [" ", ".", "./", "model**", "outputs/**.pt", "../x", "/tmp/x"])
def test_globs_that_find_nothing_when_a_script_has_ended_are_refused_before(glob):
    with pytest.raises(InputError, match="give globs relative to the script's working folder"):
        check_globs(["outputs/**", glob])


def test_an_output_whose_name_is_no_text_is_named(tmp_path):
    (tmp_path / "outputs").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/outputs/\xff.txt")).touch()
    with pytest.raises(InputError, match=r"output 'outputs/\\udcff\.txt' .* is not UTF-8"):
        find_outputs(tmp_path, ["outputs/**"])
