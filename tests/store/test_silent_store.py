"""A server in the place of a bucket or a database that takes connections, and answers nothing."""

import pytest

from partwise.errors import SourceError, StoreError
from partwise.sources.sql.databases import Database
from partwise.store import remote_objects
from partwise.store.store import Store
from tests.strangers import strange_server


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent", "dripping"])
def test_a_bucket_is_given_up_with_a_sentence(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_objects, "ANSWER_S", 0.1)
    # Five of them take a minute, for the pauses between them.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with strange_server(kind) as (host, port):
        store = Store.parse("s3://b/p", endpoint_url=f"http://{host}:{port}", region="eu-1")
        with pytest.raises(StoreError):
            store.read("object")


@pytest.mark.parametrize(
    "kind", [pytest.param("silent", marks=pytest.mark.slow), "dripping", "talking"]
)
def test_a_database_is_given_up_with_a_sentence(kind: str) -> None:
    with strange_server(kind) as (host, port):
        uri = f"postgresql://user@{host}:{port}/name?connect_timeout=2"
        with (
            pytest.raises(SourceError, match="cannot be opened"),
            Database(uri=uri).connect(),
        ):
            pass
