"""README.md and the pages under docs/: their commands and scripts are run as they stand there.

All pages share one folder. Those that tell to install the same share a process with a cluster too,
and the order is that of PAGES by their first page. The quick tests run the commands of the README
only, in this process and on the session's two workers. The table has fewer stores than `make demo`
writes. One slow test runs the README as a reader does: each command in a process of its own, with a
cluster of its own, on the whole table.
"""

import io
import json
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

import partwise
from partwise.blocks import LocalCluster
from partwise.engine.driver import plan
from partwise.exports.proof.judge import close_judges
from partwise.flows.cli.main import app, main
from partwise.flows.demo.table import write_demo_table
from tests.only_installed import distributions_of, hide_others, told_by
from tests.transformers.tiny_checkpoints import save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
# Runs that a page refers to were made by pages before it.
PAGES = [README, *(ROOT / "docs" / f"{name}.md" for name in ("training", "data", "exports"))]
PAGES += sorted(set((ROOT / "docs").glob("*.md")) - set(PAGES))
PAGES += (ROOT / "partwise" / "migration").glob("*.md")
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
# Those that refer to no run of another page.
PAGES_ALONE = [page for page in PAGES_WITH_BLOCKS if page.name.startswith("from_")]


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


def run_process(command: list[str], folder: Path, page: Path) -> str:
    """Run a command of a page as a reader would, and return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment_of(page, folder), "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def environment_of(page: Path, folder: Path) -> dict[str, str]:
    """The environment of processes that can import only what a page tells to install.

    A script that refers to runs of another page is for who has read that one, but not installed
    what it tells.
    """
    hidden = hide_others(folder / f"only_{page.stem}", told_by(page.read_text()))
    return os.environ | {"PYTHONPATH": str(hidden)}


def run_blocks(page: Path, blocks: list[Block], folder: Path) -> list[str]:
    """Run blocks in a process with what a page tells to install, and return what each printed."""
    given, printed = folder / f"{page.stem}.blocks", folder / f"{page.stem}.printed"
    given.write_text(json.dumps([(block.language, block.text) for block in blocks]))
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "page_runner.py", given, printed],
        cwd=folder,
        env=environment_of(page, folder),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{page.name}\n{done.stdout}{done.stderr}"
    texts: list[str] = json.loads(printed.read_text())
    return texts


def run_pages(pages: list[Path], folder: Path) -> None:
    """Run the commands and scripts of pages that tell to install the same, in one process.

    Those that need a process of their own are left out.
    """
    blocks = [
        block
        for page in pages
        for block in blocks_of(page)
        # The README's script does all of its commands once more.
        if block.language in (("bash",) if page == README else ("python", "bash"))
        if not block.is_slow
    ]
    if not blocks:
        return
    texts = iter(run_blocks(pages[0], blocks, folder))
    for block in blocks:
        if block.language == "python":
            assert next(texts) or "Contract" in block.text
        for command in block.commands:
            check_output(command, next(texts), STORES)


def test_the_commands_of_the_readme(here):
    for block in blocks_of(README):
        for command in block.commands:
            check_output(command, run_command(command), STORES)


@pytest.mark.slow  # a process and a cluster for pages that tell to install the same
@pytest.mark.timeout(1800)  # all of these pages, one after another
def test_the_commands_and_scripts_of_every_page_with_only_what_it_tells_to_install(
    folder, prefect_server
):
    together: dict[frozenset[str], list[Path]] = {}
    for page in PAGES_WITH_BLOCKS:
        if page in PAGES_ALONE:
            continue
        there = frozenset(distributions_of(told_by(page.read_text())))
        together.setdefault(there, []).append(page)
    for pages in together.values():
        run_pages(pages, folder)


@pytest.mark.slow  # a process and a cluster for each
@pytest.mark.parametrize("page", PAGES_ALONE, ids=lambda page: page.stem)
def test_a_page_for_those_who_come_from_elsewhere(page, folder, prefect_server):
    run_pages([page], folder)


@pytest.mark.slow  # a process with a cluster of its own
def test_what_a_page_does_not_tell_to_install_cannot_be_imported_in_any_process(
    folder, prefect_server
):
    """Nor seen by its distribution: in this process, in one that it starts, and in a worker's."""
    look = """
import importlib.util, subprocess, sys
from importlib import metadata

def seen():
    names = {each.metadata["Name"] for each in metadata.distributions()}
    found = [m for m in ("statsforecast", "polars", "sklearn") if importlib.util.find_spec(m)]
    return found + sorted(names & {"statsforecast", "polars", "scikit-learn"})

if __name__ == "__main__":
    import partwise
    print(seen())
    words = f"import importlib.util as u; print(u.find_spec('sklearn'), u.find_spec('polars'))"
    print(subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout)
    from partwise import Result, map_partitions
    def fit(data, context):
        import polars
        try:
            import sklearn
        except ModuleNotFoundError as error:
            print(error, seen())
    run = map_partitions("demo/sales.parquet", "store", fit, run_id="seen")
    print(run.logs("store-001"))
"""
    (folder / "look.py").write_text(look)
    page = ROOT / "docs" / "forecasting.md"
    done = subprocess.run(
        [sys.executable, "look.py"],
        cwd=folder,
        env=environment_of(page, folder),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = "['statsforecast', 'polars', 'polars', 'statsforecast']"
    assert done.stdout.count(seen) == 2, done.stdout
    assert "None ModuleSpec(name='polars'" in done.stdout
    assert f"No module named 'sklearn' {seen}" in done.stdout


def test_what_an_installation_brings_follows_extras_and_markers():
    alone = distributions_of([])
    assert {"partwise", "prefect", "dask", "pandas", "uvicorn"} <= alone
    assert alone.isdisjoint({"polars", "scikit-learn", "torch", "pytest"})
    assert ("backports-tarfile" in alone) is (sys.version_info < (3, 11, 4))
    assert {"scikit-learn", "scipy"} <= distributions_of(["partwise[sklearn]"])
    text = "`pip install 'partwise[sklearn,excel]'` or pip install -r requirements.txt"
    assert set(told_by(text)) == {"partwise[sklearn,excel]", "partwise", "pytest>=9"}


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
            printed = run_process([sys.executable, "script.py"], folder, block.page)
            assert "SUCCESS" in printed
            assert "50 trees; nothing printed" in printed
            assert "prediction" in printed
        for command in block.commands:
            check_output(command, run_process(shlex.split(command), folder, block.page), 100)


def test_the_contract_that_a_page_shows_passes(folder) -> None:
    (example,) = (block for block in BLOCKS if "Contract)" in block.text)
    (folder / "test_line_serde.py").write_text(example.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "passed" in run_process([*command, "test_line_serde.py"], folder, example.page)


@pytest.mark.slow  # loads transformers; tests/flows/cli/test_transformers.py has each command
def test_the_commands_for_models_of_hugging_face(folder) -> None:
    save_checkpoint(folder / "my-bert", "distilbert", "sequence-classification")
    page = ROOT / "docs" / "transformers.md"
    commands = re.findall(r"^    (partwise transformers [^#\n]*)", page.read_text(), re.MULTILINE)

    printed = run_blocks(page, [Block(page, "bash", False, "\n".join(commands))], folder)

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


def test_every_public_name_stands_on_a_page() -> None:
    words = set(re.findall(r"\w+", "".join(page.read_text() for page in PAGES)))
    assert [name for name in partwise.__all__ if name not in words] == []


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


def test_the_map_has_the_numbers_of_formats_that_the_code_has() -> None:
    map_page = (ROOT / "docs" / "architecture.md").read_text()
    rows = [
        line.split("|")[1:4]
        for line in map_page.partition("| its number |")[2].splitlines()
        if re.match(r"\|.*_(version|VERSION)\W", line)
    ]
    found = {}
    for what, shown, places in rows:
        code = "".join((ROOT / name).read_text() for name in re.findall(r"[\w/]+\.py", places))
        newest = re.findall(r"(?:VERSION|format_version)(?:: .+)? = (\d+)$", code, re.MULTILINE)
        found[what.strip()] = set(newest) - set(re.findall(r"\b\d+\b", shown)) if newest else None

    assert len(found) >= 14
    assert {what: left for what, left in found.items() if left != set()} == {}


def test_the_map_shows_about_a_dozen_boxes_each_with_a_file() -> None:
    map_page = (ROOT / "docs" / "architecture.md").read_text()
    picture = map_page.partition("```text\n")[2].partition("```")[0]

    files = re.findall(r"[\w/]+\.py", picture)

    assert 10 <= len(files) <= 20
    assert [name for name in files if not (ROOT / name).is_file()] == []
