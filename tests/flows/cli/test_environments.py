"""The commands about environments, and the options by which a command asks for one."""

import json
import os
import time

import pytest

from partwise.environments.building import open_environment
from partwise.environments.environment import Environment
from partwise.environments.resolution import resolve
from partwise.flows.cli.main import main
from tests.environments.wheels import make_wheel


@pytest.fixture
def built(tmp_path, monkeypatch):
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    make_wheel(tmp_path / "wheels", "shop", "1.0")
    wheels = (str(tmp_path / "wheels"),)
    with open_environment(
        resolve(Environment(packages=("shop",), find_links=wheels, no_index=True))
    ) as built:
        yield built


def test_environments_are_listed_and_the_old_ones_removed(built, capsys) -> None:
    assert main(["environments", "list", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["of"], record["in_use"]) == ("shop", True)
    assert record["packages"]["shop"].startswith("1.0")
    assert main(["environments", "gc", "--older-than", "0"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    built.close()
    assert main(["environments", "gc"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    old = time.time() - 31 * 86400
    os.utime(built.entry / "complete.json", (old, old))
    assert main(["environments", "gc", "--dry-run"]) == 0
    assert "1 would be removed" in capsys.readouterr().out
    assert main(["environments", "list"]) == 0
    assert "shop" in capsys.readouterr().out
    assert main(["environments", "gc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"] == built.entry.name
    assert main(["environments", "list"]) == 0
    assert "no environments" in capsys.readouterr().out


def test_what_cannot_be_resolved_ends_the_command_with_one_line(tmp_path, capsys) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("key,x\na,1\n")
    words = ["map", str(rows), "--function", "operator:eq", "-p", "key", "--no-index"]
    code = main([*words, "--package", "./mine", "--store", str(tmp_path / "store")])
    assert code == 2
    assert "'./mine' lies on this machine" in capsys.readouterr().err
