"""No secret is repeated: in messages, in logs, or in what Prefect stores."""

import json
import os
import random
import string
import subprocess
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise import redaction
from partwise.calls import reading
from partwise.engine import compare_work
from partwise.engine.failures import MESSAGE_CHARS, describe_error, storable_start
from partwise.engine.options import ExecutionOptions
from partwise.engine.worker import packages
from partwise.environments import uv
from partwise.errors import EnvironmentBuildError, InputError, SourceError, StoreError
from partwise.flows import train_models
from partwise.flows.cli.output import why_unreadable
from partwise.gangs.rank_process import RankProcess
from partwise.redaction import remember, without_known_secrets, without_secrets
from partwise.scripts.mpi import _Daemon
from partwise.sources.frames import streams
from partwise.sources.opening import open_source
from partwise.store.store import Store
from tests.secret_canaries import SENTENCES, try_canaries

NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1)
PASSWORDS = st.text(
    st.characters(categories=("L", "N", "P", "S"), exclude_characters="/?#"), min_size=1
)
VALUES = st.text(string.ascii_letters + string.digits + "%+/=_-", min_size=1)
WORDS = st.sampled_from(
    ["password", "passwd", "PWD", "client_secret", "token", "X-Amz-Security-Token", "api_key",
     "sig", "X-Amz-Signature"]
)  # fmt: skip


@given(user=NAMES | st.just(""), password=PASSWORDS, host=NAMES, word=WORDS, value=VALUES)
def test_a_password_is_masked_wherever_the_url_stands(user, password, host, word, value) -> None:
    text = "no answer from 'postgresql://{}:{}@{}:5432/db?ssl=on&{}={}&a=b', and http://x:1/y@z"
    told = without_secrets(text.format(user, password, host, word, value))
    assert told == text.format(user, "***", host, word, "***")
    assert without_secrets(told) == told


@pytest.mark.parametrize("password", ["pa/ss", "p@s@s", "two words", "q?a", "n#1"])
def test_a_password_that_should_have_been_quoted_is_masked(password) -> None:
    assert without_secrets(f"sftp://me:{password}@host/x") == "sftp://me:***@host/x"


@given(path=VALUES, port=st.integers(1, 65535))
def test_what_holds_no_secret_is_left_alone(path, port) -> None:
    for text in (
        f"https://a:{port}/{path}@y",
        f"refused by 'https://a:{port}', ask x@y",
        f"s3://bucket/{path}@2",
        f"dataset://{port}@2",
        f"http://[::1]:{port}/a@b",
        f"https://me@host/?page={port}",
        f"mail me:{port}@host",
        f"access_token_column={path}, encryption_key_name: {path}",
        f"['--auth-token-url', '{path}'], partition_by=('token', '{path}')",
    ):
        assert without_secrets(text) == text


SECRETS = st.text(string.ascii_letters + string.digits, min_size=12, max_size=40)
"""As people generate them: none is by chance a part of the sentence around it."""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("UID=me;PWD={hun;ter}}2};Encrypt=yes", "UID=me;PWD=***;Encrypt=yes"),
        ('{"a": "{\\"password\\": \\"x\\\\\\"y z\\", \\"b\\": 1}"}',
         '{"a": "{\\"password\\": ***, \\"b\\": 1}"}'),
        (json.dumps(json.dumps({"token": "a b", "c": 1})), '"{\\"token\\": ***, \\"c\\": 1}"'),
        ("password=abc&defghi, db", "password=***, db"),
        ("['gh', '--token', 'x y', '-v']", "['gh', '--token', ***, '-v']"),
        ("https://x/in?db_password=a,b&page=2", "https://x/in?db_password=***&page=2"),
        ("https://x/?password=&page=2&token=ab&c=d", "https://x/?password=&page=2&token=***&c=d"),
        (r"password='it\'s hunter2', port=1", "password=***, port=1"),
        (r'secret="abc\", port=1', "secret=***, port=1"),
        ("credentials={'kind': 'none'}", "credentials={'kind': 'none'}"),
        (r'{\"password\": \"\", \"b\": \"c\"}', r'{\"password\": \"\", \"b\": \"c\"}'),
    ],
)  # fmt: skip
def test_all_of_a_value_is_masked_and_nothing_after_it(text, told) -> None:
    assert without_secrets(text) == told
    assert without_secrets(told) == told


