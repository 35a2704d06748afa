"""The rules of the house: what imports what, what ships, how long things grow."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import partwise

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("blocks", "tasks", "flows")
BESIDE = ("tests", "benchmarks", "examples")
LIBRARY = sorted(
    path
    for path in (ROOT / "partwise").rglob("*.py")
    if path.relative_to(ROOT).parts[1] not in ROOMS
)
FILES = [*LIBRARY, *sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
PAGES = (
    *("report.html.j2", "comparison.html.j2", "catalog.html.j2"),
    *("base.html.j2", "picture.html.j2", "distribution.html.j2", "report.css"),
)
OF_SERVERS = ("page.html.j2", "docs.html.j2", "page.css", "page.js")
TEMPLATES = [ROOT / "partwise" / "reports" / name for name in PAGES]
TEMPLATES += [ROOT / "partwise" / "serving" / name for name in OF_SERVERS]
TEMPLATES += (ROOT / "flows" / "project" / "template").iterdir()
TEMPLATES += (ROOT / "flows" / "project" / "forecast_template").iterdir()
TEMPLATES += (ROOT / "partwise" / "migration").glob("*.md")

# What runs on Dask workers starts fast, and knows nothing of those who call it.
FLOORS = sorted(
    path.name
    for path in (ROOT / "partwise").iterdir()
    if path.name not in (*ROOMS, "testing", "__pycache__") and path.is_dir()
)
NOT_ON_IMPORT = (
    *("prefect", "partwise.blocks", "partwise.flows"),
    *("torch", "xgboost", "lightgbm", "keras", "pandas", "polars", "s3fs"),
    *("onnx", "onnxruntime", "sklearn"),
    *("adbc_driver_manager", "dask.dataframe", "datasets", "duckdb", "tensorflow", "transformers"),
    "python_calamine",
)
# What imports others of ours while it is being imported itself, as an edge of a graph. Where the
# graph has no cycle, each module can be the first that is imported, as on a worker.
IMPORT_ALL = """
import builtins, graphlib, importlib, sys, warnings
import pyarrow.dataset  # brings pandas by itself
before = set(sys.modules)
forbidden, names = (argument.split(",") for argument in sys.argv[1:])
needed = {}

def note(name, globals=None, locals=None, fromlist=(), level=0):
    found = plain(name, globals, locals, fromlist, level)
    importer = (globals or {}).get("__name__", "")
    if importer.startswith("partwise"):
        for target in (name, *(f"{name}.{part}" for part in fromlist or ())):
            parts = target.split(".")
            for end in range(1, len(parts) + 1):
                begun = ".".join(parts[:end])
                # A module's own packages have been begun before it, also where they import it.
                if begun in sys.modules and not f"{importer}.".startswith(f"{begun}."):
                    needed.setdefault(importer, set()).add(begun)
    return found

plain, builtins.__import__ = builtins.__import__, note
warnings.simplefilter("error")
for name in names:
    importlib.import_module(name)
    if found := sorted(set(forbidden) & set(sys.modules) - before):
        raise ImportError(f"{name} imports {', '.join(found)}")
