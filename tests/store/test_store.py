import dataclasses
import errno
import os
import pickle
import re
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsspec.registry import _registry
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import InputError, StoreError
from partwise.store.credentials import set_credentials
from partwise.store.store import Store
from partwise.testing import StoreContract


class TestBothKinds(StoreContract):
    """What holds for a directory and for a bucket alike."""

    def test_check_writable_makes_no_folder(self, store):
        store.check_writable()
        if store.protocol == "file":
            assert not Path(store.url).parent.exists()

    def test_its_url_and_endpoint_say_all(self, store):
        assert Store.parse(store.url, endpoint_url=store.endpoint_url) == store

    def test_survives_a_fork(self, store, run_python):
        script = """
import json, os, sys
from partwise.store.store import Store
store = Store.parse(sys.argv[1], endpoint_url=sys.argv[2] or None)
store.write("parent", b"x")
child = os.fork()
if not child:
    store.write("child", store.read("parent"))
    os._exit(0)
_, status = os.waitpid(child, 0)
print(json.dumps([status, store.list("")]))
"""
        assert run_python(script, store.url, store.endpoint_url or "") == [0, ["child", "parent"]]


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            *["", "/", "/etc/passwd", "../x", "a/../x", "a/..", ".", "a//b", "a/", "./a", "a\\b"],
            *["a\0", "a\nb", "a\x1b[1m", "a*", "a?b", "a[1]", "a#b"],
            pytest.param("x" * 256, id="long name"),
            pytest.param("€" * 86, id="258 bytes"),
            pytest.param("/".join("x" * 500), id="long path"),
        ],
    )
    def test_refuses_paths_that_lead_elsewhere(self, local_store, path):
        store = local_store
        for call in (store.read, store.size, store.exists, store.delete, store.delete_folder):
            with pytest.raises(InputError, match="path inside an artifact store"):
                call(path)
        for write in (store.write, store.create):
            with pytest.raises(InputError, match="path inside an artifact store"):
                write(path, b"x")
        with pytest.raises(InputError, match="path inside an artifact store"):
            local_store.read_range(path, 0, 1)
        assert local_store.list("") == []

    @pytest.mark.parametrize("prefix", ["..", "../", "/", "/etc", "a/../", "a//b", "a*"])
    def test_refuses_prefixes_that_lead_elsewhere(self, local_store, prefix):
        with pytest.raises(InputError, match="path inside an artifact store"):
            local_store.list(prefix)


