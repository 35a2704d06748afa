"""What the tests share: their environment, and one of each server, started when first needed.

Prefect reads its settings on import, so the environment is set when pytest imports this file.
"""

import functools
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests import environment, prefect_database, programs, second_try, time_left
from tests.ports import free_port
from tests.thoroughness import THOROUGH

if TYPE_CHECKING:
    from partwise.store.store import Store
    from tests.run_maker import RunMaker
    from tests.sql_server import Postgres

# Nothing that is collected goes away again: to look for it takes a quarter of the time.
gc.disable()

TEMP_DIR = Path(tempfile.mkdtemp(prefix="partwise-tests-"))
SESSION_MARK = "PARTWISE_TEST_SESSION"
SERVER_START_TIMEOUT_S = 120.0
SERVERS = ExitStack()
LEFT_S = 5.0
"""For so long processes that the tests have ended may take to go."""
OPERATIONS = "tests/flows/operations/"
SERVED = "what asks for Prefect's server"
MOST_MODULES = 300
COLLECTED_WITH = pytest.StashKey[frozenset[str]]()
"""The modules that were there once all tests were collected."""


PREFECT_PORT = free_port()
PREFECT_URL = f"http://127.0.0.1:{PREFECT_PORT}/api"

# Made for the tests, and for each process that one starts: a person's own servers, profiles, keys,
# indexes, terminal and variables of Python are none of our business.
for name in [name for name in os.environ if not environment.is_of_machine(name)]:
    del os.environ[name]
if programs.mode() == "none":
    os.environ["PATH"] = programs.without_programs(os.environ["PATH"], TEMP_DIR / "programs")
os.environ |= {
    SESSION_MARK: uuid.uuid4().hex,
    "DO_NOT_TRACK": "1",
    "KERAS_BACKEND": "tensorflow",
    "PARTWISE_SCRATCH": str(TEMP_DIR / "scratch"),
    "PARTWISE_STATE": str(TEMP_DIR / "state"),
    "PREFECT_HOME": str(TEMP_DIR / "prefect"),
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    # Who asks for a server without the fixture gets an error, and starts none.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(int(SERVER_START_TIMEOUT_S)),
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "UV_CACHE_DIR": str(TEMP_DIR / "uv"),
    "UV_NO_CONFIG": "1",
    "UV_HTTP_RETRIES": "0",
}

