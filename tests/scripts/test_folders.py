"""The folders of a script on a node."""

from pathlib import Path

import pytest

from partwise.processes.shared_files import LONGEST_ADDRESS
from partwise.scripts.folders import NodeFolders


@pytest.mark.parametrize("spare", [0, -1])
def test_temporary_files_lie_where_the_sockets_of_multiprocessing_fit(spare):
    below = "/tmp/pymp-12345678/listener-12345678"
    root = "/".ljust(LONGEST_ADDRESS - len(below) - spare, "x")
    expected = Path(root, "tmp") if spare == 0 else None
    assert NodeFolders(Path(root)).temporary == expected
