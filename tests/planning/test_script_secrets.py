"""Secrets in the call of a script: masked in its documents, and said before it runs."""

from dataclasses import replace

import pytest

from partwise.errors import InputError
from partwise.planning.script import prepare_script
from partwise.runs.documents import to_json
from partwise.scripts.spec import ScriptSpec
from partwise.store.store import Store
from tests.one_script import CALL

SECRET = "hunter2-blue"

SECRETS = {
    "arguments by name": {"api-key": SECRET, "depth": 3},
    "arguments by name, of several values": {"api-keys": ["0", SECRET]},
    "arguments": ["--depth", "3", "--password", SECRET],
    "arguments of one word": ["--depth=3", f"--password={SECRET}"],
    "arguments with a URL": [f"postgresql://me:{SECRET}@db/shop"],
    "environment_variables": {"PGPASSWORD": SECRET},
    "command": f"python main.py --token {SECRET} --depth 3",
    "command of words": ["python", "main.py", "--access-key", SECRET],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "main.py").write_text("")
    return str(tmp_path / "source")


@pytest.mark.parametrize("place", SECRETS)
def test_a_secret_is_not_written_down_and_said(folder, tmp_path, place):
    name = place.split()[0]
    script = "" if name == "command" else "main.py"
    call = replace(CALL, source_directory=folder, entry_script=script, **{name: SECRETS[place]})
    plan = prepare_script(call, {}, Store.parse(tmp_path / "store"), {})
    assert SECRET not in str(to_json(plan.intent.call_known))
    assert "***" in str(plan.intent.call_known)
    assert plan.intent.call is None
    assert len(plan.warnings) == 1
    assert plan.warnings[0].startswith(f"{name}= holds what looks like a secret")
    assert SECRET not in str(plan.intent.code_parts) + plan.warnings[0]
    words = plan.work.spec.command("python", {}, {})
    assert SECRET in str(words) or name == "environment_variables"


HARMLESS = {
    "arguments by name": {"tokenizer": "bert-base", "max_tokens": 512, "key_column": "store"},
    "arguments": ["--tokenizer", "bert-base", "--token", "{env.HUB_TOKEN}", "--password", "$WORD"],
    "environment_variables": {"TOKENIZERS_PARALLELISM": "false"},
    "command": "python main.py --tokenizer bert-base --token {env.HUB_TOKEN} --tokens 512",
}


@pytest.mark.parametrize("place", HARMLESS)
def test_what_is_no_secret_is_kept(folder, tmp_path, place):
    name = place.split()[0]
    script = "" if name == "command" else "main.py"
    call = replace(CALL, source_directory=folder, entry_script=script, **{name: HARMLESS[place]})
    plan = prepare_script(call, {}, Store.parse(tmp_path / "store"), {})
    assert plan.intent.call["arguments"][name] == HARMLESS[place]
    assert plan.warnings == ()


def test_a_placeholder_is_a_variable_of_the_worker():
    spec = ScriptSpec(words=("main.py", "--token={env.HUB_TOKEN}"))
    assert spec.command("python", {}, {"HUB_TOKEN": SECRET})[2] == f"--token={SECRET}"
    odd = spec.command("python", {}, {"HUB_TOKEN": "a$RANK.b", "RANK": "3"})
    assert odd[2] == "--token=a$RANK.b"
    shell = replace(spec, words=(), shell="echo {env.HUB_TOKEN}")
    assert shell.command("python", {}, {"HUB_TOKEN": "a b"})[2] == "echo 'a b'"
    with pytest.raises(InputError, match="the worker has no such variable: set HUB_TOKEN"):
        spec.command("python", {}, {})
    resumed = ScriptSpec(words=("main.py",), resume_argument="--key {env.K} --from {resume_from}")
    assert resumed.command("python", {"resume_from": "/c"}, {"K": SECRET})[2:] == [
        *("--key", SECRET, "--from", "/c")
    ]
