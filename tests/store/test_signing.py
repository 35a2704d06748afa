"""Keys and signatures: what counts, and what is said of all else."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import InputError, SignatureError
from partwise.store import signing
from partwise.store.signing import (
    KEYS_VARIABLE,
    OWN_KEY_FILE,
    STATE_VARIABLE,
    check_signed,
    configured_keys,
    is_configured,
    own_key,
    parse_keys,
    seal,
    set_signing_keys,
    sign,
    signer,
    unseal,
    verify,
)
from partwise.store.store import Store

STORE = Store.parse("s3://models")
OTHER = Store.parse("s3://others")
OLD = f"2025:{'a1' * 32}"
NEW = f"2026:{'b2' * 32}"
DOCUMENT = json.dumps({"run_id": "nightly", "rows": 3}, indent=2).encode() + b"\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    monkeypatch.setattr(signing, "_of_blocks", {})
    return tmp_path / "state"


def test_the_first_key_signs_and_all_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    before = sign(b"content", "purpose", STORE)
    assert before is not None
    assert before.startswith("hmac-sha256:2025:")
    monkeypatch.setenv(KEYS_VARIABLE, f"{NEW}, {OLD}")
    assert [key.key_id for key in configured_keys(STORE)] == ["2026", "2025"]
    assert verify(b"content", "purpose", before, STORE) == "2025"
    assert verify(b"content", "purpose", sign(b"content", "purpose", STORE), STORE) == "2026"
    monkeypatch.setenv(KEYS_VARIABLE, NEW)
    assert verify(b"content", "purpose", before, STORE) is None


def test_beside_configured_keys_that_of_this_machine_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As whatever runs as this user can do, a function of a partition too.
    own = sign(b"content", "purpose", STORE)
    sealed = seal(DOCUMENT, "purpose", STORE)
    assert verify(b"content", "purpose", own, STORE) is not None
    assert signer(sealed, "purpose", STORE) is not None
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    assert verify(b"content", "purpose", own, STORE) is None
    assert signer(sealed, "purpose", STORE) is None
    with pytest.raises(
        SignatureError, match=r"key of one user on one machine, 'own-\w{8}', and this"
    ):
        check_signed(sealed, "purpose", "it", STORE)


def test_keys_of_a_block_come_after_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_signing_keys(STORE, OLD)
    assert is_configured(STORE)
    assert [key.key_id for key in configured_keys(STORE)] == ["2025"]
    monkeypatch.setenv(KEYS_VARIABLE, NEW)
    assert [key.key_id for key in configured_keys(STORE)] == ["2026", "2025"]


def test_keys_that_a_store_is_given_replace_those_before() -> None:
    for text in (OLD, f"2025:{'b2' * 32}"):
        set_signing_keys(STORE, text)
        assert [key.to_text() for key in configured_keys(STORE)] == [text]


def test_keys_of_a_block_are_those_of_its_store(tmp_path: Path) -> None:
    set_signing_keys(STORE, OLD)
    set_signing_keys(OTHER, NEW)
    sealed = seal(DOCUMENT, "x", OTHER)
    assert [signer(seal(DOCUMENT, "x", each), "x", each) for each in (STORE, OTHER)] == [
        "2025",
        "2026",
    ]
    assert signer(sealed, "x", STORE) is None
    with pytest.raises(SignatureError, match="'2026', which this process does not have for this"):
        check_signed(sealed, "x", "it", STORE)
    plain = Store.parse("s3://models/below")
    assert not is_configured(plain)
    # It is one store, by whichever link.
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")
    set_signing_keys(Store.parse(link), NEW)
    assert is_configured(Store.parse(tmp_path / "one"))
    # Nor is it without keys when that leads elsewhere.
    link.unlink()
    link.symlink_to("two")
    assert is_configured(Store.parse(link))
    assert not is_configured(Store.parse(tmp_path / "two"))


def test_keys_of_two_services_are_two_although_their_buckets_have_one_name() -> None:
    ours, theirs = (Store.parse("s3://team", endpoint_url=f"https://{n}.example") for n in "ab")
    set_signing_keys(ours, OLD)
    set_signing_keys(theirs, NEW)
    names = [[key.key_id for key in configured_keys(each)] for each in (ours, theirs)]
    assert names == [["2025"], ["2026"]]
    # A variable or a profile may name the service: then those of any count, rather than none.
    by_profile = Store.parse("s3://team")
    assert [key.key_id for key in configured_keys(by_profile)] == ["2025", "2026"]
    assert signer(seal(DOCUMENT, "x", theirs), "x", ours) is None
    # A third one has none, and is read as a store without.
    assert not is_configured(Store.parse("s3://team", endpoint_url="https://c.example"))
    set_signing_keys(by_profile, NEW)
    assert is_configured(Store.parse("s3://team", endpoint_url="https://c.example"))


@given(st.binary(max_size=40), st.text(max_size=10), st.binary(max_size=40), st.text(max_size=10))
def test_a_signature_is_of_one_content_and_one_purpose(
    content: bytes, purpose: str, other: bytes, other_purpose: str
) -> None:
    (key,) = parse_keys(OLD, "the test")
    same = (content, purpose) == (other, other_purpose)
    assert (key.digest(content, purpose) == key.digest(other, other_purpose)) is same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "Key 1 of PARTWISE_SIGNING_KEYS is not of the form ID:KEY"),
        (f"{OLD},x y:1", "Key 2 of PARTWISE_SIGNING_KEYS is not of the form"),
        ("a:b", "The key 'a' of PARTWISE_SIGNING_KEYS has 1 characters; it must be 64 hex"),
        (f"a:{'g' * 64}", "The key 'a' of PARTWISE_SIGNING_KEYS has 64 characters; it must be"),
        (f"{OLD},{OLD}", "The key ID '2025' stands twice in PARTWISE_SIGNING_KEYS"),
        (f"{'i' * 33}:{'a1' * 32}", "with an ID of up to 32 letters"),
    ],
)
def test_a_bad_key_is_refused_without_being_shown(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, text)
    for ask in (
        lambda: is_configured(STORE),
        lambda: sign(b"", "", STORE),
        lambda: check_signed(DOCUMENT, "x", "x", STORE),
    ):
        with pytest.raises(InputError, match=re.escape(message)) as refused:
            ask()
        assert not re.search("a1a1|gggg", str(refused.value))


def test_a_key_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    assert "a1" not in repr(configured_keys(STORE))


def test_ones_own_key_is_made_once_and_nobody_else_can_read_it(state: Path) -> None:
    assert own_key(make=False) is None
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: own_key(), range(32)))
    assert len(keys) == 1
    assert os.listdir(state) == [OWN_KEY_FILE]
    assert (state / OWN_KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    signature = sign(b"content", "purpose", STORE)
    assert signature is not None
    assert signature.startswith("hmac-sha256:own-")
    code = (
        "import sys; from partwise.store.signing import verify\n"
        "from partwise.store.store import Store\n"
        "print(verify(b'content', 'purpose', sys.argv[1], Store.parse('s3://models')))"
    )
    command = [sys.executable, "-c", code, signature]
    other = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert signature.split(":")[1] == other.stdout.strip()


def test_an_own_key_that_others_could_read_is_refused(state: Path) -> None:
    own_key()
    signing._read_key.cache_clear()
    (state / OWN_KEY_FILE).chmod(0o640)
    with pytest.raises(InputError, match="others may have read or written it; delete it"):
        sign(b"", "", STORE)


def test_without_a_folder_of_state_nothing_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "file" / "state"))
    assert sign(b"", "", STORE) is None
    assert unseal(seal(DOCUMENT, "x", STORE)) == DOCUMENT
    assert signer(seal(DOCUMENT, "x", STORE), "x", STORE) is None


def test_the_folder_of_state_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STATE_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert signing.state_folder() == tmp_path / "xdg" / "partwise"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert signing.state_folder() == tmp_path / ".local" / "state" / "partwise"


def test_a_sealed_document_is_json_and_every_flip_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    sealed = seal(DOCUMENT, "x", STORE)
    assert list(json.loads(sealed)) == ["run_id", "rows", "sha256", "signature"]
    assert unseal(sealed) == DOCUMENT
    assert signer(sealed, "x", STORE) == "2025"
    assert signer(sealed, "y", STORE) is None
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert signer(bytes(damaged), "x", STORE) is None or unseal(bytes(damaged)) is None
        # Without a key, all is seen but what became of the signature itself.
        assert unseal(bytes(damaged)) in (None, DOCUMENT)


@pytest.mark.parametrize(
    ("keys", "purpose", "change", "message"),
    [
        (
            NEW,
            "x",
            lambda content: content,
            r"which this process does not have for this store \(it has '2026'\)",
        ),
        (OLD, "y", lambda content: content, "was changed after it was signed .* belongs elsewhere"),
        (
            OLD,
            "x",
            lambda content: content.replace(b'"rows": 3', b'"rows": 4'),
            "was changed after it was signed with the key '2025'",
        ),
        (OLD, "x", lambda _: DOCUMENT, "x.json is not signed, and this process was given"),
        (OLD, "x", lambda _: seal(DOCUMENT), "x.json is not signed, and this process was given"),
        (OLD, "x", lambda _: b"", "x.json is not signed, and this process was given"),
    ],
)
def test_what_no_key_signed_is_refused_where_keys_are_configured(
    keys: str,
    purpose: str,
    change: Callable[[bytes], bytes],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    sealed = change(seal(DOCUMENT, "x", STORE))
    monkeypatch.setenv(KEYS_VARIABLE, keys)
    with pytest.raises(SignatureError, match=message):
        check_signed(sealed, purpose, "nightly/x.json", STORE)
    monkeypatch.delenv(KEYS_VARIABLE)
    check_signed(sealed, purpose, "nightly/x.json", STORE)