graphlib.TopologicalSorter(needed).prepare()
"""


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _module(path: Path) -> str:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return ".".join(parts if parts[0] == "partwise" else ["partwise", *parts])


def _modules_of(folder: str) -> list[str]:
    return [_module(path) for path in FILES if path.is_relative_to(ROOT / folder)]


def _run_python(code: str, *arguments: str, **options: Any) -> str:
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_each_module_for_workers_imports_first_and_light():
    names = [name for floor in FLOORS for name in _modules_of(f"partwise/{floor}")]
    assert len(names) > 200
    _run_python(IMPORT_ALL, ",".join(NOT_ON_IMPORT), ",".join(names))


@pytest.mark.parametrize("room", ROOMS)
def test_the_package_holds_links_to_the_rooms(room):
    assert (ROOT / "partwise" / room).readlink() == Path("..") / room


def test_no_module_is_imported_by_a_bare_name():
    files = [*FILES, *(path for room in BESIDE for path in (ROOT / room).rglob("*.py"))]
    # Texts may look so as well, which only the tree tells.
    looks_bare = re.compile(rf"^ *(?:from|import) +(?:{'|'.join(ROOMS)})\b", re.MULTILINE)
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files
        if looks_bare.search(path.read_text())
        for node in ast.walk(_tree(path))
        for name in _imported(node)
        if name.split(".")[0] in ROOMS
    ]
    assert bare == []


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [str(path.relative_to(ROOT)) for path in [*FILES, *TEMPLATES]]
    expected = {name if name.startswith("partwise/") else f"partwise/{name}" for name in files}
    beside = {"py.typed", "__init__.pyi", "constraints.txt"}
    assert names == expected | {f"partwise/{name}" for name in beside}


def test_the_installed_package_imports_without_a_warning(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    names = [_module(path) for path in FILES]
    code = (
        "import sys, warnings, importlib, prefect, distributed; warnings.simplefilter('error');"
        "modules = [importlib.import_module(name) for name in sys.argv[1:]];"
        "print(*{module.__file__.rpartition('/partwise/')[0] for module in modules})"
    )
    output = _run_python(
        code, *names, env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path
    )
    assert output.strip() == str(tmp_path)


# The public face: `from partwise import ...`.


def _names_in_the_stub() -> dict[str, str]:
    """Each name of `__init__.pyi` with the module that it comes from."""
    tree = ast.parse((ROOT / "partwise" / "__init__.pyi").read_text())
    return {
        alias.name: node.module or ""
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_each_public_name_loads_and_the_stub_knows_it():
    stub = ast.parse((ROOT / "partwise" / "__init__.pyi").read_text()).body[-1]
    assert isinstance(stub, ast.Assign)
    assert ast.unparse(stub.targets[0]) == "__all__"

    assert ast.literal_eval(stub.value) == partwise.__all__
    assert len(set(partwise.__all__)) == len(partwise.__all__)
    assert set(partwise.__all__) <= set(dir(partwise))
    assert _names_in_the_stub() == partwise._MODULE_OF
    for name, module in partwise._MODULE_OF.items():
        assert getattr(partwise, name) is getattr(importlib.import_module(module), name)


def test_importing_partwise_loads_nothing_but_itself():
    loaded = _run_python(
        "import sys; before = set(sys.modules); import partwise;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    assert set(loaded.split()) - sys.stdlib_module_names == {"partwise"}


def test_names_for_functions_on_workers_load_no_prefect():
    loaded = _run_python(
        "import sys; from partwise import DataConnector, PartitionContext, Result, Skip;"
        "print(*sys.modules)"
    )
    assert "prefect" not in loaded.split()


def test_the_processes_of_functions_load_no_forms_and_no_sources():
    """Each run starts one on each worker: a form costs it a third of its start."""
    loaded = _run_python(
        "import sys, partwise.engine.child.main, partwise.gangs.rank_process; print(*sys.modules)"
    )
    assert {"pydantic", "partwise.sources.opening"}.isdisjoint(loaded.split())


def test_a_name_that_partwise_lacks_is_refused_like_any_other():
    with pytest.raises(AttributeError, match="module 'partwise' has no attribute 'train_model'"):
        partwise.train_model  # noqa: B018


def test_a_function_that_uses_the_public_face_travels_to_another_process(tmp_path):
    def decline(data: object) -> object:
        return partwise.Skip(f"{data} is too little")

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    (tmp_path / "function").write_bytes(cloudpickle.dumps(decline))
    printed = _run_python(
        "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))('a row').reason)",
        str(tmp_path / "function"),
    )
    assert printed.strip() == "a row is too little"


def test_no_public_name_hides_a_part_of_the_package():
    assert set(partwise.__all__).isdisjoint({*FLOORS, *ROOMS, "testing"})


def test_every_error_has_a_public_name():
    classes = [
        node.name
        for node in ast.parse((ROOT / "partwise" / "errors.py").read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [name for name in classes if name not in partwise.__all__] == []


def test_the_package_itself_does_not_import_through_its_face():
    """It would hide from the import contracts which floor a module needs."""
    through_it = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(_tree(path))
        if "partwise" in _imported(node)
        and not {alias.name for alias in node.names}.isdisjoint({"partwise", *partwise.__all__})
    ]
    assert through_it == []


def test_what_users_read_and_copy_imports_from_the_public_face():
    floors = ("client", "transformers", "testing", "compat")
    public = ("partwise", *(f"partwise.{name}" for name in floors))
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]
    imports = re.compile(r"^ *(?:from|import) (partwise[\w.]*)", re.MULTILINE)
    elsewhere = [
        f"{page.relative_to(ROOT)}: {module}"
        for page in pages
        for module in imports.findall(page.read_text())
        if not module.startswith(public[1:]) and module != public[0]
    ]
    assert elsewhere == []


# Limits on length are alarms. Whoever has a good reason to go over one writes it down here, as a
# sentence, under the module's path or `path:function`; nothing is split only because of its size.
LONGEST_MODULE = 500
LONGEST_BODY = 60
LONGER_FOR_A_REASON = {
    "partwise/runs/run.py": "The handle of a run has a property for each thing that runs leave.",
    "flows/running/execute_shards.py:execute": "The order of its steps is the safety of a run: "
    "claim, divide, begin, work, complete.",
}


def test_what_is_long_has_a_reason():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE}
    for path in FILES:
        for name, lines in _function_bodies(path):
            if lines > LONGEST_BODY:
                too_long[f"{path.relative_to(ROOT)}:{name}"] = lines

    unexplained = {name: n for name, n in too_long.items() if name not in LONGER_FOR_A_REASON}
    assert not unexplained, f"longer than the limit: shorten it, or give a reason: {unexplained}"
    assert LONGER_FOR_A_REASON.keys() <= too_long.keys(), "a reason for what is short by now"
    assert all(reason.endswith(".") for reason in LONGER_FOR_A_REASON.values())


def _function_bodies(path: Path) -> Iterator[tuple[str, int]]:
    """Each function's name and the lines of its body, docstring left out."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield node.name, body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_file_says_where_packages_come_from():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    # In pieces, since this file is looked at as well.
    places = re.compile(
        "|".join(["py" + r"pi\.org", "python" + "hosted", "index" + r"-url[ =]+\w+://"])
    )
    found = [
        name
        for name in listed.stdout.splitlines()
        if (ROOT / name).is_file() and places.search((ROOT / name).read_text(errors="replace"))
    ]
    assert found == []