class TestLocal:
    def test_knows_where_objects_lie(self, local_store):
        local_store.write("a/b", b"x")
        assert Path(local_store.local_path("a/b")).read_bytes() == b"x"
        assert local_store.local_path("c") == f"{local_store.url}/c"
        assert Store.parse("s3://bucket").local_path("a/b") is None

    def test_respects_the_umask(self, local_store):
        local_store.write("a/b", b"x")
        umask = os.umask(0)
        os.umask(umask)
        mode = os.stat(local_store.local_path("a/b")).st_mode
        assert stat.S_IMODE(mode) == 0o666 & ~umask

    @pytest.mark.parametrize("verb", ["write", "create"])
    def test_killed_at_any_step_of_a_commit_leaves_the_old_or_the_new(
        self, local_store, run_python, verb
    ):
        scenarios = run_python(CRASH_SCRIPT, local_store.url, verb)
        for steps, states in scenarios:
            assert states == sorted(states, reverse=True)  # once there, it stays
            assert set(states) == {"old", "new"}
            assert {"open", "write", "write half", "fsync"} <= set(steps)
            assert {"write": "replace", "create": "link"}[verb] in steps
        assert "mkdir" in scenarios[0][0]
        assert sum(len(steps) for steps, _ in scenarios) >= {"write": 28, "create": 18}[verb]

    @pytest.mark.parametrize(("verb", "publish"), [("write", "replace"), ("create", "link")])
    def test_is_on_disk_before_it_is_visible_and_named_before_it_is_done(
        self, local_store, monkeypatch, verb, publish
    ):
        steps = []
        for name, real in [
            (name, getattr(os, name)) for name in ("write", "fsync", "mkdir", publish)
        ]:

            def record(first, *rest, real=real, name=name, **options):
                # The heartbeat of a run that another test has left open.
                if threading.current_thread() is not threading.main_thread():
                    return real(first, *rest, **options)
                place = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
                steps.append((name, ".tmp-" in place or os.path.relpath(place, local_store.url)))
                return real(first, *rest, **options)

            monkeypatch.setattr(os, name, record)
        getattr(local_store, verb)("a/b/c", b"x")
        assert steps == [
            ("mkdir", "."),
            ("fsync", ".."),
            ("mkdir", "a"),
            ("fsync", "."),
            ("mkdir", "a/b"),
            ("fsync", "a"),
            ("write", True),
            ("fsync", True),
            (publish, True),
            ("fsync", "a/b"),
        ]

    def test_hides_and_deletes_what_a_killed_writer_left(self, local_store):
        local_store.write("a/b", b"x")
        folder = Path(local_store.url, "a")
        (folder / ".tmp-0123456789abcdef").write_bytes(b"half")
        assert local_store.list("") == ["a/b"]
        assert local_store.list_folder("a") == ["b"]
        local_store.delete_folder("a")
        assert not folder.exists()

    def test_creates_only_once_without_hard_links(self, local_store, monkeypatch):
        def link(*arguments, **options):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
        local_store.check_writable()
        local_store.create("claim", b"mine")
        with pytest.raises(FileExistsError, match="already has an object"):
            local_store.create("claim", b"hers")
        assert local_store.read("claim") == b"mine"
        assert os.listdir(local_store.url) == ["claim"]

    def test_refuses_a_file_system_that_cannot_create_exclusively(self, local_store, monkeypatch):
        def link(*arguments, **options):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(os, "link", link)
        monkeypatch.setattr("ctypes.CDLL", lambda *arguments, **options: object())
        with pytest.raises(StoreError, match="can create no file exclusively; choose a directory"):
            local_store.check_writable()

    def test_believes_a_link_whose_answer_was_lost(self, local_store, monkeypatch):
        real = os.link

        def link(source, target, **options):
            real(source, target, **options)
            raise FileExistsError(errno.EEXIST, "File exists")

        monkeypatch.setattr(os, "link", link)
        local_store.create("claim", b"mine")
        assert local_store.read("claim") == b"mine"

    def test_does_not_follow_links_inside_the_store(self, local_store, tmp_path):
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "secret").write_bytes(b"secret")
        local_store.write("a/b", b"x")
        os.symlink(tmp_path / "outside", Path(local_store.url, "folder"))
        os.symlink(tmp_path / "outside" / "secret", Path(local_store.url, "a", "file"))
        for path in ("folder/secret", "a/file"):
            with pytest.raises(StoreError, match="symbolic link"):
                local_store.read(path)
        for act in (local_store.delete_folder, local_store.list_folder):
            with pytest.raises(StoreError, match="symbolic link"):
                act("folder")
        with pytest.raises(StoreError, match="symbolic link"):
            local_store.write("folder/new", b"x")
        local_store.write("a/file", b"replaces the link, not its target")
        assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"
        assert local_store.list("") == ["a/b", "a/file"]

    def test_may_itself_be_a_link(self, tmp_path):
        (tmp_path / "real").mkdir()
        os.symlink(tmp_path / "real", tmp_path / "link")
        Store.parse(tmp_path / "link").write("a/b", b"x")
        assert (tmp_path / "real" / "a" / "b").read_bytes() == b"x"

    def test_writers_and_deleters_of_a_folder_do_not_disturb_each_other(self, local_store):
        def write(number):
            for _ in range(50):
                local_store.write(f"folder/{number}", b"x")
                local_store.delete(f"folder/{number}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert local_store.list("") == []

    def test_deleting_a_folder_outlasts_a_writer(self, local_store):
        stop = threading.Event()

        def write():
            while not stop.is_set():
                local_store.write("run/heartbeat", b"x")

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for number in range(30):
                    local_store.write(f"run/{number}/object", b"x")
                    local_store.delete_folder("run")
                    assert not local_store.exists(f"run/{number}/object")
            finally:
                stop.set()
            writing.result()


CRASH_SCRIPT = """
import json, os, signal, sys
from partwise.store.store import Store

root, verb = sys.argv[1:]
OLD, NEW = b"old" * 1000, b"new" * 2000
NAMES = ["mkdir", "open", "write", "fsync", "close", "link", "replace", "unlink", "rmdir"]
write = os.write

def commit_and_die_at(step, store, report, half):
    done = 0
    def intercept(name, real):
        def call(*arguments, **options):
            nonlocal done
            done += 1
            if done == step:
                write(report, name.encode())
                if half:
                    write(arguments[0], bytes(arguments[1])[:1000])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return call
    for name in NAMES:
        setattr(os, name, intercept(name, getattr(os, name)))
    getattr(store, verb)("a/b", NEW)
    os._exit(0)

def state_after_death_at(step, exists, half=False):
    store = Store.parse(f"{root}/{exists}{half}{step}")
    if exists:
        store.write("a/b", OLD)
    readable, report = os.pipe()
    child = os.fork()
    if not child:
        commit_and_die_at(step, store, report, half)
    os.close(report)
    _, status = os.waitpid(child, 0)
    name = os.read(readable, 100).decode()
    os.close(readable)
    content = store.read("a/b") if store.exists("a/b") else None
    assert content in (NEW, OLD if exists else None), (step, name)
    assert set(store.list("")) <= {"a/b"}, "an unfinished write is visible"
    getattr(store, verb)("a/b", NEW)  # the next process can do it again
    assert store.read("a/b") == NEW
    return name, "new" if content == NEW else "old", os.WIFSIGNALED(status)

scenarios = []
for exists in [False, True] if verb == "write" else [False]:
    steps, states = [], []
    for step in range(1, 100):
        name, state, died = state_after_death_at(step, exists)
        if not died:
            assert state == "new"
            break
        steps.append(name)
        states.append(state)
        if name == "write":
            _, state, _ = state_after_death_at(step, exists, half=True)
            steps.append("write half")
            states.append(state)
    scenarios.append((steps, states))
print(json.dumps(scenarios))
"""


class TestUnusable:
    """Each failure is one sentence that names the store."""

    def test_root_below_a_file(self, tmp_path):
        (tmp_path / "file").write_bytes(b"x")
        store = Store.parse(tmp_path / "file" / "store")
        with pytest.raises(StoreError, match="Not a directory; choose a path of which no part"):
            store.check_writable()
        assert store.list("") == []
        assert not store.exists("a")

    def test_no_permission(self, tmp_path, run_python):
        script = """
import json, os, sys
from partwise.errors import StoreError
from partwise.store.store import Store
if os.getuid() == 0:
    os.setuid(65534)
store = Store.parse(sys.argv[1])
messages = []
for act in (store.check_writable, lambda: store.write("a", b"x"), lambda: store.read("a")):
    try:
        act()
    except StoreError as error:
        messages.append(str(error))
print(json.dumps(messages))
"""
        root = tmp_path / "store"
        root.mkdir()
        root.chmod(0)
        messages = run_python(script, root)
        root.chmod(0o700)
        assert len(messages) == 3
        assert all("Permission denied; give this user the right" in text for text in messages)
        assert all(str(root) in text and "\n" not in text for text in messages)
        assert os.listdir(root) == []

    def test_full_disk_keeps_the_old_object(self, local_store, run_python):
        script = """
import json, resource, sys
from partwise.errors import StoreError
from partwise.store.store import Store
store = Store.parse(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    store.write("a", bytes(5000))
except StoreError as error:
    print(json.dumps(str(error)))
"""
        local_store.write("a", b"old")
        assert "Cannot write a in the artifact store" in run_python(script, local_store.url)
        assert local_store.read("a") == b"old"
        assert os.listdir(local_store.url) == ["a"]

    def test_no_space_says_what_to_do(self, local_store, monkeypatch):
        def write(*arguments):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(StoreError, match="No space left on device; free some space there"):
            local_store.create("a", b"x")

    def test_a_folder_in_the_place_of_an_object(self, local_store):
        local_store.write("a/b", b"x")
        with pytest.raises(StoreError, match="Cannot write a in"):
            local_store.write("a", b"x")
        with pytest.raises(StoreError, match="Cannot write a/b/c in"):
            local_store.write("a/b/c", b"x")
        assert local_store.list("") == ["a/b"]

    def test_missing_bucket(self, s3_endpoint_url):
        store = Store.parse("s3://no-such-bucket/x", endpoint_url=s3_endpoint_url)
        acts = [
            store.check_writable,
            *[lambda call=call: call("a") for call in (store.read, store.exists, store.list)],
            *[lambda call=call: call("a", b"x") for call in (store.write, store.create)],
        ]
        for act in acts:
            with pytest.raises(StoreError, match=r"no-such-bucket.*bucket does not exist"):
                act()

    def test_nobody_at_the_endpoint(self, monkeypatch):
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        store = Store.parse("s3://bucket", endpoint_url="http://127.0.0.1:9")
        with pytest.raises(StoreError, match="Cannot read a in the artifact store s3://bucket"):
            store.read("a")

    @pytest.mark.parametrize(("url", "package"), [("gs://b", "gcsfs"), ("az://c/x", "adlfs")])
    def test_client_not_installed(self, url, package, monkeypatch):
        monkeypatch.setitem(sys.modules, package, None)
        # Where another test has looked for it, fsspec remembers.
        monkeypatch.delitem(_registry, Store.parse(url).protocol, raising=False)
        store = Store.parse(url)
        with pytest.raises(StoreError, match=f"is not installed; install the package {package}"):
            store.read("a")


class TestUrls:
    @pytest.mark.parametrize(
        ("given_url", "url"),
        [
            ("/data/models", "/data/models"),
            ("/data/models/../x/", "/data/x"),
            ("file:///data/my%20models", "/data/my models"),
            ("file://localhost/data", "/data"),
            ("file:///data/a%23x%3F", "/data/a#x?"),
            ("/data/a#x?", "/data/a#x?"),
            ("FILE:///data", "/data"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("S3://bucket/a/b/", "s3://bucket/a/b"),
            ("gcs://bucket/a", "gs://bucket/a"),
            ("gs://bucket/a", "gs://bucket/a"),
            ("az://container/a", "abfs://container/a"),
            ("abfs://container@account.dfs.core.windows.net/a",) * 2,
        ],
    )
    def test_takes(self, given_url, url):
        assert Store.parse(given_url).url == url
        assert Store.parse(url).url == url

    def test_makes_local_paths_absolute(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", "/home/someone")
        assert Store.parse("models").url == str(tmp_path / "models")
        assert Store.parse(Path("models")).url == str(tmp_path / "models")
        assert Store.parse("~/models").url == "/home/someone/models"
        sent = pickle.dumps(Store.parse("models"))
        monkeypatch.chdir("/")
        assert pickle.loads(sent).url == str(tmp_path / "models")

    @pytest.mark.parametrize(
        ("url", "match"),
        [
            ("", "is empty"),
            ("  ", "is empty"),
            ("http://169.254.169.254/latest", "of an unknown kind"),
            ("https://host/x", "of an unknown kind"),
            ("ftp://host/x", "of an unknown kind"),
            ("memory://x", "of an unknown kind"),
            ("ssh://host/x", "of an unknown kind"),
            ("github://owner:repo@main/x", "of an unknown kind"),
            ("s3a://bucket/x", "of an unknown kind"),
            ("s3:/bucket/x", "of an unknown kind"),
            ("simplecache::s3://bucket/x", "chain of URLs"),
            ("zip://x::s3://bucket/x.zip", "chain of URLs"),
            ("reference::/etc/passwd", "chain of URLs"),
            ("s3://", "not an address of the form"),
            ("s3:///key", "not an address of the form"),
            ("s3://bucket/../other", "not an address of the form"),
            ("s3://bucket//x", "not an address of the form"),
            ("s3://bucket/x?versionId=1", "not an address of the form"),
            ("s3://bucket/x#y", "not an address of the form"),
            ("s3://bucket/\n", "not an address of the form"),
            ("file://otherhost/x", "not on this machine"),
            ("file://../x", "not on this machine"),
            ("file:///data/a#x", "has a '#', which ends the path of a URL; write %23"),
            ("file:///data/a?x", "has a '[?]', which ends the path of a URL; write %3F"),
            ("/data/\0", "control character"),
            ("data\x1b[2J", "control character"),
        ],
    )
    def test_refuses(self, url, match):
        for make in (Store.parse, lambda url: Store(url=url)):
            with pytest.raises(InputError, match=match) as caught:
                make(url)
            assert not re.search(r"[\x00-\x1f]", str(caught.value))

    @pytest.mark.parametrize(
        "url",
        ["s3://AKIAKEY:hunter2@bucket/x", "s3://hunter2@bucket", "abfs://user:hunter2@account/x"],
    )
    def test_refuses_credentials_without_repeating_them(self, url):
        with pytest.raises(InputError, match="credentials in its URL") as caught:
            Store.parse(url)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "endpoint", ["127.0.0.1:9000", "ftp://host", "https://user:hunter2@host", "http://"]
    )
    def test_refuses_endpoints(self, endpoint):
        with pytest.raises(
            InputError, match="is not an address of the form https://host:port"
        ) as got:
            Store.parse("s3://bucket", endpoint_url=endpoint)
        assert "hunter2" not in str(got.value)

    @given(st.text(min_size=1))
    def test_a_url_is_normal_or_refused(self, url):
        try:
            store = Store.parse(url)
        except InputError:
            return
        assert Store.parse(store.url) == store


class TestCredentials:
    def test_stay_in_the_process(self, s3_store):
        store = s3_store
        set_credentials(store.url, {"key": "AKIACANARY", "secret": "canary-secret"})
        store.write("a", b"x")
        with pytest.raises(FileNotFoundError, match="has no object") as caught:
            store.read("b")
        for text in (repr(store), str(caught.value), pickle.dumps(store).decode("latin-1")):
            assert "canary" not in text.lower()

    def test_are_used_from_then_on(self, s3_store, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        store = dataclasses.replace(s3_store, region="eu-north-1")  # a client of its own
        with pytest.raises(StoreError, match="Unable to locate credentials"):
            store.write("a", b"x")
        set_credentials(store.url, {"key": "k", "secret": "s"})
        store.write("a", b"x")
        assert store.read("a") == b"x"
