"""What Open MPI starts in the place of a program, and in the place of ssh.

It runs as a script, and imports nothing of partwise: Python is there in 20 ms, of which each rank
pays one. As `join` it hands the environment that Open MPI made for a process over to the rank of
that number, which starts the program itself, and then it ends as the program has ended. As
`launch` it tells the first rank which command Open MPI would have another machine run.
"""

import json
import os
import signal
import socket
import sys

RANKS_VARIABLE = "PARTWISE_MPI_RANKS"
"""JSON: the path of the socket of each rank of this node, by its number."""
LAUNCH_VARIABLE = "PARTWISE_MPI_LAUNCH"
"""The path of the socket of the rank that passes on commands for other machines."""
NO_RANK = 126
"""Exit status where the rank is gone, or is of another node."""


def connect(path: str) -> socket.socket:
    """Return a connection to a socket; its path may be longer than the kernel's 107 bytes."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
    return connection


def join() -> int:
    """Stand for a rank's program until that has ended, and return its exit status."""
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    path = json.loads(os.environ[RANKS_VARIABLE]).get(rank)
    if path is None:
        sys.stderr.write(f"Open MPI started rank {rank} on a node that does not have it.\n")
        return NO_RANK
    try:
        connection = connect(path)
        # Open MPI ends its processes by SIGTERM, and after a second by SIGKILL.
        signal.signal(signal.SIGTERM, lambda *_: connection.sendall(b"abort\n"))
        connection.sendall(json.dumps({"environment": dict(os.environ)}).encode() + b"\n")
        line = connection.makefile().readline()
    except OSError:
        return NO_RANK
    if not line:
        return NO_RANK
    code = int(line)
    if code < 0:
        # Open MPI is to say by which signal the program ended.
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else 0
        os.kill(os.getpid(), -code)
    return code & 0xFF


def launch(host: str, words: list[str]) -> int:
    """Tell the first rank what is to run on a host."""
    with connect(os.environ[LAUNCH_VARIABLE]) as connection:
        # As ssh does: the words make one line for a shell.
        message = {"host": host, "command": " ".join(words)}
        connection.sendall(json.dumps(message).encode() + b"\n")
    return 0


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    sys.exit(join() if mode == "join" else launch(arguments[0], arguments[1:]))