def test_lint_looks_at_all_that_is_ours_and_at_nothing_that_a_user_tries_beside_it():
    """The README has people save first.py here, and then run `make test`."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout")
    (line,) = re.findall(r"^CODE := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(line.split()) == {path.partition("/")[0] for path in listed.stdout.split()}


def test_every_page_is_in_the_navigation_of_the_site():
    document = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = re.findall(r"'([\w/]+\.md)'", str(document["nav"]))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - set(named) == set()


def test_constraints_are_versions_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_what_is_pinned_runs_on_every_python_that_partwise_does():
    """Debian 12 has 3.11.2, where a pin for 3.11.5 and later ends `make test` before a test."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = f"{project['requires-python'].removeprefix('>=')}.0"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    needed = {
        f"{found.name} {found.version}": str(found.metadata.get("Requires-Python") or "")
        for found in distributions()
        if canonicalize_name(found.name) in pinned
    }
    assert len(needed) > 100
    unfit = {name: it for name, it in needed.items() if not SpecifierSet(it).contains(oldest)}
    assert unfit == {}


def test_deployments_name_flows_that_exist():
    document = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    deployments = document["deployments"]
    assert len(deployments) == 20
    code = (
        "import sys; from prefect.flows import load_flow_from_entrypoint as load;"
        "print(*[load(name).name for name in sys.argv[1:]])"
    )
    output = _run_python(code, *(deployment["entrypoint"] for deployment in deployments))
    flows = ["train-models", "find-portfolio", "train-distributed", "tune-model", "run-script"]
    flows += ["run-inference", "compare-models", "evaluate-predictions", "promote-models"]
    flows += ["map-partitions"]
    flows += ["export-models", "validate-exports"]
    flows += ["model-pipeline", "export-transformers"]
    flows += ["scale-cluster"]
    scheduled = ["train-models", "run-inference", "lifecycle", "model-pipeline"]
    scheduled += ["tidy-store"]
    assert output.split() == [*flows, *scheduled]


def test_every_public_function_that_takes_a_store_takes_a_folder() -> None:
    import partwise

    narrow = []
    for name in partwise.__all__:
        public = getattr(partwise, name)
        members = [public, *vars(public).values()] if inspect.isclass(public) else [public]
        for member in members:
            function = getattr(member, "__func__", member)
            if not inspect.isfunction(function) or function.__name__.startswith("_"):
                continue
            for parameter in inspect.signature(function).parameters.values():
                kind = str(parameter.annotation)
                if kind.rpartition(".")[2].strip("'\"") == "Store":
                    narrow.append(f"{function.__qualname__}({parameter.name})")
    assert narrow == []
