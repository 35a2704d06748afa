"""The folders of a script on a node."""

from pathlib import Path

import pytest

from partwise.processes.shared_files import LONGEST_ADDRESS
from partwise.scripts.folders import NodeFolders


@pytest.mark.parametrize("first", ["/", "/é"])
@pytest.mark.parametrize("spare", [0, -1])
def test_temporary_files_lie_where_the_sockets_of_multiprocessing_fit(spare, first):
    below = "/tmp/pymp-12345678/listener-12345678"
    root = first + "x" * (LONGEST_ADDRESS - len(below) - spare - len(first.encode()))
    expected = Path(root, "tmp") if spare == 0 else None
    assert NodeFolders(Path(root)).temporary == expected
