"""What is written into a prefect.yaml by hand is read, or refused with what to write instead."""

from pathlib import Path

import pytest

from partwise.errors import InputError
from partwise.flows.operations.deploy import _awaited, read_project

TRAIN = "- name: t\n  entrypoint: partwise.flows.train_models.train_models\n  "
POOL = "work_pool: {name: p}"
TRIGGERS = f"{TRAIN}{POOL}\n  triggers:"


@pytest.mark.parametrize("pool", [None, "other"])
@pytest.mark.parametrize(
    ("deployments", "sentence"),
    [
        ("- train", "deployment 1 is 'train': write its name, entrypoint and work_pool"),
        (f"{TRAIN}{POOL}\n-", "deployment 2 is empty: write its name"),
        ("  {train: {}}", "deployments is {'train': {}}, and has to be a list"),
        (f"{TRAIN}work_pool: p", "deployment 't': work_pool is 'p': write `work_pool: {name: p}`"),
        (f"{TRAIN}work_pool: [p]", r"work_pool is ['p']: write `work_pool: {name: NAME}`"),
        (f"{TRAIN}work_pool: {{name: 7}}", "work_pool.name is 7, which is no text: write it in qu"),
        (f"{TRAIN}work_pool: {{name: no}}", "work_pool.name is False, which is no text"),
        (f"{TRAIN}{POOL}\n  parameters: [a]", "parameters is ['a']: write each as a line"),
        (f"{TRAIN}{POOL}\n  parameters: a", "parameters is 'a': write each as a line"),
        (f"- entrypoint: a.b\n  {POOL}", "deployment 1 has no name: write one"),
        (f"- name: 7\n  entrypoint: a.b\n  {POOL}", "deployment 1: name is 7, which is no text"),
        (f"{TRAIN}work_pool: {{name: '{{{{ $P }}}}'}}", "work_pool.name is '{{ $P }}', and may"),
        (f"- name: 'x-{{{{ $W }}}}'\n  entrypoint: a.b\n  {POOL}", "name is 'x-{{ $W }}', and may"),
        (f"- name: t\n  entrypoint: '{{{{ $E }}}}.b'\n  {POOL}", "entrypoint is '{{ $E }}.b', and"),
        (f"- name: t\n  {POOL}", "deployment 1 has no entrypoint: write one"),
        (f"{TRIGGERS} a", "deployment 't': triggers is 'a', and has to be a list"),
        (f"{TRIGGERS} {{match: {{}}}}", "triggers is {'match': {}}, and has to be a list"),
        (f"{TRIGGERS} false", "triggers is False, and has to be a list"),
        (f"{TRIGGERS} [a]", "trigger 1 is 'a': write its match and expect"),
        (f"{TRIGGERS} [{{}}, null]", "trigger 2 is empty: write its match"),
        (f"{TRIGGERS} [{{match: [a]}}]", "match of trigger 1 is ['a']: write each label as a"),
        (f"{TRIGGERS} [{{match: {{a: 7}}}}]", "trigger 1: match.a is 7, which is no text"),
        (f"{TRIGGERS} [{{match: {{a: [b, {{}}]}}}}]", "trigger 1: match.a is {}, which is no text"),
        (f"{TRIGGERS} [{{match: {{a: }}}}]", "trigger 1 has no match.a: write one"),
        (f"{TRIGGERS} [{{triggers: b}}]", "'t', trigger 1: triggers is 'b', and has to be a list"),
    ],
)
def test_what_is_no_deployment_is_refused_with_what_to_write(tmp_path, pool, deployments, sentence):
    _write(tmp_path, deployments)
    with pytest.raises(InputError) as refused:
        read_project(tmp_path, pool)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "prefect.yaml"))


@pytest.mark.parametrize("nothing", ["work_pool:", "work_pool: {name: }", "version: '1'"])
def test_without_a_work_pool_it_is_deployed_to_one_that_is_named(tmp_path, nothing):
    _write(tmp_path, TRAIN + nothing)
    with pytest.raises(InputError, match=r"deployment 't' has no work_pool.name: write one, or gi"):
        read_project(tmp_path)
    read = read_project(tmp_path, "other")
    assert read.pools == ("other",)
    assert [(one["name"], one["work_pool"]) for one in read.deployments] == [
        ("t", {"name": "other"})
    ]


@pytest.mark.parametrize(
    "given",
    ["", " []", " [{match: {a: b, c: [d, '*']}}, {triggers: [{}]}]", " [{match: {a: '{{ $U }}'}}]"],
)
def test_triggers_as_prefect_has_them_are_read(tmp_path, given):
    _write(tmp_path, TRIGGERS + given)
    (read,) = read_project(tmp_path).deployments
    assert [*_awaited(read["triggers"])] == []


def test_what_would_be_deployed_in_the_place_of_another_is_refused(tmp_path):
    """The server has one deployment of a flow's name, and automations are found by theirs."""
    _write(tmp_path, f"{TRAIN}{POOL}\n{TRAIN}work_pool: {{name: q}}")
    with pytest.raises(InputError, match=r"two deployments of partwise\.flows\..* called 't', and"):
        read_project(tmp_path)
    beside = TRAIN.replace("name: t", "name: t-q")
    _write(tmp_path, f"{TRAIN}{POOL}\n{beside}work_pool: {{name: q}}")
    assert len(read_project(tmp_path).deployments) == 2
    with pytest.raises(InputError, match=r"would be called 't-q', and the server keeps one"):
        read_project(tmp_path, "q")
    told = "notifications: [{name: ops, block: a/b}, {name: ops, block: c/d}]"
    _write(tmp_path, f"{TRAIN}{POOL}\n{told}")
    with pytest.raises(InputError, match="notifications: several entries are called 'ops', of wh"):
        read_project(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "prefect.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(InputError, match="is not YAML: 'utf-8' codec"):
        read_project(tmp_path)


def _write(folder: Path, deployments: str) -> None:
    (folder / "prefect.yaml").write_text(f"deployments:\n{deployments}\n")