@given(st.text(" \n=:'\"?&;/@é*", max_size=20), st.sampled_from(SENTENCES), SECRETS)
def test_a_secret_is_masked_by_its_name_or_its_form(before, sentence, secret) -> None:
    text = f"{before} {sentence.format(secret)}"
    told = without_secrets(text)
    assert secret not in told
    assert without_secrets(told) == told
    assert secret not in str(SourceError(text))
    assert secret not in str(StoreError(text))


PLAIN = string.ascii_letters + string.digits
SIGNS = PLAIN + "!$%&*+-./:<=>?@^_~|#"
ANY = SIGNS + " ,;'\"\\\\(){}[]"
SECRET_NAMES = (
    *("password", "db_password", "DB-PASSWORD", "dbPassword", "passwd", "PWD", "passphrase"),
    *("client_secret", "clientSecret", "aws_secret_access_key", "AccountKey", "x-api-key"),
    *("access_token", "refresh-token", "sessionToken", "AWS_SESSION_TOKEN", "credential"),
    *("private_key", "signing_keys", "encryption_key", "PARTWISE_SIGNING_KEYS", "SharedAccessKey"),
)
OTHER_NAMES = ("region", "max_tokens", "key_columns", "partition_by", "monkey", "author", "salt")
WRITERS: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "a call": (ANY, lambda n, s: f"connect(host='db', {n.replace('-', '_')}={s!r}, port=1)"),
    "a dict": (ANY, lambda n, s: repr({"host": "db", n: s, "port": 1})),
    "bytes": (ANY, lambda n, s: repr({b"host": b"db", n.encode(): s.encode(), b"port": 1})),
    "JSON": (ANY, lambda n, s: json.dumps({"host": "db", n: s, "port": 1})),
    "long JSON": (ANY, lambda n, s: json.dumps({"host": "db", n: s, "port": 1}, indent=2)),
    "JSON in JSON": (
        ANY,
        lambda n, s: json.dumps({"host": json.dumps({n: s, "port": 1})}),
    ),
    "pairs": (ANY, lambda n, s: repr([("host", "db"), (n, s), ("port", 1)])),
    "a command": (ANY, lambda n, s: repr(["run", "host", f"--{n}", s, "--port", "1"])),
    "an option": (PLAIN, lambda n, s: f"run host --{n}={s} --port 1"),
    "YAML": (PLAIN, lambda n, s: f"host: db\n{n}: {s}\nport: 1"),
    "quoted YAML": (SIGNS, lambda n, s: f"host: db\n{n}: '{s}'\nport: 1"),
    "TOML": (PLAIN, lambda n, s: f'host = "db"\n{n} = "{s}"\nport = 1'),
    "INI": (PLAIN, lambda n, s: f"host = db\n{n} = {s}\nport = 1"),
    "a shell": (PLAIN, lambda n, s: f"export host=db {n}={s} port=1"),
    "ADO": (PLAIN, lambda n, s: f"host=db;{n}={s};port=1"),
    "a query": (PLAIN, lambda n, s: f"https://host/x?a=b&{n}={s}&port=1"),
}
"""How programs write a value with its name, and which signs it may have there."""
HEADERS: tuple[Callable[[str], str], ...] = (
    lambda s: f"Authorization: {s}",
    lambda s: repr({"Authorization": s}),
    lambda s: json.dumps({"proxy-authorization": s}),
    lambda s: json.dumps(json.dumps({"authorization": s})),
    lambda s: repr([(b"authorization", s.encode())]),
)


def test_a_secret_is_masked_by_its_name_however_it_is_written() -> None:
    chance = random.Random(7)
    for way, (signs, written) in WRITERS.items():
        for _ in range(150):
            # One that has no part which stands in the text by chance.
            core = "".join(chance.choices(PLAIN, k=12))
            around = ["".join(chance.choices(signs, k=chance.randint(0, 6))) for _ in range(2)]
            secret = f"s{around[0]}{core}{around[1]}s"
            text = written(chance.choice(SECRET_NAMES), secret)
            told = without_secrets(text)
            assert core not in told, (way, text, told)
            assert "host" in told, (way, text, told)
            assert "port" in told, (way, text, told)
            assert without_secrets(told) == told, (way, text)
            # In a query, whatever is called a key is masked.
            if way != "a query":
                other = written(chance.choice(OTHER_NAMES), core)
                assert without_secrets(other) == other, way


