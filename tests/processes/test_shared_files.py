"""Where multiprocessing has its folder in a child."""

import os

import pytest

from partwise.processes.shared_files import LONGEST_ADDRESS, own_folder_of


@pytest.mark.parametrize("first", ["/", "/é"])
@pytest.mark.parametrize("spare", [0, -1])
def test_the_folder_stands_where_a_socket_in_it_fits(spare, first) -> None:
    below = ".mp/listener-12345678"
    rest = LONGEST_ADDRESS - len(below) - spare - len(first.encode())
    directory = first + "x" * rest
    folder = own_folder_of(directory, "token")
    assert (folder == f"{directory}.mp") == (spare == 0)
    assert len(os.fsencode(folder + "/listener-12345678")) <= LONGEST_ADDRESS
