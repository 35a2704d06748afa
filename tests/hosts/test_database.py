"""A database whose host is lost while a query runs there."""

import shlex
from pathlib import Path

import pytest

from tests.hosts.network import network

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ip")]

SERVE = """
set -e
as="setpriv --reuid=postgres --regid=postgres --clear-groups"
mkdir /tmp/database && chown postgres /tmp/database && cd /tmp/database
$as {programs}/initdb -D data -U postgres --auth=trust --no-sync
echo 'host all all 10.77.0.0/24 trust' >> data/pg_hba.conf
exec $as {programs}/postgres -D data -c listen_addresses=0.0.0.0 -k /tmp/database
"""
ASK = """
import time
from contextlib import closing
from partwise.errors import SourceError
from partwise.sources.sql.databases import Database
database = Database(uri="postgresql://postgres@database:5432/postgres")
while True:
    try:
        with database.connect() as connection, closing(connection.cursor()) as cursor:
            print("asks", flush=True)
            with database.telling("The query failed"):
                cursor.execute("SELECT pg_sleep(3600)")
                cursor.fetchall()
    except SourceError as error:
        # The server may still be starting.
        if "opened" not in str(error):
            print(error)
            break
        time.sleep(0.1)
"""


def test_a_query_ends_whose_database_is_out_of_reach(initdb: str) -> None:
    with network("client", "database") as made:
        programs = shlex.quote(str(Path(initdb).parent))
        made["database"].start("bash", "-c", SERVE.format(programs=programs))
        client = made["client"].python("-c", ASK)
        assert client.stdout is not None
        assert client.stdout.readline() == "asks\n"
        made.cut("client", "database")
        output, _ = client.communicate(timeout=300)
    assert output.startswith("The query failed: "), output
