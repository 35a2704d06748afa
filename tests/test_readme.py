"""README.md and the pages under docs/: their commands and scripts are run as they stand there.

All pages share one folder, in the order of PAGES, and their runs go to the session's two workers;
the quick tests run the commands of the README only. Commands run in this process, on a table of
fewer stores than `make demo` writes. One slow test runs those of the README as a reader does: each
in a process of its own, with a cluster of its own, on the whole table.
"""

import ast
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.blocks import LocalCluster
from partwise.engine import plan
from partwise.exports.proof.judge import close_judges
from partwise.flows.cli.main import app, main
from partwise.flows.demo.table import write_demo_table
from tests.transformers.tiny_checkpoints import save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
# Runs that a page refers to were made by pages before it.
PAGES = [README, *(ROOT / "docs" / f"{name}.md" for name in ("training", "data", "exports"))]
PAGES += sorted(set((ROOT / "docs").glob("*.md")) - set(PAGES))
STORES = 8
TOP = "README|CONTRIBUTING|partwise|flows|tasks|blocks|tests|benchmarks|examples|containers|docs"


class Block(NamedTuple):
    """What stands between two fences."""

    page: Path
    language: str
    is_slow: bool
    text: str

    @property
    def commands(self) -> list[str]:
        return self.text.splitlines() if self.language == "bash" else []


def blocks_of(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w+)( slow)?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(page, language, bool(slow), text) for language, slow, text in found]


# The quickstart's commands are those of a new project, see below.
BLOCKS = [block for page in PAGES if page != QUICKSTART for block in blocks_of(page)]
PAGES_WITH_BLOCKS = list(dict.fromkeys(block.page for block in BLOCKS))


def make_folder(path: Path, stores: int) -> Path:
    """Make the folder in which a reader stands after `make demo`."""
    table = path / "demo" / "sales.parquet"
    table.parent.mkdir()
    write_demo_table(table)
    if stores < 100:
        rows = pq.read_table(table)
        last = f"store-{stores:03d}"
        pq.write_table(rows.filter(pc.less_equal(rows["store"], last)), table)
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_folder(tmp_path, STORES)


@pytest.fixture
def here(folder, dask_client, prefect_server, monkeypatch) -> Path:
    """The reader's folder as the current one, in a process whose local cluster is the session's."""

    @contextmanager
    def client(self: LocalCluster):
        yield dask_client

    monkeypatch.setattr(LocalCluster, "client", client)
    # One shard has one worker start one process, which imports all that it needs: a second or two.
    monkeypatch.setattr(plan, "default_n_shards", lambda *_: 1)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def no_judge_outlives_the_tests():
    yield
    close_judges()


def run_command(command: str) -> str:
    """Carry out a command of partwise in this process, and return what it printed."""
    program, *words = shlex.split(command)
    assert program == "partwise", command
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(words)
    assert code == 0, f"{command}\n{out.getvalue()}{err.getvalue()}"
    return out.getvalue()


