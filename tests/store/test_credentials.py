"""The keys that a process holds for stores and for buckets with rows."""

import pytest

from partwise.errors import InputError
from partwise.store.credentials import credentials_of, known_credentials, set_credentials

KEYS = {"key": "an-id", "secret": "a-secret"}


@pytest.fixture(autouse=True)
def forget():
    yield
    for url in ("s3://b", "s3://b/models", "gs://b", "abfs://c@account"):
        set_credentials(url, {})


def test_each_url_has_its_own() -> None:
    set_credentials("s3://b", KEYS)
    set_credentials("s3://b/models", {**KEYS, "key": "another-id"})
    assert credentials_of("s3://b") == KEYS
    assert credentials_of("s3://b/models")["key"] == "another-id"
    assert credentials_of("s3://b/other") == {}
    assert known_credentials(["s3://b", "s3://none", "/data"]) == {"s3://b": KEYS}


def test_the_latest_replace_those_before_and_none_forgets_them() -> None:
    set_credentials("s3://b", {**KEYS, "token": "of-yesterday"})
    set_credentials("s3://b", KEYS)
    assert credentials_of("s3://b") == KEYS
    set_credentials("s3://b", {})
    assert known_credentials(["s3://b"]) == {}


def test_a_url_is_the_same_under_each_of_its_names() -> None:
    set_credentials("gcs://b/", {"token": "x"})
    assert credentials_of("gs://b") == {"token": "x"}
    set_credentials("abfss://c@account", {"account_key": "x"})
    assert credentials_of("az://c@account/") == {"account_key": "x"}


def test_what_is_returned_is_a_copy() -> None:
    set_credentials("s3://b", KEYS)
    credentials_of("s3://b")["secret"] = "changed"
    assert credentials_of("s3://b") == KEYS


@pytest.mark.parametrize(
    ("url", "options", "match"),
    [
        ("s3://bucket", {"endpoint_url": "http://169.254.169.254"}, "takes no .* endpoint_url"),
        ("s3://bucket", {"key": "x", "client_kwargs": "y"}, "takes no .* client_kwargs"),
        ("s3://b", {"password": "x"}, "takes no credentials named password; it takes key, "),
        ("gs://bucket", {"secret": "x"}, "it takes token"),
        ("/data", {"key": "x"}, "it takes none"),
        ("http://host", {"key": "x"}, "it takes none"),
    ],
)
def test_only_known_ones(url, options, match) -> None:
    with pytest.raises(InputError, match=match):
        set_credentials(url, options)
    assert credentials_of(url) == {}


def test_a_refusal_repeats_no_password_of_the_url() -> None:
    with pytest.raises(InputError, match=r"s3://\*\*\*@bucket takes no") as caught:
        set_credentials("s3://AKIAKEY:hunter2@bucket", {"password": "x"})
    assert "hunter2" not in str(caught.value)
