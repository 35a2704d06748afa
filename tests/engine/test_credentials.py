"""Keys on their way to workers: workers that are there, workers that come, keys that change."""

from distributed import Client, LocalCluster

from partwise.engine.driver.credentials import Credentials
from partwise.store.credentials import credentials_of, set_credentials

URL = "s3://a-bucket/models"


def test_every_worker_has_the_latest_keys_whosever_they_are() -> None:
    # Workers of this process, since processes take seconds to start.
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=1, **options) as cluster,
        Client(cluster) as client,
        Client(cluster, set_as_default=False) as of_another_driver,
    ):
        try:
            client.register_plugin(Credentials(URL, {"key": "old", "secret": "old"}))
            assert credentials_of(URL)["key"] == "old"
            # As docs/security.md has it: who shares a cluster shares the keys of its workers.
            of_another_driver.register_plugin(Credentials(URL, {"key": "new", "secret": "new"}))
            assert credentials_of(URL)["key"] == "new"
            set_credentials(URL, {})
            cluster.scale(2)
            client.wait_for_workers(2)
            assert credentials_of(URL) == {"key": "new", "secret": "new"}
            ours = [name for name in cluster.scheduler.worker_plugins if "partwise" in name]
            assert ours == [f"partwise-credentials-{URL}"]
        finally:
            set_credentials(URL, {})


def test_it_shows_the_url_and_no_key() -> None:
    plugin = Credentials(URL, {"key": "an-id", "secret": "a-secret"})
    assert repr(plugin) == f"Credentials({URL!r})"
    assert "secret" not in plugin.name
