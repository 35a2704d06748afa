"""What a test asks for and a machine may lack: programs, a GPU, real data. Each is a fixture.

Without it the test is skipped with a sentence that says what to install. PARTWISE_TEST_PROGRAMS is
how CI tries both: `none` hides them all, so that what asks for one is skipped, and what uses one
without asking fails as on a fresh machine; with `all` it is a failure that Debian's are not there.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
POSTGRESQL = Path("/usr/lib/postgresql")
OLDEST_PYTHON = (3, 11)
MISSING = "There is no "
VERSION = "import json, sys; print(json.dumps(sys.version_info[:2]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Something that a machine may lack."""

    find: Callable[[], str | None]
    """Return its path, or None where it is not there."""
    how: str
    """How one comes by it."""
    is_in_ci: bool = True
    """Whether `.ci/run` sees to it that it is there."""

    @classmethod
    def of_debian(cls, program: str, package: str) -> "Needed":
        return cls(find=lambda: shutil.which(program), how=f"apt-get install {package}")


def find_initdb() -> str | None:
    """The program that makes a database, which Debian keeps out of PATH."""
    found = sorted(POSTGRESQL.glob("*/bin/initdb"))
    return str(found[-1]) if found else shutil.which("initdb")


def _find_mpirun() -> str | None:
    from partwise.errors import InputError
    from partwise.scripts.open_mpi import find_open_mpi

    try:
        return find_open_mpi().mpirun
    except InputError:
        return None


def _find_other_python() -> str | None:
    """The newest other Python; a shim of pyenv may name one that is switched off."""
    names = [f"python3.{minor}" for minor in range(OLDEST_PYTHON[1], 20)]
    pythons = [*map(shutil.which, names), *Path.home().glob(".pyenv/versions/3.*/bin/python")]
    found: dict[tuple[int, int], str] = {}
    for python in filter(None, pythons):
        said = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
        if said.returncode == 0:
            found[tuple(json.loads(said.stdout))] = str(python)
    found.pop(sys.version_info[:2], None)
    return found[max(found)] if found and max(found) >= OLDEST_PYTHON else None


def _find_gpu() -> str | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return "0" if pynvml.nvmlDeviceGetCount() else None


def _find_ip() -> str | None:
    """The program that makes networks, where hosts of namespaces may be made: as root."""
    spaces = ("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "true")
    if (found := shutil.which("ip")) is None or shutil.which("nsenter") is None:
        return None
    return found if subprocess.run(spaces, capture_output=True).returncode == 0 else None


def _find_mlflow_server() -> str | None:
    """MLflow's program in an environment that has its server, where this one has the client."""
    if find_spec("mlflow") is None:
        return None
    places = map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep)))
    found = (each / "mlflow" for each in places if (each / "flask").exists())
    return next((str(each) for each in found if each.exists()), None)


def _find_bike_trips() -> str | None:
    folder = os.environ.get("PARTWISE_TEST_DATA") or ROOT.parent / "shared" / "data"
    path = Path(folder, "bike_trips.parquet")
    return str(path) if path.exists() else None


NEEDED = {
    "mpirun": Needed(find=_find_mpirun, how="apt-get install openmpi-bin"),
    "chromium": Needed.of_debian("chromium", "chromium"),
    "initdb": Needed(find=find_initdb, how="apt-get install postgresql"),
    "ip": Needed(
        find=_find_ip,
        how="apt-get install iproute2, and be root with CAP_SYS_ADMIN: hosts are Linux namespaces",
    ),
    "azurite": Needed(
        find=lambda: shutil.which("azurite-blob"),
        how="npm install --global azurite",
        is_in_ci=False,
    ),
    "zsh": Needed.of_debian("zsh", "zsh"),
    "fish": Needed.of_debian("fish", "fish"),
    "other_python": Needed(
        find=_find_other_python, how="install another Python that is 3.11 or newer", is_in_ci=False
    ),
    "localbucket": Needed(
        find=lambda: shutil.which("localbucket"),
        how="pip install localbucket, into any environment whose programs are on PATH",
        is_in_ci=False,
    ),
    "mlflow_server": Needed(
        find=_find_mlflow_server,
        how="pip install mlflow-skinny here, and mlflow into any environment whose programs are on "
        "PATH",
        is_in_ci=False,
    ),
    "gpu": Needed(find=_find_gpu, how="use a machine with an NVIDIA GPU", is_in_ci=False),
    "bike_trips": Needed(
        find=_find_bike_trips,
        how="have PARTWISE_TEST_DATA name the folder of bike_trips.parquet",
        is_in_ci=False,
    ),
}
"""The fixtures of this module: what a test names as an argument, or in `usefixtures`."""


def mode() -> str:
    """What CI tries: `all`, `none`, or nothing."""
    return os.environ.get("PARTWISE_TEST_PROGRAMS", "")


def _find_or_skip(name: str) -> str:
    needed = NEEDED[name]
    found = None if mode() == "none" else needed.find()
    if found is None:
        said = f"{MISSING}{name}: {needed.how}"
        if mode() == "all" and needed.is_in_ci:
            pytest.fail(f"CI has to have all programs. {said}")
        pytest.skip(said)
    return found


def _fixture(name: str) -> object:
    @pytest.fixture(scope="session", name=name)
    def find() -> str:
        return _find_or_skip(name)

    return find


globals().update({name: _fixture(name) for name in NEEDED})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say of how many tests nothing is known, and how that changes."""
    reports = terminalreporter.getreports("skipped")
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in reports]
    counts = Counter(reason for reason in reasons if reason.startswith(MISSING))
    if counts:
        terminalreporter.section("skipped, for want of a program or data")
    for reason, count in counts.most_common():
        terminalreporter.line(f"{count} tests: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for one, directly or by another fixture, before `-m` is looked at."""
    for item in items:
        if not NEEDED.keys().isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("program")


def without_programs(path: str, folder: Path) -> str:
    """A PATH like another without them: links to the rest of each place that holds one."""
    shown: list[str] = []
    for number, place in enumerate(map(Path, filter(None, path.split(os.pathsep)))):
        if not any((place / name).exists() for name in NEEDED):
            shown.append(str(place))
            continue
        (links := folder / str(number)).mkdir(parents=True)
        for file in _other_files(place):
            (links / file.name).symlink_to(file)
        shown.append(str(links))
    return os.pathsep.join(shown)


def _other_files(place: Path) -> Iterator[Path]:
    return (file for file in place.iterdir() if file.name not in NEEDED)
