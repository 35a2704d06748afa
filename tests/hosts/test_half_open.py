"""Who waits for a host that is out of reach, over a connection that nobody closes."""

import pytest

from tests.hosts.network import network
from tests.hosts.postgres import serve_postgres

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ip")]

ASK = """
import threading, time
from contextlib import closing
from partwise.errors import SourceError
from partwise.sources.sql.databases import Database
database = Database(uri="postgresql://postgres@other:5432/postgres")

def rows(query):
    with database.connect() as connection, closing(connection.cursor()) as cursor:
        with database.telling("The query failed"):
            cursor.execute(query)
            return cursor.fetchall()

def tell():
    # What is sent and not yet received ends with the kernel's 15 minutes only.
    others = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    while rows(f"{others} AND state = 'active' AND query LIKE '%pg_sleep(3600)%'") == [(0,)]:
        time.sleep(0.1)
    time.sleep(1.0)
    print("waits", flush=True)

while True:
    try:
        rows("SELECT 1")
        break
    except SourceError:
        # The server is still starting.
        time.sleep(0.1)
threading.Thread(target=tell).start()
try:
    rows("SELECT pg_sleep(3600)")
except SourceError as error:
    print(error)
"""
FIRST_RANK = """
import socket
from partwise.errors import PeerLostError
from partwise.gangs.exchange import RankExchange
listener = socket.create_server(("0.0.0.0", 7000))
exchange = RankExchange(0, 2, listener, ("one", 7000), b"k" * 32)
exchange.all_gather(b"")
print("waits", flush=True)
try:
    exchange.all_gather(b"")
except PeerLostError as error:
    print(error)
"""
SECOND_RANK = """
import socket, time
from partwise.gangs.exchange import RankExchange
while socket.socket().connect_ex(("one", 7000)):
    time.sleep(0.1)
exchange = RankExchange(1, 2, None, ("one", 7000), b"k" * 32)
exchange.all_gather(b"")
time.sleep(3600)
"""


def test_a_wait_ends_for_a_host_that_is_out_of_reach(initdb: str) -> None:
    with network("one", "other") as made:
        serve_postgres(made["other"], initdb)
        made["other"].python("-c", SECOND_RANK)
        waiting = [made["one"].python("-c", script) for script in (ASK, FIRST_RANK)]
        for process in waiting:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
        made.cut("one", "other")
        query, rank = (process.communicate(timeout=240)[0] for process in waiting)
    assert query.startswith("The query failed: "), query
    assert rank == "Rank 0 lost another rank of the gang while they exchanged data.\n"
