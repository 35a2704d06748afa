"""No password of a URL is repeated: in messages, or in what Prefect stores."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import SourceError
from partwise.flows import train_models
from partwise.sources.opening import open_source
from partwise.store.url_secrets import without_secrets

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
    ):
        assert without_secrets(text) == text


def test_prefect_stores_no_password_of_a_list_or_mapping() -> None:
    uri = "postgresql://u:hunter2@h/db"
    stored = train_models.serialize_parameters(
        {"data": [uri, (uri,)], "params": {"deep": {"uri": uri}}, "store": f"{uri}?a=1"}
    )
    assert stored == {
        "data": ["postgresql://u:***@h/db", ("postgresql://u:***@h/db",)],
        "params": {"deep": {"uri": "postgresql://u:***@h/db"}},
        "store": "postgresql://u:***@h/db?a=1",
    }


@pytest.mark.parametrize("protocol", ["postgresql", "http", "sftp", "simplecache::http"])
def test_a_source_that_is_not_read_is_named_by_its_protocol_alone(protocol) -> None:
    shown = protocol.partition("::")[0]
    with pytest.raises(SourceError, match=f"protocol '{shown}' are not read: use a local") as told:
        open_source(f"{protocol}://u:hunter2@h/db")
    assert "hunter2" not in str(told.value)
    assert "Query(...) or sql-source/NAME" in str(told.value)