def run_process(command: list[str], folder: Path) -> str:
    """Run a command as a reader would, and return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def run_script(text: str) -> str:
    """Run a script in this process; its functions travel by value, as those of `__main__` do."""
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(text, "script", "exec"), {"__name__": "__main__"})
    return out.getvalue()


def run_page(page: Path) -> None:
    """Run the commands and scripts of a page, as far as they need no process of their own."""
    for block in blocks_of(page):
        if block.is_slow:
            continue
        if block.language == "python" and page != README:
            assert run_script(block.text) or "Contract" in block.text
        for command in block.commands:
            check_output(command, run_command(command), STORES)


def test_the_commands_of_the_readme(here):
    run_page(README)


@pytest.mark.slow
def test_the_commands_and_scripts_of_every_page(here):
    for page in PAGES_WITH_BLOCKS:
        run_page(page)


def check_output(command: str, printed: str, stores: int) -> None:
    """See that what a command printed is about what it did."""
    words = shlex.split(command)
    # Of find-portfolio it is a number of partitions, and no dry run.
    if "--sample" in words and words[1] != "find-portfolio":
        assert f"A sample of 3 of the {stores} partitions" in printed
        assert "the same call without --sample runs all partitions)" in printed
    if "--run-id" in words:
        assert "SUCCESS" in printed
    match words[1:3]:
        case ["runs", "list"]:
            assert {"second", "second-used"} <= set(printed.split())
        case ["runs", "gc"] | ["data", "gc"]:
            assert printed
        case ["runs", "show"]:
            assert "second" in printed or "store-007" in printed or "failed" in printed.lower()
        case ["data", _]:
            assert "sales" in printed


@pytest.mark.slow
def test_the_readme_as_a_reader_types_it(prefect_server, tmp_path) -> None:
    """Each command is a process with a cluster of its own; and what the other tests leave out."""
    folder = make_folder(tmp_path, 100)
    for block in BLOCKS:
        if block.page != README and not block.is_slow:
            continue
        if block.language == "python":
            (folder / "script.py").write_text(block.text)
            printed = run_process([sys.executable, "script.py"], folder)
            assert "SUCCESS" in printed
            assert "50 trees; nothing printed" in printed
            assert "prediction" in printed
        for command in block.commands:
            check_output(command, run_process(shlex.split(command), folder), 100)


def test_the_contract_that_a_page_shows_passes(folder) -> None:
    (example,) = (block.text for block in BLOCKS if "Contract)" in block.text)
    (folder / "test_line_serde.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "passed" in run_process([*command, "test_line_serde.py"], folder)


@pytest.mark.slow  # loads transformers; tests/flows/cli/test_transformers.py has each command
def test_the_commands_for_models_of_hugging_face(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    save_checkpoint(folder / "my-bert", "distilbert", "sequence-classification")
    page = (ROOT / "docs" / "transformers.md").read_text()
    commands = re.findall(r"^    (partwise transformers [^#\n]*)", page, re.MULTILINE)

    printed = [run_command(command) for command in commands]

    assert len(printed) == 3
    assert "distilbert" in printed[0]
    assert (folder / "served" / "model.onnx").is_file()


def _commands_in_the_text(page: Path) -> list[str]:
    """The commands of partwise that stand in a page, in blocks and between backticks."""
    text = page.read_text()
    found = [
        command
        for block in blocks_of(page)
        for command in block.commands
        if command.startswith("partwise")
    ]
    found += re.findall(r"^    (partwise [^#\n]*)", text, re.MULTILINE)
    found += re.findall(r"`(partwise [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [" ".join(command.split()) for command in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_a_page_names_can_be_parsed(page) -> None:
    for command in _commands_in_the_text(page):
        words = shlex.split(command)[1:]
        names, _, rest = app.parse_commands([word for word in words if word != "--help"])
        assert names or not rest, f"{command}: no such command"
        if any(word.startswith("-") and word != "--help" for word in words):
            app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_make_target_that_a_page_names_exists(page) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_two_commands_are_those_of_the_makefile_and_of_ci() -> None:
    wanted = re.findall(r"^    make (\w+)", README.read_text(), re.MULTILINE)
    assert wanted == ["demo", "test"]
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    for name in wanted:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE)
        assert f"make {name}" in ci


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_every_place_that_a_page_names_exists(page) -> None:
    text = page.read_text()
    names = re.findall(rf"`((?:{TOP})/[\w./-]+)`", text)
    names += re.findall(r"python ((?:benchmarks|examples)/[\w./]+)", text)
    # A function of a module is named as `flows/running/frame.connect`.
    names = [name if (ROOT / name).exists() else re.sub(r"\.\w+$", ".py", name) for name in names]
    assert [name for name in names if not (ROOT / name).exists()] == []

    links = re.findall(r"\]\((?!https?:)([^)]+)\)", text)
    assert page != README or len(links) >= 10
    for link in links:
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), link
        assert not anchor or anchor in _anchors(target), link


def test_the_quickstart_has_the_commands_of_a_new_project() -> None:
    """tests/flows/project/test_new_project.py types those, where only a wheel is installed."""
    project = (ROOT / "flows" / "project" / "template" / "README.md.template").read_text()
    ours, its = (
        re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for text in (QUICKSTART.read_text(), project.replace("PROJECT_NAME", "shop"))
    )
    assert "".join(ours) == "".join(its)
    assert "    partwise init shop\n" in QUICKSTART.read_text()


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_one_link_away_and_the_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in text] == []


_MODULES = {"scikit-learn": "sklearn"}
"""Packages whose module has another name."""


def _installed_as(requirements: list[str]) -> set[str]:
    """The modules that requirements are for."""
    names = {re.split(r"[<>=!;\[ ]", each)[0] for each in requirements}
    return {_MODULES.get(name, name.replace("-", "_")) for name in names}


def _imported(text: str) -> set[str]:
    """The installed modules that a script imports, at its top or within a function."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module))
    return {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"partwise"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_what_its_scripts_import_beyond_partwise(page) -> None:
    """Partwise alone is installed, and what the page says to install, with extras or by a name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = page.read_text()
    has = _installed_as(project["dependencies"]) | {"pandas"}  # dask[dataframe] brings pandas
    for extras in re.findall(r"partwise\[([\w,]+)\]", text):
        for extra in extras.split(","):
            has |= _installed_as(project["optional-dependencies"][extra])
    for line in re.findall(r"pip install ([^`\n]+)", text):
        has |= _installed_as(shlex.split(line))
    if "pytest" in text:
        has.add("pytest")
    scripts = [block.text for block in blocks_of(page) if block.language == "python"]
    missing = {name for script in scripts for name in _imported(script)} - has
    assert missing == set()


# docs/architecture.md


def test_the_map_names_every_floor() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    order = next(
        each["layers"] for each in contracts["contracts"] if each.get("containers") == ["partwise"]
    )
    floors = [name.strip() for layer in order for name in layer.split("|")]
    map_page = (ROOT / "docs" / "architecture.md").read_text()
    table = map_page.partition("## The floors")[2].partition("\n## ")[0]

    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    assert re.findall(r"`(\w+)`", " ".join(rows)) == floors


def test_the_map_shows_about_a_dozen_boxes_each_with_a_file() -> None:
    map_page = (ROOT / "docs" / "architecture.md").read_text()
    picture = map_page.partition("```text\n")[2].partition("```")[0]

    files = re.findall(r"[\w/]+\.py", picture)

    assert 10 <= len(files) <= 20
    assert [name for name in files if not (ROOT / name).is_file()] == []
