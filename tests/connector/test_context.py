"""The context of a partition outside any run: what it keeps, and what it refuses."""

import pytest

from partwise.connector.context import MemoryLink, PartitionContext
from partwise.errors import InputError


@pytest.mark.parametrize(
    ("first", "second", "given"),
    [
        ("notes.txt", b"content", "a bytes"),
        ("choice.json", {"best": 3}, "a dict"),
        ("notes.txt", "all is\nwell", "text that is not a file name"),
        (b"content", None, "a NoneType"),
        (b"content", 7, "a int"),
    ],
)
def test_swapped_arguments_of_an_upload_are_told(first, second, given) -> None:
    link = MemoryLink()
    with pytest.raises(TypeError, match=f"was given {given} as its second argument") as caught:
        PartitionContext(link=link).upload(first, second)
    expected = repr(first) if isinstance(first, str) else "'curve.png'"
    assert expected in str(caught.value)
    assert link.artifacts == {}


def test_a_name_that_is_not_flat_is_refused_as_such() -> None:
    with pytest.raises(InputError, match="is not a flat file name"):
        PartitionContext().upload(b"content", "a/b.txt")


def test_an_upload_is_kept_under_its_name() -> None:
    link = MemoryLink()
    PartitionContext(link=link).upload("a.txt", "b.txt")
    assert link.artifacts == {"b.txt": b"a.txt"}
