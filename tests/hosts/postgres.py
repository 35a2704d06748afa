"""PostgreSQL on a host, for all on its network."""

import shlex
from pathlib import Path

from tests.hosts.network import Host

_SERVE = """
set -e
as="setpriv --reuid=postgres --regid=postgres --clear-groups"
mkdir /tmp/database && chown postgres /tmp/database && cd /tmp/database
$as {programs}/initdb -D data -U postgres --auth=trust --no-sync
echo 'host all all 10.77.0.0/24 trust' >> data/pg_hba.conf
exec $as {programs}/postgres -D data -c listen_addresses=0.0.0.0 -k /tmp/database
"""


def serve_postgres(host: Host, initdb: str) -> str:
    """Start a server on a host, and return the URI of its database.

    Args:
        initdb: The program of that name, beside which the others are.
    """
    host.start("bash", "-c", _SERVE.format(programs=shlex.quote(str(Path(initdb).parent))))
    return f"postgresql://postgres@{host.address}:5432/postgres"