# Threads that wait for one another while other tests have their cores take eight times as long.
if n_processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    n_threads = max(1, (os.cpu_count() or 1) // n_processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(n_threads))

# A shell without job control has what it starts in the background ignore Ctrl-C, for good.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, and no verdict on how fast it is.
settings.register_profile(
    "partwise",
    derandomize=True,
    max_examples=100 if THOROUGH else 60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("partwise")


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (programs, environment, prefect_database, second_try, time_left):
        config.pluginmanager.register(plugin)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run files without servers first, so that a plain mistake shows within seconds.

    Operations go last; where processes share the tests, what one of them has to itself goes first,
    lest the others should wait for it at the end.
    """
    for item in items:
        if item.get_closest_marker("alone") and not item.get_closest_marker("slow"):
            raise pytest.UsageError(f"{item.nodeid} is marked alone: mark it slow as well.")
    rank = {"postgres_server": 1, "dask_client": 1, "s3_endpoint_url": 1, "prefect_server": 2}
    ranks: dict[Path, int] = {}
    for item in items:
        names = getattr(item, "fixturenames", ())
        needed = max([1, *(1 + rank.get(name, 0) for name in names)])
        needed = 4 if item.nodeid.startswith(OPERATIONS) else needed
        ranks[item.path] = max(ranks.get(item.path, 0), needed)
    if hasattr(config, "workerinput"):
        scopes = {item.path: scope_of(item.nodeid, config) for item in items}
        ranks |= {path: 0 for path in scopes if scopes[path] in (OPERATIONS, SERVED)}
    # What stands at the top takes long as well.
    items.sort(key=lambda item: (ranks[item.path], len(item.path.parts)))
    _send_functions_by_value(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Give each process whole files, unless the command says how tests are to be shared."""
    if config.option.dist != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid, config)

    # Else it would put files with many tests first.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def scope_of(nodeid: str, config: pytest.Config) -> str:
    """Return what one process does as a whole: a file, all operations, or all that a server is for.

    A server of Prefect's takes six seconds of a core to start, and only one process of quick tests
    starts it. The slow ones that ask for it are too many for one process.
    """
    file = nodeid.partition("::")[0]
    in_operations = nodeid.startswith(OPERATIONS)
    if "not slow" in config.option.markexpr:
        return SERVED if in_operations or _asks_for_server(config.rootpath / file) else file
    return OPERATIONS if in_operations else file


@functools.cache
def _asks_for_server(file: Path) -> bool:
    """Whether a test file names the fixture: the process that shares tests out collects none.

    One that lies outside of the repository has another name in it.
    """
    return file.exists() and re.search(r"\bprefect_server\b", file.read_text()) is not None


def _send_functions_by_value(items: list[pytest.Item]) -> None:
    """Spare child processes the imports of test files, which nearly all import Prefect: 3 s each.

    Functions of a module that is no test file, such as `context_functions.py`, still travel by
    their names.
    """
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        cloudpickle.register_pickle_by_value(module)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is there by now out of each search for garbage."""
    session.config.stash[COLLECTED_WITH] = frozenset(sys.modules)
    gc.freeze()
    # What tests import later is not frozen, and 700 objects are soon made: with Python's own limits
    # an eighth of the time of a test process goes by in looking for garbage.
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[object]:
    """Call a test without the variable that names it: with others there are other child servers."""
    name = os.environ.pop("PYTEST_CURRENT_TEST")
    n_known = _n_modules_read()
    try:
        return (yield)
    finally:
        os.environ["PYTEST_CURRENT_TEST"] = name
        # Code in a module whose import calls pytest reaches all that is loaded: 20 s.
        n_read = _n_modules_read() - n_known
        if n_read > MOST_MODULES and not pyfuncitem.get_closest_marker("slow"):
            pytest.fail(f"A fingerprint read {n_read} modules: put its code into one of its own.")


def _n_modules_read() -> int:
    """Return how many modules fingerprints have read in this process."""
    modules = sys.modules.get("partwise.fingerprints.user_modules")
    return modules._text_of.cache_info().currsize if modules is not None else 0


def pytest_unconfigure() -> None:
    SERVERS.close()
    shutil.rmtree(TEMP_DIR, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def captured_tests_stay_captured() -> None:
    """Have nobody close the file in which pytest captures what tests print.

    TensorFlow's logging closes what stood for stderr when it was imported, as soon as another
    library sets up logging in a test that uses `capsys`. Each later test would be an error.
    """
    sys.stderr.close = lambda: None  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def no_process_outlives_the_tests() -> Iterator[None]:
    """Fail the session when it leaves a process behind, wherever its parent went."""
    yield
    SERVERS.close()
    if (children := sys.modules.get("partwise.engine.worker.child")) is not None:
        # They wait for the next child of this process, and would end with it.
        children.close_children()
    if (warm := sys.modules.get("partwise.processes.warm_server")) is not None:
        warm.SERVERS.close()
    if (machine := sys.modules.get("partwise.processes.machine_server")) is not None:
        machine.MACHINE_SERVERS.close()
    deadline = time.monotonic() + LEFT_S
    while left := _marked_processes():
        if time.monotonic() > deadline:
            pytest.fail(f"processes outlive the tests: {left}")
        time.sleep(0.1)


def _marked_processes() -> list[str]:
    mark = os.environ[SESSION_MARK]
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        # Python's own helpers end with the interpreter that started them.
        if process.pid == os.getpid() or "resource_tracker" in command or "forkserver" in command:
            continue
        try:
            if process.environ().get(SESSION_MARK) == mark:
                found.append(f"{process.pid} {command}")
        except psutil.Error:
            continue
    return found


@contextmanager
def _process(name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with (TEMP_DIR / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_answer(process: subprocess.Popen[bytes], name: str, url: str) -> None:
    deadline = time.monotonic() + SERVER_START_TIMEOUT_S
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            log = (TEMP_DIR / f"{name}.log").read_text()
            pytest.fail(f"no answer at {url} from {name}:\n{log}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@functools.cache
def _start_prefect() -> subprocess.Popen[bytes]:
    prefect_database.copy_to(Path(os.environ["PREFECT_HOME"]))
    command = ["prefect", "server", "start", "--no-ui", "--host", "127.0.0.1"]
    return SERVERS.enter_context(_process("prefect", [*command, "--port", str(PREFECT_PORT)]))


@pytest.fixture(scope="session")
def prefect_server() -> str:
    """The API URL of a real Prefect server, which PREFECT_API_URL names to those that ask for it.

    The runs of other tests need none: they are called directly, as by whoever names no server.
    """
    _await_answer(_start_prefect(), "prefect", f"{PREFECT_URL}/health")
    if "prefect.settings" in sys.modules:
        PREFECT.name(PREFECT_URL)
    prefect_database.keep(Path(os.environ["PREFECT_HOME"]))
    return PREFECT_URL


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Name Prefect's server to a test that asks for it, and to what it starts, and to no other."""
    is_asked = "prefect_server" in getattr(item, "fixturenames", ())
    os.environ.pop("PREFECT_API_URL", None)
    if is_asked:
        # Who imports Prefect during the test finds it here.
        os.environ["PREFECT_API_URL"] = PREFECT_URL
    if "prefect.settings" in sys.modules:
        PREFECT.name(PREFECT_URL if is_asked else None)


class _Prefect:
    """Prefect's settings, as they are in tests; to change them takes as long as many a test."""

    def __init__(self) -> None:
        self._named: list[str | None] = []
        self._entered = ExitStack()

    def name(self, url: str | None) -> None:
        """Have Prefect know the server of this URL; None: none."""
        # Of one that nobody has begun, a flow that a test runs in a thread would hear nothing.
        of_threads = PREFECT_URL if _start_prefect.cache_info().currsize else None
        if self._named == [url, of_threads]:
            return
        from prefect import settings
        from prefect.context import GLOBAL_SETTINGS_CONTEXT

        self._named = [url, of_threads]
        self._entered.close()
        # All threads but this one know these settings only: those of Prefect's own, too, which send
        # what a test leaves to them.
        everywhere = GLOBAL_SETTINGS_CONTEXT.settings
        everywhere.api = everywhere.api.model_copy(update={"url": of_threads})
        updates: dict[Any, Any] = {
            settings.PREFECT_API_URL: url,
            # A flow run that sends heartbeats waits for a thread that wakes once a second.
            settings.PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        }
        self._entered.enter_context(settings.temporary_settings(updates))


PREFECT = _Prefect()


@pytest.fixture(scope="session")
def s3_endpoint_url() -> str:
    """The endpoint of an S3 server on this machine; its keys are in the environment."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = SERVERS.enter_context(_process("moto", command))
    _await_answer(process, "moto", f"{url}/moto-api/data.json")
    return url


@pytest.fixture
def s3_store_url(s3_endpoint_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a fresh bucket, on the endpoint that the environment names for this test."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint_url)
    bucket = f"bucket-{uuid.uuid4().hex}"
    client = boto3.client("s3")
    client.create_bucket(Bucket=bucket)
    client.close()
    return f"s3://{bucket}"


@pytest.fixture(scope="session")
def azure(azurite: str) -> "Iterator[str]":
    """The connection string of a server of Azure's blob storage with one container."""
    from tests.azure_server import azure_server

    with azure_server(azurite) as connection:
        yield connection


@pytest.fixture(scope="session")
def postgres_server(initdb: str) -> "Iterator[Postgres]":
    """A real PostgreSQL, which writes down all statements that it is sent."""
    from tests.sql_server import postgres

    with postgres(initdb, log_statement="all", log_min_messages="log") as server:
        yield server


@pytest.fixture(scope="session")
def dask_client():
    """A client of two workers, each a process with one thread, for the whole session."""
    from tests.plain_cluster import plain_cluster

    # Tests take turns with ten sets of libraries. A server that has loaded one takes a second of a
    # core, and was asked for once more as often as not when there were three of them.
    more = "from partwise.processes import warm_server; warm_server.MOST_SERVERS = 8"
    with plain_cluster(2, more) as client, pytest.MonkeyPatch.context() as patch:
        # Idle workers have their turns by this number, so that of two shards, one after the other,
        # each would have its libraries loaded by another server.
        scheduler = type(client.cluster.scheduler)
        patch.setattr(scheduler, "n_tasks", property(lambda _: 0, lambda *_: None))
        yield client


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> "Store":
    """An empty store, once in a directory that does not exist yet and once in a bucket."""
    from partwise.store.store import Store

    if request.param == "local":
        return Store.parse(tmp_path / "not yet" / "there")
    store: Store = request.getfixturevalue("s3_store")
    return store


@pytest.fixture(scope="session")
def s3_bucket(s3_endpoint_url: str) -> str:
    """A bucket for the session: a client takes longer to build than most tests take."""
    import boto3

    bucket = f"bucket-{uuid.uuid4().hex}"
    client = boto3.client("s3", endpoint_url=s3_endpoint_url)
    client.create_bucket(Bucket=bucket)
    client.close()
    return bucket


@pytest.fixture
def s3_store(s3_bucket: str, s3_endpoint_url: str) -> "Store":
    """An empty store in the bucket."""
    from partwise.store.store import Store

    return Store.parse(f"s3://{s3_bucket}/{uuid.uuid4().hex}/x", endpoint_url=s3_endpoint_url)


@pytest.fixture
def local_store(tmp_path: Path) -> "Store":
    """An empty store in a folder."""
    from partwise.store.store import Store

    return Store.parse(tmp_path / "store")


@pytest.fixture
def start_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python with a script and arguments; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run_python(start_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., Any]:
    """Run a script to its end and return the JSON that it printed."""

    def run(script: str, *arguments: Any, **environment: str) -> Any:
        process = start_python(script, *arguments, **environment)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return json.loads(output)

    return run


@pytest.fixture
def configured_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A signing key that this process was given, and a folder of state where nothing was seen."""
    from partwise.store import signing
    from tests.signing_key import CONFIGURED_KEY

    monkeypatch.setenv(signing.STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(signing, "_of_blocks", {})
    monkeypatch.setenv(signing.KEYS_VARIABLE, CONFIGURED_KEY)
    return CONFIGURED_KEY


@pytest.fixture
def make_run(tmp_path: Path) -> "RunMaker":
    """A maker of the run "run" in an empty local store."""
    from partwise.store.store import Store
    from tests.run_maker import RunMaker

    return RunMaker(Store.parse(tmp_path / "store"))


@pytest.fixture(scope="session")
def make_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], "RunMaker"]:
    """Give a maker of the run "run" in an empty store, as often as it is called."""
    from partwise.store.store import Store
    from tests.run_maker import RunMaker

    return lambda: RunMaker(Store.parse(tmp_path_factory.mktemp("store")))
