"""Keys on their way to the workers' processes."""

import pickle

import pytest

from partwise.engine import credentials as credentials_module
from partwise.engine.credentials import SourceCredentials, StoreCredentials

OPTIONS = {"key": "AKIA", "secret": "hush"}


@pytest.mark.parametrize(
    ("plugin", "setter", "where"),
    [
        (StoreCredentials("s3://store", OPTIONS), "set_credentials", "s3://store"),
        (SourceCredentials("bucket", OPTIONS), "set_source_credentials", "bucket"),
    ],
)
def test_a_worker_is_given_the_keys_and_nobody_is_shown_them(
    plugin, setter, where, monkeypatch
) -> None:
    seen = {}
    monkeypatch.setattr(credentials_module, setter, lambda place, keys: seen.update({place: keys}))
    # As it arrives on a worker.
    pickle.loads(pickle.dumps(plugin)).setup(worker=None)
    assert seen == {where: OPTIONS}
    assert "hush" not in repr(plugin)
    assert where in repr(plugin)


def test_keys_of_two_places_do_not_replace_each_other() -> None:
    plugins = [StoreCredentials("a", OPTIONS), StoreCredentials("b", OPTIONS)]
    plugins += [SourceCredentials("a", OPTIONS)]
    assert len({plugin.name for plugin in plugins}) == 3
    # Dask registers a plugin of a name it has only when this is set.
    assert all(plugin.idempotent for plugin in plugins)
