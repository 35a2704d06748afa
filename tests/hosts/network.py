"""Hosts that share nothing, made of one machine by Linux namespaces: each with its own network,
disks, names and processes. They see the same checkout and Python, which nobody may write to.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil
from distributed import Security

from tests.programs import ROOT

PORT = 8786
STORE_PORT = 5000
TLS_FILES = ("/tmp/tls/ca.pem", "/tmp/tls/certificate.pem", "/tmp/tls/key.pem")
"""Of the authority, the certificate and its key, on each host of a cluster that speaks TLS."""
_WIRE = ("link", "add", "wire", "up", "type", "bridge", "forward_delay", "0")
_NOBODY = "02:00:00:00:00:00"
_SPACES = ("--mount", "--net", "--uts", "--pid")
_BEGIN = """
set -e
echo {name} > /proc/sys/kernel/hostname
mount -t tmpfs hosts /mnt
mkdir -p {kept_at}
{keep}
mount -o remount,bind,ro /
for place in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs "{name}" $place; done
{give_back}
mkdir -p /tmp/home
printf '127.0.0.1 localhost\\n{names}' > /tmp/names
mount --bind /tmp/names /etc/hosts
ip link set lo up
echo ready
cat
"""
"""The first process of a host. It ends, and all others with it, when nobody holds its stdin."""


class Host:
    """A machine of a network.

    Args:
        name: What it is called.
        address: Its address.
        names: Lines of /etc/hosts.
    """

    def __init__(self, name: str, address: str, names: str) -> None:
        self.name, self.address = name, address
        self._started: list[subprocess.Popen[str]] = []
        kept = [ROOT, Path(sys.prefix), Path(sys.base_prefix)]
        script = _BEGIN.format(
            name=name,
            names=names,
            kept_at=" ".join(f"/mnt/{number}" for number in range(len(kept))),
            keep="\n".join(
                f"mount --bind {shlex.quote(str(path))} /mnt/{number}\n"
                f"mount -o remount,bind,ro /mnt/{number}"
                for number, path in enumerate(kept)
            ),
            give_back="\n".join(
                f"mkdir -p {path} 2>/dev/null || true\nmount --bind /mnt/{number} {path}"
                for number, path in ((n, shlex.quote(str(path))) for n, path in enumerate(kept))
            ),
        )
        words = ["unshare", *_SPACES, "--mount-proc", "--fork", "--kill-child"]
        self._first = subprocess.Popen(
            [*words, "bash", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._first.stdout is not None
        said = self._first.stdout.readline()
        if said != "ready\n":
            self.close()
            raise OSError(f"The host {name} did not start: see what it printed.")
        (bash,) = psutil.Process(self._first.pid).children()
        self.pid = bash.pid
        """Of its first process, as this machine numbers it."""

    def start(
        self,
        *words: str,
        output: int | IO[bytes] = subprocess.PIPE,
        lines: int = subprocess.DEVNULL,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start a program on it, with its output as one stream, or into a file.

        `lines`: its stdin.
        """
        mine = {name: os.environ[name] for name in os.environ if not name.startswith("PREFECT_")}
        mine |= {"HOME": "/tmp/home", "TMPDIR": "/tmp", "PYTHONPATH": str(ROOT)}
        mine |= {"PARTWISE_SCRATCH": "/tmp/scratch", "PARTWISE_STATE": "/tmp/state"}
        mine |= {"PREFECT_HOME": "/tmp/prefect", "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false"}
        mine |= {"UV_CACHE_DIR": "/tmp/uv", "PREFECT_LOGGING_LEVEL": "WARNING"}
        process = subprocess.Popen(
            [*self._inside, "env", "-C", "/tmp", *words],
            stdin=lines,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env=mine | environment,
        )
        self._started.append(process)
        return process

    def python(
        self,
        *words: str,
        output: int | IO[bytes] = subprocess.PIPE,
        lines: int = subprocess.DEVNULL,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start Python on it."""
        return self.start(sys.executable, *words, output=output, lines=lines, **environment)

    def ip(self, *words: str) -> None:
        """Change its network."""
        inside = ["nsenter", "-t", str(self.pid), "--net", "ip", *words]
        subprocess.run(inside, check=True, capture_output=True)

    def text(self, path: str) -> str:
        """Read a file of its own disks; of one that is not there, nothing."""
        with suppress(FileNotFoundError):
            return Path(f"/proc/{self.pid}/root{path}").read_text()
        return ""

    def write(self, path: str, text: str) -> None:
        """Write a file on its own disks."""
        made = Path(f"/proc/{self.pid}/root{path}")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)

    @property
    def _inside(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), *_SPACES, "--"]

    def processes(self) -> list[psutil.Process]:
        """All processes on it but those that make it a host."""
        found, mine = [], os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                # `cat` is the one that waits for its end.
                is_own = os.stat(f"/proc/{process.pid}/ns/pid").st_ino == mine
                is_ours = process.pid == self.pid or process.name() == "cat"
                # Of a dead one whose parent died before, nothing is left but its number.
                if is_own and not is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """End it and all of its processes."""
        # All processes of a host end with its first one, before `unshare` does.
        with suppress(psutil.Error, AttributeError):
            psutil.Process(self.pid).kill()
            self._first.wait()
        for process in (self._first, *self._started):
            process.kill()
            with suppress(ValueError):  # a driver's output may have been read to its end
                process.communicate()


class Network:
    """Hosts on one wire, and the cuts of it.

    Args:
        names: One for each host; the addresses count from 10.77.0.1.
    """

    def __init__(self, *names: str) -> None:
        self._addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
        self.hosts: dict[str, Host] = {}
        try:
            self._switch = Host("switch", "", "")
            # Without a delay for what a network of bridges has to find out first.
            self._switch.ip(*_WIRE)
            for name in names:
                self.plug_in(name)
        except BaseException:
            self.close()
            raise

    def plug_in(self, name: str) -> None:
        """Start a host, or another one in the place of one that has vanished."""
        address = self._addresses[name]
        lines = "".join(f"{other} {each}\\n" for each, other in self._addresses.items())
        self.hosts[name] = host = Host(name, address, lines)
        self._switch.ip(*f"link add {name} type veth peer name eth0 netns {host.pid}".split())
        self._switch.ip(*f"link set {name} master wire up".split())
        host.ip(*f"address add {address}/24 dev eth0".split())
        host.ip("link", "set", "eth0", "up")

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def cut(self, one: str, other: str) -> None:
        """Lose whatever these two send each other, without a word to either."""
        for here, there in ((one, other), (other, one)):
            # To a card that nobody has: what is sent is gone, and no connection is told.
            self[here].ip("neigh", "replace", self[there].address, "lladdr", _NOBODY, "dev", "eth0")

    def heal(self, one: str, other: str) -> None:
        """Have these two hear each other again."""
        for here, there in ((one, other), (other, one)):
            self[here].ip("neigh", "del", self[there].address, "dev", "eth0")

    def vanish(self, name: str) -> None:
        """Pull a host's plug: it ends, and none of its connections."""
        self._switch.ip("link", "set", name, "nomaster")
        self[name].close()
        # Its card goes with it, a moment later; the next one is to have the same name.
        with suppress(subprocess.CalledProcessError):
            self._switch.ip("link", "del", name)

    def close(self) -> None:
        """End all hosts."""
        for host in [*self.hosts.values(), *filter(None, [getattr(self, "_switch", None)])]:
            host.close()


class Cluster:
    """A scheduler, workers and a bucket, each on a host of a network.

    Args:
        network: With the hosts "scheduler", "store", "driver", and the workers "one", "two" ...
        workers: Their names.
        folder: For logs.
        security: Of the connections, TLS; None: plaintext. TLS_FILES of each host have it.
    """

    def __init__(
        self,
        network: Network,
        workers: tuple[str, ...],
        folder: Path,
        security: Security | None = None,
    ) -> None:
        self.network = network
        self.folder = folder
        self.store = f"http://{network['store'].address}:{STORE_PORT}"
        protocol = "tcp" if security is None else "tls"
        self.scheduler = f"{protocol}://{network['scheduler'].address}:{PORT}"
        self._protected: tuple[str, ...] = ()
        if security is not None:
            ca, certificate, key = TLS_FILES
            self._protected = ("--tls-ca-file", ca, "--tls-cert", certificate, "--tls-key", key)
            for host in network.hosts.values():
                for path in TLS_FILES[:2]:
                    host.write(path, security.tls_client_cert)
                host.write(key, security.tls_client_key)
        self.pids: set[int] = set()
        """Of its servers, as this machine numbers them."""
        self._start("store", "moto.server", "-H", "0.0.0.0", "-p", str(STORE_PORT))
        self.add_scheduler()
        for name in workers:
            self.add(name)

    def add_scheduler(self) -> None:
        """Start the scheduler on its host."""
        protected = (*self._protected, *(("--protocol", "tls") if self._protected else ()))
        self._start("scheduler", "distributed.cli.dask_scheduler", "--no-dashboard", *protected)

    def add(self, name: str) -> subprocess.Popen[str]:
        """Start a worker of one thread on a host, and return its nanny."""
        words = ("--nthreads", "1", "--no-dashboard", "--local-directory", "/tmp/dask")
        words = (*words, *self._protected)
        return self._start(name, "distributed.cli.dask_worker", self.scheduler, *words)

    def _start(self, name: str, *words: str) -> subprocess.Popen[str]:
        """Start a server, whose output is kept in a file of this machine."""
        command = ["-m", *words]
        # Its processes have nothing to do most of the time.
        quiet = {
            "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
            "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self.network[name].python(
                *command, output=log, AWS_ENDPOINT_URL_S3=self.store, **quiet
            )
        self.pids.add(process.pid)
        return process


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Give hosts of these names, and end them."""
    made = Network(*names)
    try:
        yield made
    finally:
        made.close()
