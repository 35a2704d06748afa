"""What the doctor finds, in health and otherwise."""

import pytest
from packaging.requirements import Requirement
from prefect.settings import PREFECT_API_URL, temporary_settings

from partwise.flows.cli.main import main
from partwise.flows.operations.doctor import compare_version


def test_all_is_well_with_a_store_a_cluster_and_a_server(
    prefect_server, cluster, tmp_path, capsys
) -> None:
    words = ["doctor", "--store", str(tmp_path / "new"), "--address", cluster.address]
    assert main(words) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[-1] == "all is well"
    assert not any(line.startswith(("✗", "!!")) for line in lines)
    for what in (
        "python",
        "partwise",
        "prefect",
        "lightgbm",
        "CPUs",
        "memory",
        "open files",
    ):
        assert any(line.split()[1:2] == [what.split()[0]] for line in lines), what
    assert len(set(lines)) == len(lines)
    assert f"{tmp_path / 'new'} can be written" in out
    assert "2 of its workers answered" in out
    assert "on 2 workers, as here" in out
    assert "the workers can write it" in out
    assert "/api answers" in out
    assert not (tmp_path / "new").exists()


def test_what_is_broken_is_told_with_what_to_do(prefect_server, capsys) -> None:
    words = ["doctor", "--store", "/proc/nowhere", "--address", "tcp://127.0.0.1:9"]
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert main([*words, "--connect-timeout-s", "0.3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("✗")] == [
        "store",
        "cluster",
        "Prefect",
    ]
    assert "unset PREFECT_API_URL" in lines[-2]
    assert lines[-1].startswith("3 of ")


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("numpy>=1", "good", ""),
        ("numpy<1", "bad", "partwise needs <1: others were not tried"),
        ("sqlalchemy<1", "bad", "silently stops all schedules"),
        ("no-such-package>=3", "bad", "is not installed"),
    ],
)
def test_versions_are_compared_with_what_partwise_allows(text, verdict, words) -> None:
    finding = compare_version(Requirement(text), optional=False)
    assert finding.verdict == verdict
    assert words in finding.text
    assert finding.remedy == ("" if verdict == "good" else f"pip install '{text}'")
    assert compare_version(Requirement("no-such-package>=3"), optional=True) is None