@given(SECRETS, st.sampled_from(HEADERS), st.sampled_from(["Basic", "Bearer", "token"]))
def test_a_header_that_authorizes_is_masked(secret, header, scheme) -> None:
    text = header(f"{scheme} {secret}==")
    told = without_secrets(text)
    assert secret not in told
    assert without_secrets(told) == told


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: x",
        "invalid_token: The token expired",
        "its columns are ['token', 'price', 'password'], and not 'user'",
        "partition_by=('password', 'store', 'day')",
        "eos_token: </s>",
        "max_new_tokens: 512",
        "PARTWISE_SIGNING_KEYS, or the store's block",
        "['--max-tokens', '512', '--tokens', 'a']",
    ],
)
def test_names_of_secrets_in_sentences_stay(text) -> None:
    assert without_secrets(text) == text


@given(SECRETS, st.text(max_size=20), st.text(max_size=20))
def test_a_value_that_is_known_to_be_secret_is_masked_without_any_name(secret, before, after):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_DB_PASSWORD", secret)
        for told in (
            without_known_secrets(f"{before}{secret}{after}"),
            describe_error(ValueError(f"{before} {secret} {after}")).message,
            describe_error(KeyError(secret)).traceback,
            str(StoreError(f"no answer: {secret}")),
        ):
            assert secret not in told


def test_a_secret_is_known_from_when_it_is_there_until_it_is_gone(monkeypatch) -> None:
    text = "the key is abcdefgh-1, or ijklmnop-2, or qrstuvwx-3"
    assert without_known_secrets(text) == text
    monkeypatch.setenv("MY_TOKEN", "abcdefgh-1")
    assert without_known_secrets(text) == "the key is ***, or ijklmnop-2, or qrstuvwx-3"
    # The same number of variables, and below os.environ.
    os.environ._data[b"MY_TOKEN"] = b"ijklmnop-2"
    assert without_known_secrets(text) == "the key is abcdefgh-1, or ***, or qrstuvwx-3"
    monkeypatch.setattr(redaction, "_remembered", {*redaction._remembered})
    remember(["qrstuvwx-3"])
    assert without_known_secrets(text) == "the key is abcdefgh-1, or ***, or ***"
    # A function may put a dict in its place.
    monkeypatch.setattr(os, "environ", {"PGPASSWORD": "abcdefgh-1"})
    assert without_known_secrets(text) == "the key is ***, or ijklmnop-2, or ***"
    os.environ["PGPASSWORD"] = "another one"
    assert without_known_secrets(text) == "the key is abcdefgh-1, or ijklmnop-2, or ***"


def test_a_secret_of_bytes_that_are_no_text_is_masked_as_others(monkeypatch) -> None:
    monkeypatch.setenv("SHOP_DB_PASSWORD", os.fsdecode(b"gr\xfc\xdfe-1234"))
    told = str(StoreError("no answer: https://shop/?p=gr%FC%DFe-1234 gr\udcfc\udcdfe-1234"))
    assert told == "no answer: https://shop/?p=*** ***"


def test_a_secret_across_the_cut_of_a_long_message_is_masked_too() -> None:
    for place in range(MESSAGE_CHARS - 60, MESSAGE_CHARS + 10):
        failure = describe_error(ValueError("x" * place + " password=hunter2hunter2 " + "y" * 5000))
        assert "hunter2" not in failure.message + failure.traceback


def _said_by_uv(text: str, patch: pytest.MonkeyPatch) -> str:
    ended = SimpleNamespace(returncode=1, stderr=text, stdout="")
    patch.setattr(subprocess, "run", lambda *args, **options: ended)
    with pytest.raises(uv.UvError) as caught:
        uv.run_uv([], uv.PackageSources(), "/")
    return str(caught.value)


def _said_of_an_environment(text: str, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(
        subprocess, "run", lambda *args, **options: SimpleNamespace(returncode=1, stderr=text)
    )
    built = SimpleNamespace(site_packages=f"/lib/python{packages.python_version()}/site-packages")
    with pytest.raises(EnvironmentBuildError) as caught:
        packages.try_environment(SimpleNamespace(name="mine"), built)
    return str(caught.value)


def _said_by_a_rank(text: str, patch: pytest.MonkeyPatch) -> str:
    log = SimpleNamespace(content=text.encode)
    rank = SimpleNamespace(ended_because="", exit_code=1, log=log, _stopped_s=0)
    return RankProcess.failure(rank, None).message


def _said_by_mpirun(text: str, patch: pytest.MonkeyPatch) -> str:
    copier = SimpleNamespace(join=lambda seconds: None)
    return _Daemon.tail(SimpleNamespace(_copier=copier, _tail=text.encode()))


def _said_of_a_wrong_option(text: str, patch: pytest.MonkeyPatch) -> str:
    with pytest.raises(InputError) as caught:
        ExecutionOptions(isolation=text)
    return str(caught.value)


@pytest.mark.parametrize(
    "say",
    [
        _said_by_uv,
        _said_of_an_environment,
        _said_by_a_rank,
        _said_by_mpirun,
        _said_of_a_wrong_option,
        lambda text, _: storable_start(text),
        lambda text, _: describe_error(ValueError(text)).message,
        lambda text, _: describe_error(ValueError(text)).traceback,
        lambda text, _: compare_work._in_words({"a": ValueError(text)}),
        lambda text, _: str(reading._unreadable(ValueError(text))),
        lambda text, _: str(streams._unreadable("frame", ValueError(text))),
        lambda text, _: Store.parse("/x")._sentence("read", "a", ValueError(text)),
        lambda text, _: why_unreadable(ValueError(text)),
    ],
    ids=["uv", "environment", "rank", "mpirun", "option", "reason", "error", "traceback",
         "comparison", "call", "frame", "store", "listing"],
)  # fmt: skip
def test_a_secret_is_masked_before_a_text_of_others_is_cut(say, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_DB_PASSWORD", "QXQXQXQXQXQX")
    for before in range(13):
        text = "y" * before + " QXQXQXQXQXQX" * 1_000
        with pytest.MonkeyPatch.context() as patch:
            said = say(text, patch)
        assert "***" in said
        assert "X" not in said


@pytest.mark.parametrize(
    "text",
    ["tokens=512, pad_token=0", "unexpected token: '}'", "the key: a", "max_tokens=4096",
     "secret_access_key is a row of asterisks", "the column 'password' is missing",
     "AWS_ACCESS_KEY_ID=AKIAEXAMPLE"],
)  # fmt: skip
def test_words_of_sentences_are_left_alone(text) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "piece",
    ["://a:", "://", "password=", "secret", "?token", "?key=a", "eyJ", "eyJaaaaaaaa.", "bearer ",
     "-----BEGIN PRIVATE KEY-----", "'", "a", "=", "token'", "?password", "pwd={", "pwd={}}",
     'secret="\\\\', r"pwd=\\'\\\\\\", "?a"],
)  # fmt: skip
def test_time_grows_no_faster_than_the_text(piece) -> None:
    # The steps of the patterns cannot be counted; 64 times as long would take 4,096 times as long.
    def least(chars: int) -> float:
        text = piece * (chars // len(piece))
        began = time.process_time()
        without_secrets(text)
        return time.process_time() - began

    short = max(min(least(8_000) for _ in range(5)), 1e-4)
    assert least(512_000) < 64 * 12 * short


def test_prefect_stores_no_password_of_a_list_or_mapping() -> None:
    uri = "postgresql://u:hunter2@h/db"
    stored = train_models.serialize_parameters(
        {"data": [uri, (uri,)], "params": {"deep": {"uri": uri}}, "store": f"{uri}?a=1"}
    )
    assert stored == {
        "data": ["postgresql://u:***@h/db", ["postgresql://u:***@h/db"]],
        "params": {"deep": {"uri": "postgresql://u:***@h/db"}},
        "store": "postgresql://u:***@h/db?a=1",
    }


@pytest.mark.parametrize("protocol", ["postgresql", "http", "sftp", "simplecache::http"])
def test_a_source_that_is_not_read_is_named_by_its_protocol_alone(protocol) -> None:
    shown = protocol.partition("::")[0]
    with pytest.raises(SourceError, match=f"protocol '{shown}' are not read: use a local") as told:
        open_source(f"{protocol}://u:hunter2@h/db")
    assert "hunter2" not in str(told.value)
    assert "Query(...) or query-block/NAME" in str(told.value)


def test_canaries_leak_by_no_way(tmp_path) -> None:
    tried, leaked = try_canaries(seed=7, number=200, folder=tmp_path)
    assert tried == 1400
    assert leaked == []
